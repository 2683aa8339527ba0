"""Scores of rankings, which are those of trec_eval, in percent.

A metric is NAME@DEPTH, which sees the first DEPTH documents of each ranking, or NAME, which sees
all:

  ndcg       normalized discounted cumulative gain; the document of rank r adds grade / log2(r + 1),
             and the ideal ranking has all judged documents (trec_eval: ndcg_cut, ndcg)
  map        average precision, divided by the number of relevant documents (map_cut, map)
  mrr        1 / the rank of the first relevant document (recip_rank)
  recall     the share of the relevant documents that are found (recall, set_recall)
  precision  the share of relevant documents among the DEPTH first, also of a ranking that is
             shorter than DEPTH (P, set_P)
  hit_rate   whether a relevant document is found (success)

A document is relevant if its grade is above 0; one without a judgement is not.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.validation import integer
from bertjax.tasks.similarity.retrieval import Judgements

Run = Mapping[str, Mapping[str, float]]  # query id -> document id -> score

METRICS = ("ndcg@10", "map@100", "mrr@10", "recall@100", "precision@10", "hit_rate@10")

# A measure gets the gains of the ranked documents down to the depth ([N], the grades, 0 for what is
# not relevant), those of all relevant documents in descending order ([R], R > 0), and the depth.
_Measure = Callable[[np.ndarray, np.ndarray, int | None], float]


class RankingScores(NamedTuple):
    """Scores in percent: the mean of each metric over all judged queries, and those by query id."""

    mean: dict[str, float]
    by_query: dict[str, dict[str, float]]


def ranking(found: Mapping[str, float]) -> list[str]:
    """The ids of the documents in id -> score, best first, in the order of trec_eval.

    Scores are compared in float32. Of equal scores, the greater id comes first. A document whose
    score is NaN counts as not found.
    """
    scores = np.array(list(found.values()), np.float32).tolist()
    ranked = [pair for pair in zip(scores, found, strict=True) if not math.isnan(pair[0])]
    return [name for _, name in sorted(ranked, reverse=True)]


def score_run(run: Run, judgements: Judgements, metrics: Iterable[str] = METRICS) -> RankingScores:
    """Scores a run as `trec_eval -c` does.

    A query without a relevant document, and one that the run lacks, counts 0. Queries without
    judgements are ignored. An unknown metric raises InputError.
    """
    parsed = {metric: _parsed(metric) for metric in metrics}
    by_query = {}
    for query, judged in judgements.items():
        grades = [judged.get(name, 0) for name in ranking(run.get(query, {}))]
        gains = np.maximum(np.array(grades, int), 0)
        ideal = np.array(sorted((g for g in judged.values() if g > 0), reverse=True), int)
        by_query[query] = {
            metric: 100 * measure(gains[:depth], ideal, depth) if ideal.size else 0.0
            for metric, (measure, depth) in parsed.items()
        }
    mean = {m: float(np.mean([scores[m] for scores in by_query.values()])) for m in parsed}
    return RankingScores(mean, by_query)


def without_queries(run: Run, judgements: Judgements) -> dict[str, dict[str, float]]:
    """A run in which no query finds itself: the document with the query's id is left out.

    In ArguAna, each query is one of the documents. BEIR leaves out that document, and so does MTEB
    (`ignore_identical_ids`). If the document is judged relevant, the ids are equal by chance, and
    it stays.
    """
    return {
        query: {
            name: score
            for name, score in found.items()
            if name != query or judgements.get(query, {}).get(name, 0) > 0
        }
        for query, found in run.items()
    }


def _parsed(metric: str) -> tuple[_Measure, int | None]:
    name, at, depth = metric.partition("@")
    cut = integer(depth) if at else None
    if name not in _MEASURES or (at and (cut or 0) < 1):
        raise InputError(f"{metric:.80}: must be one of {', '.join(_MEASURES)}, or NAME@DEPTH")
    return _MEASURES[name], cut


def _ndcg(gains: np.ndarray, ideal: np.ndarray, depth: int | None) -> float:
    return _discounted(gains) / _discounted(ideal[:depth])


def _discounted(gains: np.ndarray) -> float:
    return float(np.sum(gains / np.log2(np.arange(2, len(gains) + 2))))


def _average_precision(gains: np.ndarray, ideal: np.ndarray, depth: int | None) -> float:
    relevant = gains > 0
    precisions = np.cumsum(relevant) / np.arange(1, len(gains) + 1)
    return float(np.sum(precisions[relevant])) / len(ideal)


def _reciprocal_rank(gains: np.ndarray, ideal: np.ndarray, depth: int | None) -> float:
    return 1 / (1 + int(np.argmax(gains > 0))) if gains.any() else 0.0


def _recall(gains: np.ndarray, ideal: np.ndarray, depth: int | None) -> float:
    return np.count_nonzero(gains) / len(ideal)


def _precision(gains: np.ndarray, ideal: np.ndarray, depth: int | None) -> float:
    return np.count_nonzero(gains) / (depth or len(gains) or 1)


def _hit(gains: np.ndarray, ideal: np.ndarray, depth: int | None) -> float:
    return float(gains.any())


_MEASURES: dict[str, _Measure] = {
    "ndcg": _ndcg,
    "map": _average_precision,
    "mrr": _reciprocal_rank,
    "recall": _recall,
    "precision": _precision,
    "hit_rate": _hit,
}
