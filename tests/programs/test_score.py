"""What a run knows of grammar: the report, its file, and the errors before anything is computed."""

import json
import math

import pytest

from bertjax.base.errors import InputError
from bertjax.programs import score
from tests.helpers.task_files import write_minimal_pairs


@pytest.fixture
def data(tmp_path):
    """14 pairs of BLiMP's form, and a pair of equal sentences in a file without names."""
    (tmp_path / "pairs").mkdir()
    write_minimal_pairs(tmp_path / "pairs" / "words.jsonl")
    equal = {"sentence_good": "Moo moo.", "sentence_bad": "moo moo."}
    (tmp_path / "pairs" / "equal.jsonl").write_text(json.dumps(equal))
    return str(tmp_path / "pairs")


@pytest.mark.parametrize("name, masking", [("tiny_run", "word"), ("left_to_right_run", "token")])
def test_a_run_knows_its_language(request, data, tmp_path, capsys, name, masking):
    """Another word in a sentence that repeats one word is found; the equal sentences are a tie."""
    run, output = str(request.getfixturevalue(name)), tmp_path / "scores.json"
    result = score.run(run, data, masking, output=str(output))
    assert json.loads(output.read_text()) == result
    causal = name == "left_to_right_run"
    expected = {"model": run, "data": data, "masking": None if causal else masking, "most": None}
    assert result.items() >= expected.items() and result["pairs"] == 15
    right = {"accuracy": 100.0, "stderr": 0.0}
    assert result["paradigms"] == {
        "equal": {"accuracy": 50.0, "stderr": None, "pairs": 1},
        "seven_words": right | {"pairs": 5},
        "four_words": right | {"pairs": 9},
    }
    assert result["phenomena"] == {"repetition": right | {"pairs": 14}}
    assert result["fields"] == {"syntax": right | {"pairs": 14}}
    overall = {"accuracy": pytest.approx(250 / 3), "stderr": None, "pairs": 15}
    assert result["overall"] == overall
    assert result["over_pairs"]["accuracy"] == pytest.approx(100 * 14.5 / 15)
    deviation = math.sqrt((14 * (0.5 / 15) ** 2 + (14.5 / 15 - 0.5) ** 2) / 15)
    assert result["over_pairs"]["stderr"] == pytest.approx(100 * deviation / math.sqrt(15))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[-4:] == [
        ["equal", "50.0", "1"],
        ["repetition", "100.0", "±", "0.0", "14"],
        ["mean", "over", "3", "paradigms", "83.3", "15"],
        ["mean", "over", "pairs", "96.7", "±", f"{100 * deviation / math.sqrt(15):.1f}", "15"],
    ]


def test_the_first_pairs_of_each_paradigm(tiny_run, data):
    found = score.run(str(tiny_run), data, most=2)
    assert {name: each["pairs"] for name, each in found["paradigms"].items()} == {
        "equal": 1,
        "seven_words": 2,
        "four_words": 2,
    }
    assert (found["most"], found["pairs"]) == (2, 5)


def test_bad_input(tiny_run, data, tmp_path):
    long = {"sentence_good": "Moo.", "sentence_bad": "moo " * 63}
    (tmp_path / "long.jsonl").write_text(json.dumps(long))
    (tmp_path / "folder.json").mkdir()
    output = str(tmp_path / "scores.json")
    for arguments, message in (
        ({"most": 0}, "--most=0: must be at least 1"),
        ({"most": 2**31}, "--most=2147483648: must be at most 2,147,483,647"),
        *(
            (
                {"output": str(tmp_path / name)},
                f"{name}: must be a .json file in an existing folder",
            )
            for name in ("nowhere/scores.json", "scores.txt", "folder.json")
        ),
        ({"part": "causal"}, "--part=causal: the parts of .* are: none: leave it out"),
        (
            {"part": "causal", "model": "hf:none"},
            "--part=causal: hf:none is no run of pre-training: leave it out",
        ),
        ({"masking": "words"}, "--masking=words: must be one of token, word"),
        ({"data": str(tmp_path / "nothing.jsonl")}, "no file or folder .*nothing.jsonl"),
        (
            {"data": str(tmp_path / "long.jsonl")},
            "long.jsonl line 1: 63 tokens, and the model takes 62: shorten it",
        ),
    ):
        options = {"model": str(tiny_run), "data": data, "output": output} | arguments
        with pytest.raises(InputError, match=message):
            score.run(**options)
    assert not (tmp_path / "scores.json").exists()
