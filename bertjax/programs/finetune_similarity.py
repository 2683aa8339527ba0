"""Contrastive training: pairs of texts go in; a model of vectors, or a reranker, comes out."""

import contextlib
from typing import Any

import jax

from bertjax.base.errors import EXIT_STOPPED
from bertjax.base.files import exclusive, local_folder, write_json
from bertjax.runs.contrastive.evaluation import PAIRS, Evaluation, read_evaluation
from bertjax.runs.contrastive.job import SimilarityJob
from bertjax.runs.contrastive.judge import Judge
from bertjax.runs.contrastive.recipe import SimilarityRecipe
from bertjax.runs.preflight import check_devices, check_folder, check_programs, check_same
from bertjax.runs.read import flat
from bertjax.runs.run_folder import MODEL_FOLDER, checkpoints_of
from bertjax.tasks.similarity.examples import has_dev
from bertjax.training.journal import Journal
from bertjax.training.loop import last_line
from bertjax.training.memory import less_memory
from bertjax.training.sharding.hosts import heartbeat, raise_together
from bertjax.training.trackers import open_tracker

_KEPT = 2  # checkpoints


@less_memory(
    "set --config.chunks=4 (then 8, and so on)",
    "set --config.batch_tokens=4096 (then 2048, and so on), which is for evaluation",
    "set --config.model.remat=layer",
)
def run(config: Any, workdir: str) -> int:
    """Trains until the last step, from the newest checkpoint in `workdir` if any.

    Args:
      config: as in `configs/finetune_embeddings.py`.
      workdir: RUN: gets config.json, metrics.jsonl, checkpoints/, the best model and results.json.

    Returns:
      0 when the run is complete, EXIT_STOPPED when a signal stopped it.

    Raises:
      InputError: something cannot work; all hosts raise it before anything is compiled.
    """
    check_programs()
    check_devices()
    with raise_together():
        local_folder(workdir)
        job = SimilarityJob.of(config, workdir)
        evaluations = read_evaluations(job.recipe)
    check_same(job.facts)
    is_first, folder = jax.process_index() == 0, job.folder
    if is_first:
        print(job.announcement(), flush=True)
    leaves = jax.tree.leaves(job.trainer.experiment.state)
    check_folder(folder, sum(x.size * x.dtype.itemsize for x in leaves), _KEPT + 1)
    judge = Judge(job, evaluations)
    with contextlib.ExitStack() as stack:
        with raise_together():
            if is_first:
                stack.enter_context(exclusive(folder))
        checkpoints = checkpoints_of(folder, keep=_KEPT)
        stack.enter_context(contextlib.closing(checkpoints))
        stack.enter_context(heartbeat(exit_code_when_lost=EXIT_STOPPED))
        state, window = job.trainer.restore(checkpoints, job.identity)
        if state is None:
            state = job.fresh_state()
        journal, step = None, int(state.step)
        if is_first:
            write_json(folder / "config.json", job.recipe.plain)
            tracker = open_tracker(job.recipe.tracker, folder, flat(job.recipe.plain))
            journal = Journal(folder, step, last_line(step, window), tracker=tracker)
            stack.enter_context(contextlib.closing(journal))
        state, _ = job.trainer.train(state, job.course(judge), checkpoints, journal, window)
    complete = int(state.step) == job.phase.last_step
    if is_first and complete:
        _print_results(judge.finish())
        print(f"{folder}: results.json, {MODEL_FOLDER}/")
    elif is_first:
        print(f"stopped at step {int(state.step)}, saved; the same command goes on from there")
    return 0 if complete else EXIT_STOPPED


def read_evaluations(recipe: SimilarityRecipe) -> list[Evaluation]:
    """What a run is evaluated on: `config.dev`, or the dev files of its sources.

    Raises:
      InputError: a file has an error.
    """
    names = recipe.dev or [f"{PAIRS}:{name}" for name, _ in recipe.sources if has_dev(name)]
    return [read_evaluation(name, recipe.columns) for name in names]


def _print_results(results: dict[str, Any]) -> None:
    print(f"the best model is that of step {results['chosen']['step']}")
    for name, scores in results["dev"].items():
        shown = ", ".join(f"{metric} {value:.2f}" for metric, value in scores.items())
        print(f"  {name}: {shown}")
