"""Contrastive training: pairs of texts go in; a model of vectors, or a reranker, comes out."""

from typing import Any

from bertjax.base.errors import EXIT_STOPPED
from bertjax.runs.contrastive.evaluation import PAIRS, Evaluation, read_evaluation
from bertjax.runs.contrastive.evaluator import StateEvaluator
from bertjax.runs.contrastive.job import KEPT, SimilarityJob
from bertjax.runs.contrastive.recipe import SimilarityRecipe
from bertjax.runs.preflight import check_devices, check_programs, check_same
from bertjax.runs.run_folder import MODEL_FOLDER
from bertjax.runs.session import session
from bertjax.tasks.similarity.examples import has_dev
from bertjax.training.memory import less_memory
from bertjax.training.sharding.hosts import from_first, raise_together, say


@less_memory(
    "set --config.chunks=4 (then 8, and so on)",
    "set --config.batch_tokens=4096 (then 2048, and so on), which is for evaluation",
    "set --config.model.remat=layer",
)
def run(config: Any, workdir: str, hosts: int | None = None, chips: int | None = None) -> int:
    """Trains until the last step, from the newest checkpoint in `workdir` if any.

    RUN gets config.json, metrics.jsonl, checkpoints/, the best model and results.json. The
    arguments, the result and the errors are those of `bertjax.programs.finetune.run`.
    """
    check_programs(hosts)
    check_devices(chips)
    with raise_together():
        job = SimilarityJob.of(config, workdir)
        evaluations = read_evaluations(job.recipe)
    check_same(job.facts | {f"config.dev ({each.name})": each.identity for each in evaluations})
    say(job.announcement())
    judge = StateEvaluator(job, evaluations)
    # One more checkpoint than is kept: that which is being written.
    with session(job.folder, job.trainer.experiment.state, KEPT + 1):
        state, _ = job.run(judge).train()
        step = int(state.step)
        if step < job.phase.last_step:
            say(f"stopped at step {step}, saved; the same command goes on from there")
            return EXIT_STOPPED
        say(from_first(lambda: _in_words(judge.finish())))
    say(f"{job.folder}: results.json, {MODEL_FOLDER}/")
    return 0


def read_evaluations(recipe: SimilarityRecipe) -> list[Evaluation]:
    """What a run is evaluated on: `config.dev`, or the dev files of its sources."""
    names = recipe.dev or [f"{PAIRS}:{name}" for name, _ in recipe.sources if has_dev(name)]
    return [read_evaluation(name, recipe.columns) for name in names]


def _in_words(results: dict[str, Any]) -> str:
    lines = [f"the best model is that of step {results['chosen']['step']}"]
    for name, scores in results["dev"].items():
        shown = ", ".join(f"{metric} {value:.2f}" for metric, value in scores.items())
        lines.append(f"  {name}: {shown}")
    return "\n".join(lines)
