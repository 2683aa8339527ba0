"""Paths that were renamed."""

import pytest

from bertjax.base.renames import renamed, reverse

PAIRS = {"net/*/inner/out": "net/*/out", "lm/head/dense": "lm/transform", "lm/head": "lm/first"}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("net/layer_11/inner/out/kernel", "net/layer_11/out/kernel"),
        ("generator/net/a/inner/out", "generator/net/a/out"),
        ("lm/head/dense/kernel", "lm/transform/kernel"),
        ("part/lm/head", "part/lm/first"),
    ],
)
def test_there_and_back(before, now):
    assert renamed(before, PAIRS) == renamed(now, PAIRS) == now
    assert renamed(now, reverse(PAIRS)) == renamed(before, reverse(PAIRS)) == before


@pytest.mark.parametrize(
    "path", ["net/inner/out", "net/a/b/inner/out", "a_net/a/inner/out", "lm/head_0", "", "head"]
)
def test_other_paths_stay(path):
    assert renamed(path, PAIRS) == path
