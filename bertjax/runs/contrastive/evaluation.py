"""Held-out data, and the scores on it of a model of vectors or of a reranker.

  pairs:DIR            the dev file of a source of training (`bertjax.tasks.similarity.examples`)
  similarity:FILE      pairs with a gold number (`bertjax.tasks.similarity.scored_pairs`)
  retrieval:DIR[:SPLIT]  queries, documents and judgements (`bertjax.tasks.similarity.retrieval`)

Each has a main metric, which is in percent, and greater is better.
"""

import abc
import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from bertjax.base.errors import InputError
from bertjax.runs.contrastive.vectors import PairScorer, Vectorizer, paired_similarities, search
from bertjax.tasks.similarity.choices import pair_scores, triplet_accuracy
from bertjax.tasks.similarity.examples import Columns, Example, read_dev
from bertjax.tasks.similarity.rankings import METRICS, score_run, without_queries
from bertjax.tasks.similarity.retrieval import RetrievalSet, read_retrieval
from bertjax.tasks.similarity.scored_pairs import ScoredPair, correlations, read_pairs
from bertjax.training.model import Params

PAIRS, SIMILARITY, RETRIEVAL = FORMS = ("pairs", "similarity", "retrieval")
_DEPTH = 100 + 1  # documents that are found for a query; one may be the query itself

Pairs = Sequence[tuple[str, str]]


class Comparer(Protocol):
    """A model on the devices that says how alike texts are."""

    def own(self, params: Params, pairs: Pairs, what: str) -> np.ndarray:
        """The similarity of the two texts of each pair, float32 [N]."""

    def found(
        self, params: Params, queries: Sequence[str], documents: Sequence[str], what: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best documents of each query, and their similarities, as `vectors.search`."""


class ByVectors:
    """Compares texts by their vectors."""

    def __init__(self, vectorizer: Vectorizer):
        self._vectorizer, self._name = vectorizer, vectorizer.embedding.compared_by

    def own(self, params: Params, pairs: Pairs, what: str) -> np.ndarray:
        queries, passages = (
            self._vectorizer.vectors(
                params, [pair[side] for pair in pairs], query=side == 0, what=what
            )
            for side in range(2)
        )
        return paired_similarities(queries, passages, self._name)

    def found(
        self, params: Params, queries: Sequence[str], documents: Sequence[str], what: str
    ) -> tuple[np.ndarray, np.ndarray]:
        query_vectors = self._vectorizer.vectors(params, queries, query=True, what=what)
        document_vectors = self._vectorizer.vectors(params, documents, query=False, what=what)
        return search(
            query_vectors, document_vectors, self._name, _DEPTH, self._vectorizer.placement, what
        )


class ByPairs:
    """Compares texts by a reranker."""

    def __init__(self, scorer: PairScorer):
        self._scorer = scorer

    def own(self, params: Params, pairs: Pairs, what: str) -> np.ndarray:
        return self._scorer.scores(params, pairs, what)

    def found(
        self, params: Params, queries: Sequence[str], documents: Sequence[str], what: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Raises InputError."""
        raise InputError(
            f"{what}: a reranker reads each query with each document, which takes too long for a "
            "search: give it lists of passages (pairs:DIR, with wrong ones)"
        )


@dataclasses.dataclass(frozen=True)
class Evaluation(abc.ABC):
    """Held-out data with its scores; `name` is what the user calls it."""

    name: str

    @property
    def identity(self) -> str:
        """A hash of its content."""
        return hashlib.sha256(repr(self).encode()).hexdigest()

    @property
    @abc.abstractmethod
    def main_metric(self) -> str:
        """The metric that judges a model."""

    @abc.abstractmethod
    def scores(self, comparer: Comparer, params: Params) -> dict[str, float]:
        """The metrics by name."""


@dataclasses.dataclass(frozen=True)
class _Likeness(Evaluation):  # a run in progress knows its dev data by this name
    pairs: list[ScoredPair]

    main_metric = "spearman"

    def scores(self, comparer: Comparer, params: Params) -> dict[str, float]:
        texts = [(pair.text, pair.text_b) for pair in self.pairs]
        return correlations(self.pairs, comparer.own(params, texts, self.name))


@dataclasses.dataclass(frozen=True)
class _Retrieval(Evaluation):
    collection: RetrievalSet

    main_metric = "ndcg@10"

    def scores(self, comparer: Comparer, params: Params) -> dict[str, float]:
        queries, documents = self.collection.queries, self.collection.documents
        numbers, alike = comparer.found(
            params, list(queries.values()), list(documents.values()), self.name
        )
        names = list(documents)
        run = {
            query: {names[n]: float(score) for n, score in zip(*found, strict=True)}
            for query, found in zip(queries, zip(numbers, alike, strict=True), strict=True)
        }
        judgements = self.collection.judgements
        return score_run(without_queries(run, judgements), judgements, METRICS).mean


@dataclasses.dataclass(frozen=True)
class _Lists(Evaluation):
    """Queries with right and wrong passages: grade 1 and 0, or their scores as whole numbers."""

    examples: list[Example]

    main_metric = "map"

    def scores(self, comparer: Comparer, params: Params) -> dict[str, float]:
        pairs = [(example.query, text) for example in self.examples for text in example.passages]
        alike = comparer.own(params, pairs, self.name)
        run: dict[str, dict[str, float]] = {}
        judgements: dict[str, dict[str, int]] = {}
        places = iter(zip(alike.tolist(), range(len(alike)), strict=True))
        margins: list[tuple[float, float]] = []
        for example in self.examples:
            grades = example.scores or (1.0, *(0.0 for _ in example.passages[1:]))
            own = []
            for grade in grades:
                similarity, place = next(places)
                run.setdefault(example.query, {})[str(place)] = similarity
                judgements.setdefault(example.query, {})[str(place)] = round(grade)
                own.append(similarity)
            margins += [(own[0], other) for other in own[1:]]
        found = score_run(run, judgements, ("map", "mrr", "ndcg@10", "hit_rate@1")).mean
        if margins and not self.examples[0].scores:
            found["accuracy"] = triplet_accuracy(*map(np.array, zip(*margins, strict=True)))
        return found


@dataclasses.dataclass(frozen=True)
class _Decisions(Evaluation):
    """Pairs that belong together or not."""

    examples: list[Example]

    main_metric = "average_precision"

    def scores(self, comparer: Comparer, params: Params) -> dict[str, float]:
        pairs = [(each.query, each.passages[0]) for each in self.examples]
        labels = np.array([each.scores[0] for each in self.examples])
        return pair_scores(labels, comparer.own(params, pairs, self.name))


def read_evaluation(spec: str, columns: Columns) -> Evaluation:
    """Reads held-out data of one of the forms at the top of this file."""
    form, _, source = spec.partition(":")
    form = SIMILARITY if form == "likeness" else form  # its earlier name
    if form not in FORMS or not source:
        raise InputError(
            f"{spec}: must be pairs:DIR, similarity:FILE or retrieval:DIR, such as "
            "similarity:sts_dev.tsv"
        )
    if form == SIMILARITY:
        return _Likeness(spec, read_pairs(source))
    if form == RETRIEVAL:
        return _Retrieval(spec, read_retrieval(source))
    examples = read_dev(source, columns)
    if not examples:
        raise InputError(f"{spec}: no dev file in it")
    return of_examples(spec, examples)


def of_examples(name: str, examples: list[Example]) -> Evaluation:
    """Chooses what suits examples: correlations, decisions, lists, or a search among all.

    Pairs with a score of 1 or 0 are lists if a query has two passages or more on average.
    """
    single = all(len(each.passages) == 1 for each in examples)
    scored = all(each.scores for each in examples)
    is_binary = {score for each in examples for score in each.scores} <= {0.0, 1.0}
    if single and scored and not is_binary:
        pairs = [ScoredPair(e.query, e.passages[0], e.scores[0], "") for e in examples]
        return _Likeness(name, pairs)
    if single and scored and 2 * len({each.query for each in examples}) > len(examples):
        return _Decisions(name, examples)
    if scored or not single:
        return _Lists(name, examples)
    documents = dict.fromkeys(each.passages[0] for each in examples)
    queries = dict.fromkeys(each.query for each in examples)
    of_query: dict[str, dict[str, int]] = {query: {} for query in queries}
    for each in examples:
        of_query[each.query][each.passages[0]] = 1
    texts = {query: query for query in queries}, {text: text for text in documents}
    return _Retrieval(name, RetrievalSet(*texts, of_query))
