"""Compiles the training step of a run for TPUs that are not there, and reports what it needs."""

import dataclasses
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bertjax.attention.kernel.form import BLOCK
from bertjax.base.errors import InputError
from bertjax.base.files import local_folder, write_json
from bertjax.compile_report.documents import packed_rows, share_of_blocks
from bertjax.compile_report.picture import draw
from bertjax.compile_report.report import Report, Step, compile_and_report, run_table, table
from bertjax.compile_report.topology import Slice, describe, only_compile
from bertjax.corpus.store import open_tokenizer
from bertjax.encoders.contract import EncoderSpec
from bertjax.encoders.registry import family_of
from bertjax.examples.documents import mean_context
from bertjax.runs.assembly import make_experiment, phase_model
from bertjax.runs.initialize import open_sources, with_sizes_of
from bertjax.runs.recipe import PAPER_VOCABULARY, PhaseSpec, Recipe
from bertjax.training.loop import Trainer


def run(
    config: Any,
    topology: str,
    json_file: str = "",
    image: str = "",
    title: str = "",
    document: float = 0,
) -> list[Report]:
    """Compiles every phase of a config and prints what the compiler says about it.

    Args:
      config: as in `configs/`; without a corpus, the vocabulary is the paper's.
      topology: a slice, such as "v5e:8x8".
      document: the mean tokens of a document, if rows have several and attention by kernels leaves
        out the blocks of other documents; 0: a row is one document.
      json_file, image: where to write the figures, and a picture of them (PNG); "": nowhere.

    Raises:
      InputError: what would also stop the run: a mistake in the config, a batch that does not
        divide, too little memory; or there is no compiler, or it does not know the slice.
    """
    only_compile()
    for flag, file in (("json", json_file), ("image", image)):
        if file and not local_folder(file).parent.is_dir():
            raise InputError(f"--{flag}={file}: no folder {Path(file).parent}: make it")
    recipe = Recipe.from_config(config)
    if recipe.init_from:
        if main := open_sources(recipe, begun=False).get(recipe.objective.exported):
            recipe = recipe.with_model(with_sizes_of(main, recipe.plain["model"]))
    vocabulary = PAPER_VOCABULARY
    if recipe.corpus:
        vocabulary = open_tokenizer(recipe.corpus[0]).vocabulary_size
    spec = recipe.spec(vocabulary)
    where = describe(topology)
    trainer = Trainer(make_experiment(recipe, spec, where.devices))
    for _, phase, _ in recipe.steps():
        trainer.experiment.placement.check(phase.batch_size // phase.accumulate, phase.length)
    reports = []
    for name, phase, steps in recipe.steps():
        print(f"{name}: compiling for {topology} ...", flush=True)
        begin = time.perf_counter()
        reports.append(_report(recipe, spec, trainer, phase, len(steps), where, document))
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
    trainer: Trainer,
    phase: PhaseSpec,
    steps: int,
    where: Slice,
    document: float,
) -> Report:
    predicted = recipe.example_spec(phase, "", phase.batch_size).predicted
    batch = recipe.objective.shapes(B=phase.batch_size, S=phase.length, P=predicted)
    model = phase_model(recipe, spec, dataclasses.replace(spec, **phase.model))
    lowered = trainer.lowered_step(batch, phase.accumulate, model)
    tokens = phase.batch_size * phase.length
    context, share = None, 1.0
    if document:
        rows = packed_rows(phase.length, document)
        context = mean_context(rows)
        share = share_of_blocks(rows, BLOCK)
    step = Step(
        length=phase.length,
        batch_size=phase.batch_size,
        accumulate=phase.accumulate,
        steps=steps,
        flops=tokens * recipe.objective.flops_per_token(spec, phase.length, predicted, context),
        share=share,
    )
    return compile_and_report(lowered, step, where, family_of(spec).scopes)
