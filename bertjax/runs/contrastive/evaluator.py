"""Scores of a model while it trains, and the best one so far, in the run's folder."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from bertjax.base.files import replaced_folder, write_json
from bertjax.interop.peft import write_trained
from bertjax.models.heads.embedding import Embedding
from bertjax.runs.contrastive.evaluation import ByPairs, ByVectors, Comparer, Evaluation
from bertjax.runs.contrastive.job import SimilarityJob
from bertjax.runs.contrastive.vectors import PairScorer, Vectorizer
from bertjax.runs.run_folder import MODEL_FOLDER, RESULTS_FILE
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.metrics_log import JUDGED, METRICS_FILE, read_metrics
from bertjax.training.model import Model
from bertjax.training.sharding.hosts import host_index
from bertjax.training.sharding.placement import Placement
from bertjax.training.state import TrainState


def comparer_of(
    embedding: Embedding | None,
    model: Model,
    tokenizer: Tokenizer,
    longest: int,
    placement: Placement,
    batch_tokens: int | None = None,
) -> Comparer:
    """Makes a model of vectors, or a reranker, compare texts of at most `longest` tokens."""
    how = tokenizer, longest, placement, batch_tokens
    if embedding is None:
        return ByPairs(PairScorer(model, *how))
    return ByVectors(Vectorizer(model, embedding, *how))


class StateEvaluator:
    """Evaluates the states of a run; keeps the best model, by the first evaluation's main metric.

    With no evaluations, the last model is the best.
    """

    def __init__(self, job: SimilarityJob, evaluations: Sequence[Evaluation]):
        self._job, self._evaluations = job, evaluations
        experiment, recipe = job.trainer.experiment, job.recipe
        self._comparer = comparer_of(
            recipe.embedding,
            experiment.model,
            job.pretrained.tokenizer,
            recipe.length or job.spec.max_position_embeddings,
            experiment.placement,
            recipe.batch_tokens,
        )

    @property
    def main_metric(self) -> str:
        """The metric that chooses the best model; "": none does."""
        if not self._evaluations:
            return ""
        first = self._evaluations[0]
        return _named(first, first.main_metric)

    def __call__(self, state: TrainState) -> dict[str, float]:
        """The metrics of a state, on all processes; stores the model if it is the best so far."""
        experiment, step = self._job.trainer.experiment, int(state.step)
        params = state.evaluated()
        used = jax.tree.map(lambda leaf: leaf.sharding, experiment.used)
        with experiment.placement.active():
            on_devices = self._job.all_params(jax.device_put(params, used))
            found = {
                _named(each, name): value
                for each in self._evaluations
                for name, value in each.scores(self._comparer, on_devices).items()
            }
        on_host = experiment.placement.on_host(self._job.all_params(params))
        if host_index() == 0 and self._is_best(step, found):
            with replaced_folder(self._job.folder / MODEL_FOLDER) as folder:
                write_trained(self._job.packed(on_host), folder)
        return found

    def _is_best(self, step: int, found: Mapping[str, float]) -> bool:
        if not self.main_metric:
            return True
        earlier = [row[self.main_metric] for row in self.rows() if row["step"] < step]
        return found[self.main_metric] > max(earlier, default=-math.inf)

    def rows(self) -> list[dict[str, Any]]:
        """The evaluations so far."""
        path = self._job.folder
        rows = read_metrics(path) if (path / METRICS_FILE).exists() else []
        return [row for row in rows if row["split"] == JUDGED]

    def finish(self) -> dict[str, Any]:
        """Writes results.json with the scores of the best model, and returns its content."""
        recipe, rows = self._job.recipe, self.rows()
        best = max(rows, key=lambda row: (row[self.main_metric], -row["step"])) if rows else {}
        step = best.get("step", self._job.phase.last_step)
        scores: dict[str, dict[str, float]] = {}
        for evaluation in self._evaluations:
            begin = _named(evaluation, "")
            own = {n.removeprefix(begin): v for n, v in best.items() if n.startswith(begin)}
            scores[evaluation.name] = own
        results = {
            "task": recipe.config_dict["task"]["kind"],
            "metric": self.main_metric,
            "init_from": recipe.init_from,
            "dev": scores,
            "settings": {},
            "degenerate": "",
            "chosen": {"step": step, "batch_tokens": self._job.phase.tokens},
            "summary": [],
            "trials": [],
        }
        write_json(self._job.folder / RESULTS_FILE, results)
        return results


def _named(evaluation: Evaluation, metric: str) -> str:
    return f"{evaluation.name} {metric}"
