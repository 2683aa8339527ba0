"""Compiles the training step of a run for TPUs that are not there, and reports what it needs."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax

from bertjax.base.checks import check_output
from bertjax.base.errors import InputError
from bertjax.base.files import local_folder, write_json
from bertjax.base.progress import Progress
from bertjax.compile_report import bundles
from bertjax.compile_report.documents import packed_rows, share_of_blocks
from bertjax.compile_report.parts import Scopes
from bertjax.compile_report.picture import draw
from bertjax.compile_report.report import Report, Step, compile_and_report, run_table, table
from bertjax.compile_report.topology import Slice, describe, only_compile
from bertjax.data.corpus.store import open_tokenizer
from bertjax.data.examples.documents import mean_context
from bertjax.models.attention.kernel.form import BLOCK
from bertjax.models.encoders.registry import ENCODERS, family_of
from bertjax.runs.assembly import make_experiment, phase_model
from bertjax.runs.contrastive.job import make_experiment as similarity_experiment
from bertjax.runs.contrastive.recipe import SimilarityRecipe, is_similarity
from bertjax.runs.how_computed import with_compute_dtype
from bertjax.runs.initialize import open_sources, with_weights
from bertjax.runs.recipe import Recipe
from bertjax.runs.source import open_model
from bertjax.training.loop import Trainer

_SECONDS_BETWEEN_LOOKS = 1.0  # at what the compiler has dumped


def run(
    config: Any,
    topology: str,
    json_file: str = "",
    image: str = "",
    title: str = "",
    document: float = 0,
) -> list[Report]:
    """Compiles every phase of a config and prints what the compiler says about it.

    Without a corpus, the vocabulary has config.model.vocab_size pieces, or those of the paper. In
    contrastive training, a query has as many passages as the loss needs. With `document`, the mean
    tokens of a document, rows have several, and attention by kernels leaves out the blocks of other
    documents.

    Raises:
      InputError: what would also stop the run: a mistake in the config, a batch that does not
        divide, too little memory; or there is no compiler, or it does not know the slice.
    """
    for flag, file, ending in (("json", json_file, ".json"), ("image", image, ".png")):
        if file:
            check_output(str(local_folder(file)), ending, flag)
    only_compile()
    where = describe(topology)
    of_config = _similarity_phase if is_similarity(config) else _phases
    reports, expected = [], None
    for phase in of_config(config, where, document):
        print(f"{phase.name}: compiling for {topology} ...", flush=True)
        begin, lowered = time.perf_counter(), phase.lower()
        with _shown(phase.name, expected):
            reports.append(compile_and_report(lowered, phase.step, where, phase.scopes))
        expected = bundles.instructions(bundles.folder())
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


@contextlib.contextmanager
def _shown(name: str, expected: int | None) -> Iterator[None]:
    """Shows how many instructions of a phase are compiled, while the block compiles them."""
    ended = threading.Event()

    def show() -> None:
        with Progress(name, expected, " instructions") as progress:
            shown, last = 0, False
            while not last:
                last = ended.wait(_SECONDS_BETWEEN_LOOKS)
                found = bundles.instructions(bundles.folder())
                progress.update(found - shown)
                shown = found

    thread = threading.Thread(target=show)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _Phase(NamedTuple):
    """What is to be compiled: `lower` makes the program of an update."""

    name: str
    lower: Callable[[], jax.stages.Lowered]
    step: Step
    scopes: Scopes


def _phases(config: Any, where: Slice, document: float) -> list[_Phase]:
    recipe = Recipe.from_config(config)
    tokenizer = open_tokenizer(recipe.corpus[0]) if recipe.corpus else None
    pretrained = open_sources(recipe, tokenizer, open_model, started=False)
    if pretrained:
        recipe = Recipe.from_config(with_weights(recipe, pretrained))
    spec = recipe.spec_for(tokenizer) if tokenizer else recipe.spec()
    trainer = Trainer(make_experiment(recipe, spec, where.devices, pretrained))
    found = []
    for name, phase, steps in recipe.steps():
        trainer.experiment.placement.check(phase.batch_size // phase.accumulate, phase.length)
        predicted = recipe.example_spec(phase, "", phase.batch_size).predicted
        batch = phase.objective.shapes(B=phase.batch_size, S=phase.length, P=predicted)
        of_phase = recipe.spec_in(phase, spec)
        model = phase_model(recipe, spec, phase.objective, of_phase, pretrained)
        experiment = trainer.experiment_of(model, phase.objective)
        tokens = phase.batch_size * phase.length
        context, share = None, 1.0
        if document:
            rows = packed_rows(phase.length, document)
            context, share = mean_context(rows), share_of_blocks(rows, BLOCK)
        step = Step(
            length=phase.length,
            batch_size=phase.batch_size,
            accumulate=phase.accumulate,
            steps=len(steps),
            flops=tokens * phase.objective.flops_per_token(spec, phase.length, predicted, context),
            share=share,
        )
        lower = partial(trainer.lowered_step, batch, phase.accumulate, experiment)
        found.append(_Phase(name, lower, step, family_of(spec).scopes))
    return found


def _similarity_phase(config: Any, where: Slice, document: float) -> list[_Phase]:
    """The only phase of a config of contrastive training; without weights, of BERT-Base."""
    if document:
        raise InputError("--document: contrastive training has one text in a row: leave it out")
    config = with_compute_dtype(config, device=where.devices[0])
    recipe = SimilarityRecipe.from_config(config)
    encoder_spec = (
        open_model(recipe.init_from).spec
        if recipe.init_from
        else ENCODERS["bert"].spec.named("base")
    )
    spec, objective = recipe.spec(encoder_spec, recipe.init_from), recipe.objective()
    trainer = Trainer(similarity_experiment(recipe, spec, where.devices))
    trainer.experiment.placement.check(recipe.batch_size // recipe.chunks, 1)
    query, passage = recipe.lengths(spec)
    width = recipe.loss.passages
    batch = objective.shapes(B=recipe.batch_size, C=width, Q=query, S=passage)
    tokens = recipe.batch_size * (query * (recipe.embedding is not None) + width * passage)
    step = Step(
        length=passage,
        batch_size=recipe.batch_size,
        accumulate=recipe.chunks,
        steps=recipe.total_steps or 1,
        flops=tokens * spec.flops_per_token(passage, predicted=0),
    )
    lower = partial(trainer.lowered_step, batch, 1)
    return [_Phase("contrastive", lower, step, family_of(spec).scopes)]
