"""BERT's published answers on agreement (Goldberg, arXiv 1901.05287), over the pairs read here."""

import ast
import lzma

import numpy as np
import pytest

from bertjax.lab.minimal_pairs.accuracy import by_name, judged, over_pairs
from bertjax.lab.minimal_pairs.data import read_pairs


@pytest.mark.parametrize(
    "size, published, by_attractors",
    [("base", 0.83, (0.84, 0.81, 0.89)), ("large", 0.80, (0.80, 0.75, 0.89))],
)
def test_answers_of_bert(shared_data, size, published, by_attractors):
    """The published table leaves out "is" and "are", and verbs that the vocabulary lacks."""
    folder = shared_data / "bert-syntax"
    pairs = read_pairs(str(folder / "generated.tab.xz"))
    text = lzma.open(folder / f"gulordava_results_{size}.txt.xz", "rt", encoding="utf-8").read()
    lines = text.splitlines()[1:]  # the first one is a warning of a library
    assert len(lines) == len(pairs) == 410

    kept, good, bad = [], [], []
    for pair, line in zip(pairs, lines, strict=True):
        if line.startswith("skipping "):
            continue
        _, _, right, of_right, wrong, of_wrong, masked = line.split("\t")
        before, after = ast.literal_eval(masked).decode().split("***mask***")
        assert pair.good.lower() == f"{before}{right}{after}"
        assert pair.bad.lower() == f"{before}{wrong}{after}"
        kept.append(pair)
        good.append(float(of_right))
        bad.append(float(of_wrong))
    outcomes = judged(np.array(good), np.array(bad))
    assert over_pairs(outcomes).pairs == 383
    assert round(over_pairs(outcomes).accuracy / 100, 2) == published
    found = by_name(outcomes, [pair.term for pair in kept])
    shares = tuple(round(found[f"attractors_{n}"].accuracy / 100, 2) for n in range(3))
    assert shares == by_attractors
    assert found["attractors_1"].pairs == 63
    assert by_name(outcomes, [pair.uid for pair in kept])["agreement_original"].accuracy == 100
