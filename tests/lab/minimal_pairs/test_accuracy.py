"""Accuracy by name and over all, with standard errors, and the published figures of BLiMP."""

import json
import math
from collections import defaultdict

import numpy as np
import pytest

from bertjax.lab.minimal_pairs.accuracy import Accuracy, by_name, judged, over_pairs, over_paradigms


def test_a_tie_counts_half():
    good = np.array([-3.0, -5.5, -2.0, -1.0])
    bad = np.array([-4.0, -5.5, -1.0, -1.0 - 1e-12])
    assert judged(good, bad).tolist() == [1, 0.5, 0, 1]
    equal = np.full(7, -9.0)
    assert over_pairs(judged(equal, equal)) == Accuracy(50.0, 0.0, 7)


def test_standard_errors():
    """Without ties they are those of the binomial distribution."""
    right = np.array([1.0] * 3 + [0.0] * 4)
    share = 3 / 7
    assert over_pairs(right).stderr == pytest.approx(100 * math.sqrt(share * (1 - share) / 7))
    halves = np.array([1.0, 0.5, 0.0, 0.5, 0.5])
    assert over_pairs(halves) == Accuracy(50.0, pytest.approx(100 * math.sqrt(0.1 / 5)), 5)
    assert over_pairs(right[:1]) == Accuracy(100.0, None, 1)


def test_names_and_paradigms():
    right = np.array([1.0, 0.0, 0.5, 1.0, 1.0, 0.0])
    found = by_name(right, ["b", "a", "b", "", "a", "a"])
    assert list(found) == ["b", "a"]
    assert found["a"] == over_pairs(np.array([0.0, 1.0, 0.0]))
    assert found["b"] == over_pairs(np.array([1.0, 0.5]))
    overall = over_paradigms(found)
    assert overall.accuracy == pytest.approx((75 + 100 / 3) / 2)
    assert overall.stderr == pytest.approx(math.hypot(found["a"].stderr, found["b"].stderr) / 2)
    assert overall.pairs == 5
    one = {"c": Accuracy(100.0, None, 1)}
    assert over_paradigms(found | one) == Accuracy(pytest.approx((75 + 400 / 3) / 3), None, 6)


@pytest.mark.parametrize(
    "model, published", [("ngram", 0.612), ("lstm", 0.698), ("txl", 0.696), ("gpt2", 0.830)]
)
def test_published_figures_of_blimp(shared_data, model, published):
    """Each paradigm has 1,000 pairs; the file has the means by phenomenon and over all, too."""
    lines = (shared_data / "blimp/models_summary.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    means = {row["linguistics_term"]: row[model] for row in rows if row["UID"] == "overall"}
    right, uids, terms = [], [], []
    for row in (row for row in rows if row["UID"] != "overall"):
        count = round(1000 * row[model])
        right += [1.0] * count + [0.0] * (1000 - count)
        uids += [row["UID"]] * 1000
        terms += [row["linguistics_term"]] * 1000
    right = np.array(right)
    overall = over_paradigms(by_name(right, uids))
    assert overall.pairs == 67_000
    assert round(overall.accuracy / 100, 3) == pytest.approx(published, abs=1e-3)
    found = {name: each.accuracy / 100 for name, each in by_name(right, terms).items()}
    assert found | {"overall": overall.accuracy / 100} == pytest.approx(means)


def test_phenomena_of_blimp_are_those_of_its_paper(shared_data):
    """The data file and the file of published figures have the same paradigms and phenomena."""
    from bertjax.lab.minimal_pairs.data import read_pairs

    lines = (shared_data / "blimp/models_summary.jsonl").read_text().splitlines()
    published = {(row["UID"], row["linguistics_term"]) for row in map(json.loads, lines)}
    pairs = read_pairs(str(shared_data / "blimp/blimp.jsonl.xz"))
    assert len(pairs) == 67_000
    assert {(p.uid, p.term) for p in pairs} == {p for p in published if p[0] != "overall"}
    fields = defaultdict(int)
    for pair in pairs:
        fields[pair.field] += 1
    assert dict(fields) == {
        "syntax": 26_000,
        "morphology": 18_000,
        "syntax/semantics": 14_000,
        "semantics": 9_000,
    }
