"""Probes of a run: the vectors of words, the report with its pictures, and the errors."""

import json

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.inference.features.compute import Extractor, Options
from bertjax.inference.features.texts import WORDS
from bertjax.lab.probes.trees import read_trees
from bertjax.lab.probes.vectors import decayed, encoded, with_random_layers, word_vectors
from bertjax.programs import probe
from bertjax.runs.source import open_model
from tests.helpers.conllu import conllu
from tests.helpers.tiny_run import SOUNDS


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sentences of 3 to 9 words, in which each word hangs on the one before it."""
    folder = tmp_path_factory.mktemp("trees")
    random = np.random.default_rng(0)
    for split, number in (("train", 30), ("dev", 10), ("test", 10)):
        sentences = []
        for _ in range(number):
            n = int(random.integers(3, 10))
            words = [*random.choice(SOUNDS, n - 1), "."]
            sentences.append(conllu(words, range(n), punctuation=[n - 1]))
        (folder / f"x-{split}.conllu").write_text("".join(sentences))
    return folder


def test_the_vectors_of_words(tiny_run, data, tmp_path):
    """They are the means over a word's pieces, of each layer, also where a word has a space."""
    trees = read_trees(data / "x-test.conllu")[:3]
    trees[1].words[0] = "moo meow"
    pretrained = open_model(str(tiny_run))
    extractor = Extractor(pretrained, Options(features=WORDS, layers=(0, 1)))
    texts = encoded(trees, extractor, longest=64).texts
    found = word_vectors(texts, extractor, tmp_path / "vectors")
    assert found.shape == (2, sum(len(tree.words) for tree in trees), pretrained.spec.hidden_size)
    text = " ".join(["moomeow", *trees[1].words[1:]])
    from bertjax.base.progress import Progress

    with Progress("", 1, "") as progress:
        (alone,) = extractor.vectors(list(extractor.encoder.encode([text])), progress)
    first = len(trees[0].words)
    own = found[:, first : first + len(trees[1].words)]
    np.testing.assert_allclose(np.concatenate(own, -1), alone, atol=2e-3)

    mean = decayed(trees, found[0])
    n = len(trees[0].words)
    weights = np.array([0.5**k for k in range(n)])
    np.testing.assert_allclose(mean[0], weights @ found[0, :n] / weights.sum(), atol=1e-3)

    initial = with_random_layers(pretrained, seed=0)
    other = word_vectors(texts, Extractor(initial, extractor.options), tmp_path / "fresh")
    np.testing.assert_array_equal(other[0], found[0])
    assert np.abs(np.asarray(other[1], np.float32) - found[1]).max() > 0.1


@pytest.mark.slow
def test_the_report(tiny_run, data, tmp_path, capsys):
    output = tmp_path / "probe.json"
    report = probe.run(str(tiny_run), str(data), layers=[0, 1], ranks=[5], output=str(output))
    assert json.loads(output.read_text()) == report
    assert report["sentences"] == {"train": 30, "dev": 10, "test": 10}
    names = ["words in a chain", "layer 0, rank 5", "layer 1, rank 5"]
    assert list(report["probes"]) == [*names, "decayed embeddings", "random layers"]
    chain = report["probes"]["words in a chain"]
    assert {name: chain[name] for name in ("UUAS", "DSpr", "root", "NSpr")} == pytest.approx(
        {"UUAS": 100, "DSpr": 1, "root": 100, "NSpr": 1}
    )
    for scores in report["probes"].values():
        assert 0 <= scores["UUAS"] <= 100 and -1 <= scores["DSpr"] <= 1
    rows = capsys.readouterr().out.splitlines()[-5:]
    assert rows[0].split() == ["words", "in", "a", "chain", "100.0", "1.000", "100.0", "1.000"]
    for picture in ("probe-layers.png", "probe-trees.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


def test_the_errors(tiny_run, data, tmp_path):
    def error(*arguments, **options):
        with pytest.raises(InputError) as caught:
            probe.run(str(tiny_run), *arguments, **options)
        return str(caught.value)

    assert "--rank=33: must be from 1 to 32" in error(str(data), ranks=[33])
    assert "layers: 2 must be from 0" in error(str(data), layers=[2])
    assert "--output=x.txt: must be a .json file" in error(str(data), output="x.txt")
    (tmp_path / "a-train.conllu").write_text((data / "x-train.conllu").read_text())
    assert "needs one *dev*.conllu file, and has none" in error(str(tmp_path))
