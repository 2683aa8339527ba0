"""The similarity of a word in different texts, by the vectors of launch/extract_features.py."""

import matplotlib.image
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.inference.features.compute import Options
from bertjax.programs import compare_words
from bertjax.programs.extract_features import run as extract
from tests.helpers.closeness import assert_close

TEXTS = ["Moo moo baa.", "Baa baa (MOO), baa.", "Baa moo baa baa."]


def test_cosines_are_those_of_the_extracted_vectors(tiny_run, tmp_path, capsys):
    """The cosines equal those of numpy, from vectors minus the mean of all vectors."""
    cosines = compare_words.run(str(tiny_run), "moo", TEXTS, str(tmp_path / "moo.png"))
    rows = [line for line in capsys.readouterr().out.splitlines() if line.endswith(tuple(TEXTS))]

    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    vectors = tmp_path / "vectors.npz"
    extract(str(tiny_run), str(tmp_path / "texts.txt"), str(vectors), Options(features="words"))
    with np.load(vectors) as file:
        places = file["offsets"][:-1] + [0, 2, 1]  # the first "moo" of each text
        assert file["tokens"][places].tolist() == ["Moo", "(MOO),", "moo"]
        x = (file["features"] - file["features"].mean(0))[places].astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert_close(cosines, x @ x.T)
    shown = [[float(number) for number in row.split()[:3]] for row in rows]
    np.testing.assert_allclose(shown, cosines, atol=0.0051)
    height, width, _ = matplotlib.image.imread(tmp_path / "moo.png").shape
    assert width > height > 100


@pytest.mark.parametrize(
    "word, texts, output, message",
    [
        ("moo", TEXTS, "moo.jpg", "moo.jpg: must be a .png file"),
        ("moo", TEXTS, "nowhere/moo.png", "in an existing folder"),
        ("moo", TEXTS[:1], "moo.png", "--text: give it at least twice"),
        ("mo", TEXTS, "moo.png", "no 'mo' in 'Moo moo baa.': every --text must have"),
        ("moo", [*TEXTS, "moo " * 63], "moo.png", "65 tokens .* more than 64: shorten it"),
    ],
)
def test_bad_input(tiny_run, tmp_path, monkeypatch, word, texts, output, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        compare_words.run(str(tiny_run), word, texts, output)
    assert list(tmp_path.iterdir()) == []
