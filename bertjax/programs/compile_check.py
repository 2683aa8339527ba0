"""The report before the pod: the very step of a run, compiled for TPUs that are not there."""

import dataclasses
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from bertjax.base.errors import InputError
from bertjax.base.files import local_folder, write_json
from bertjax.compile_report.picture import draw
from bertjax.compile_report.report import Report, Step, compile_and_report, run_table, table
from bertjax.compile_report.topology import Slice, describe
from bertjax.corpus.store import open_tokenizer
from bertjax.encoders.contract import EncoderSpec
from bertjax.encoders.registry import family_of
from bertjax.runs.assembly import Training, make_training, phase_loss
from bertjax.runs.initialize import with_sizes_of
from bertjax.runs.open_model import open_model
from bertjax.runs.recipe import PAPER_VOCABULARY, PhaseSpec, Recipe


def run(
    config: Any, topology: str, json_file: str = "", image: str = "", title: str = ""
) -> list[Report]:
    """Compiles every phase of a config and prints what the compiler says of it.

    Args:
      config: as in `configs/`; without a corpus, the vocabulary is the paper's.
      topology: a slice, such as "v5e:8x8".
      json_file, image: where to write the figures, and a picture of them (PNG); "": nowhere.

    Raises:
      InputError: what would stop the run too: a mistake in the config, a batch that does not
        divide, too little memory; or no compiler, or one that does not know the slice.
    """
    jax.config.update("jax_platforms", "cpu")  # also on a host that has TPUs
    jax.config.update("jax_enable_compilation_cache", False)  # it cannot read such programs back
    for flag, file in (("json", json_file), ("image", image)):
        if file and not local_folder(file).parent.is_dir():
            raise InputError(f"--{flag}={file}: no folder {Path(file).parent}: make it")
    recipe = Recipe.from_config(config)
    if recipe.init_from:
        model = with_sizes_of(open_model(recipe.init_from), recipe.plain["model"])
        recipe = Recipe.from_config({**recipe.plain, "model": model})
    vocabulary = PAPER_VOCABULARY
    if recipe.corpus:
        vocabulary = open_tokenizer(recipe.corpus[0]).vocabulary_size
    spec = recipe.spec(vocabulary)
    where = describe(topology)
    training = make_training(recipe, spec, where.devices)
    for _, phase, _ in recipe.steps():
        training.placement.host_rows(phase.batch_size // phase.accumulate)  # that it divides
    reports = []
    for name, phase, steps in recipe.steps():
        print(f"{name}: compiling for {topology} ...", flush=True)
        begin = time.perf_counter()
        reports.append(_report(recipe, spec, training, phase, len(steps), where))
        print(f"({time.perf_counter() - begin:.0f} s)\n{table(reports[-1])}\n", flush=True)
    print(run_table(reports))
    if json_file:
        versions = {name: version(name) for name in ("jax", "libtpu")}
        phases = [report.as_dict() for report in reports]
        content = {"topology": topology, "versions": versions, "phases": phases}
        write_json(Path(json_file), content)
    if image:
        draw(reports, f"{title} on {topology}".strip(), image)
    return reports


def _report(
    recipe: Recipe,
    spec: EncoderSpec,
    training: Training,
    phase: PhaseSpec,
    steps: int,
    where: Slice,
) -> Report:
    predicted = recipe.example_spec(phase, "", phase.batch_size).predicted
    batch = recipe.objective.shapes(B=phase.batch_size, S=phase.length, P=predicted)
    loss = phase_loss(recipe, spec, dataclasses.replace(spec, **phase.model))
    lowered = training.trainer.lowered_step(training.abstract, batch, phase.accumulate, loss)
    tokens = phase.batch_size * phase.length
    step = Step(
        length=phase.length,
        batch_size=phase.batch_size,
        accumulate=phase.accumulate,
        steps=steps,
        flops=tokens * spec.flops_per_token(phase.length, predicted),
    )
    return compile_and_report(lowered, step, where, family_of(spec).scopes)
