"""Scores of rankings, by hand and next to trec_eval."""

from math import log2

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.tasks.similarity.rankings import ranking, score_run, without_queries

JUDGEMENTS = {
    "q": {"a": 3, "b": 1, "c": 2, "d": 0, "e": -1},
    "nothing relevant": {"a": 0},
    "not in the run": {"b": 1},
}
# The order is x (not judged), c, e, a, d.
RUN = {
    "q": {"a": 0.5, "c": 2.0, "d": -1.0, "x": 7.0, "e": 0.75},
    "nothing relevant": {"a": 1.0},
    "not judged": {"a": 1.0},
}


def test_by_hand():
    expected = {
        "ndcg": (2 / log2(3) + 3 / log2(5)) / (3 + 2 / log2(3) + 1 / 2),
        "ndcg@3": (2 / log2(3)) / (3 + 2 / log2(3) + 1 / 2),
        "ndcg@2": (2 / log2(3)) / (3 + 2 / log2(3)),
        "ndcg@1": 0,
        "map": (1 / 2 + 2 / 4) / 3,
        "map@3": (1 / 2) / 3,
        "map@2": (1 / 2) / 3,
        "mrr": 1 / 2,
        "mrr@1": 0,
        "recall@2": 1 / 3,
        "recall": 2 / 3,
        "precision@4": 2 / 4,
        "precision@10": 2 / 10,
        "precision": 2 / 5,
        "hit_rate@1": 0,
        "hit_rate@2": 1,
    }
    found = score_run(RUN, JUDGEMENTS, expected)
    assert found.by_query.keys() == JUDGEMENTS.keys()
    assert found.by_query["q"] == pytest.approx({m: 100 * each for m, each in expected.items()})
    for query in ("nothing relevant", "not in the run"):
        assert found.by_query[query] == dict.fromkeys(expected, 0)
    assert found.mean == pytest.approx({m: 100 * each / 3 for m, each in expected.items()})


def test_the_default_metrics():
    mean = score_run({"q": {"a": 1.0}}, {"q": {"a": 2, "b": 1}}).mean
    assert mean == {
        "ndcg@10": pytest.approx(100 * 2 / (2 + 1 / log2(3))),
        **{"map@100": 50, "mrr@10": 100, "recall@100": 50, "precision@10": 10, "hit_rate@10": 100},
    }


def test_the_document_that_is_the_query_is_left_out():
    """By its id; a document with the same id that is judged relevant is another text."""
    run = {
        "a": {"a": 3.0, "b": 2.0, "c": 1.0},
        "b": {"b": 2.0, "a": 1.0},
        "c": {"d": 1.0, "c": 2.0},
    }
    judgements = {"a": {"b": 1, "a": 0}, "b": {"b": 2}}
    left = {"a": {"b": 2.0, "c": 1.0}, "b": {"b": 2.0, "a": 1.0}, "c": {"d": 1.0}}
    assert without_queries(run, judgements) == left
    assert score_run(run, judgements, ["ndcg@10"]).mean == {
        "ndcg@10": pytest.approx(100 * (1 / log2(3) + 1) / 2)
    }
    assert score_run(left, judgements, ["ndcg@10"]).mean == {"ndcg@10": 100}


def test_ties_go_to_the_greater_id():
    assert ranking({"9": 1.0, "10": 1.0, "é": 1.0, "a": 1.0, "z": 2.0}) == [
        "z",
        "é",
        "a",
        "9",
        "10",
    ]
    assert ranking({"b": 1.0, "a": 1 + 1e-9}) == ["b", "a"]  # equal in float32
    assert ranking({"b": 1.0, "a": 1 + 1e-6}) == ["a", "b"]
    assert ranking({"a": 1.0, "b": float("nan"), "c": -np.inf}) == ["a", "c"]
    assert ranking({}) == []


@pytest.mark.parametrize(
    "metric", ["ndgc@10", "ndcg@", "ndcg@0", "ndcg@-1", "ndcg@x", "", "ndcg@" + "9" * 5000]
)
def test_an_unknown_metric(metric):
    with pytest.raises(
        InputError, match=f"^{metric[:80]}: must be one of ndcg, map, mrr, recall, "
    ):
        score_run(RUN, JUDGEMENTS, ["map", metric])


CUTS = (1, 3, 7, 10, 50)
PEERS = {
    "ndcg": ("ndcg", "ndcg_cut"),
    "map": ("map", "map_cut"),
    "recall": ("set_recall", "recall"),
    "precision": ("set_P", "P"),
    "hit_rate": ("", "success"),
    "mrr": ("recip_rank", ""),
}


@pytest.mark.needs("pytrec_eval")
@pytest.mark.parametrize("seed", range(3))
def test_as_trec_eval(seed):
    """With ties, negative grades, documents that are not judged, and judged ones not found."""
    import pytrec_eval

    rng = np.random.default_rng(seed)
    names = [f"{prefix}{number}" for prefix in "dDé" for number in range(17)]
    judgements, with_queries = {}, {}
    own = rng.choice(names, 9, replace=False).tolist()  # queries that are documents, too
    for query in [*map(str, range(22)), *own]:
        judged = rng.choice(names, rng.integers(1, 24), replace=False).tolist()
        # pytrec_eval crashes if the highest grade of a query is below -1.
        judgements[query] = {name: int(rng.integers(-1, 4)) for name in judged if name != query}
        found = rng.choice(names, rng.integers(1, 43), replace=False).tolist()
        scores = rng.integers(0, 9, len(found)) / 7 + rng.choice([0, 1e-9], len(found))
        with_queries[query] = dict(zip(found, scores.tolist(), strict=True))
    reference = {}  # our name -> theirs
    for name, (whole, cut) in PEERS.items():
        reference |= {name: whole} if whole else {}
        reference |= {f"{name}@{depth}": f"{cut}_{depth}" for depth in CUTS if cut}
    depths = ",".join(map(str, CUTS))
    wanted = {whole for whole, _ in PEERS.values() if whole}
    wanted |= {f"{cut}.{depths}" for _, cut in PEERS.values() if cut}
    run = without_queries(with_queries, judgements)
    # What `EvaluateRetrieval.evaluate` of BEIR does before pytrec_eval.
    assert run == {q: {n: s for n, s in each.items() if n != q} for q, each in with_queries.items()}
    peer = pytrec_eval.RelevanceEvaluator(judgements, wanted).evaluate(run)
    found = score_run(run, judgements, reference)
    for query, scores in found.by_query.items():
        expected = {name: 100 * peer[query][their] for name, their in reference.items()}
        assert scores == pytest.approx(expected, abs=1e-9, rel=0), query
    for name, their in reference.items():
        mean = 100 * np.mean([each[their] for each in peer.values()])
        assert found.mean[name] == pytest.approx(mean, abs=1e-9, rel=0)
    # trec_eval has no reciprocal rank at a depth: it gets the first documents only.
    cut_run = {q: {n: run[q][n] for n in ranking(run[q])[:3]} for q in run}
    peer = pytrec_eval.RelevanceEvaluator(judgements, {"recip_rank"}).evaluate(cut_run)
    for query, scores in score_run(run, judgements, ["mrr@3"]).by_query.items():
        assert scores["mrr@3"] == pytest.approx(100 * peer[query]["recip_rank"], abs=1e-9, rel=0)
