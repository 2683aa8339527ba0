"""Evaluation of a finished run."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.programs import evaluate
from bertjax.runs.source import load_run
from tests.helpers.closeness import assert_close
from tests.helpers.tiny_run import metrics_of, prepared, rows_of


@pytest.fixture
def run(tiny_run, tmp_path):
    """A copy of a finished run, without an evaluation, which a test may change."""
    evaluated = shutil.ignore_patterns("evaluation.json")
    shutil.copytree(tiny_run, tmp_path / "run", ignore=evaluated)
    return tmp_path / "run"


def test_it_gives_what_the_run_itself_measured(run, capsys):
    """Both use the same batches of held-out text, at the length of the last phase."""
    results = evaluate.run(str(run), None, batches=16)
    assert results.keys() == {"32", "64"}
    last = metrics_of(run)[-1]
    assert (last["split"], last["step"]) == ("heldout", 160)
    assert_close(results["64"], {name: last[name] for name in results["64"]})
    short = next(row for row in rows_of(run, "heldout") if row["step"] == 120)
    assert results["32"]["mlm_loss"] < short["mlm_loss"] + 0.2

    written = json.loads((run / "evaluation.json").read_text())
    assert written["step"] == 160
    assert {length: written[length] for length in results} == results
    table = capsys.readouterr().out.splitlines()
    assert table[0].startswith("step 160, held-out text of ")
    assert table[1].split() == [
        *("length", "mlm_loss", "mlm_perplexity", "mlm_accuracy", "nsp_loss", "nsp_accuracy")
    ]
    assert table[0].endswith(", 128 sequences of each length")
    assert [line.split()[0] for line in table[2:]] == ["32", "64"]
    assert float(table[3].split()[1]) == pytest.approx(results["64"]["mlm_loss"], abs=1e-4)
    accuracy = results["64"]["nsp_accuracy"]
    error = (accuracy * (1 - accuracy) / 128) ** 0.5
    assert table[3].endswith(f" {accuracy:.4f} ± {error:.4f}")


def test_a_head_that_answers_always_the_same(run, monkeypatch, capsys):
    loaded = load_run(str(run))
    head = {"kernel": np.zeros((32, 2), np.float32), "bias": np.array([0, 1], np.float32)}
    same = dataclasses.replace(loaded, params=dict(loaded.params) | {"next_sentence_head": head})
    monkeypatch.setattr(evaluate, "load_run", lambda model: same)
    results = evaluate.run(str(run), None, batches=2)
    assert results["32"]["nsp_random_answers"] == results["64"]["nsp_random_answers"] == 1
    printed = capsys.readouterr().out.splitlines()[4:]
    assert [line.partition(":")[0] for line in printed] == ["length 32", "length 64"]
    assert all("the next-sentence head answers 'B is random' always" in line for line in printed)


def test_another_corpus_of_the_same_vocabulary(run, tiny_corpus, tmp_path):
    """The loss is higher, because this text has words in random order."""
    words = [line for line in (tiny_corpus / "vocab.txt").read_text().split() if line.isalpha()]
    words = [word for word in words if len(word) > 2] * 8
    documents = [" ".join(words[n::7]) + "." for n in range(7)] * 6
    text = "\n\n".join(f"{d} {n}" for n, d in enumerate(documents))
    mixed = prepared(tmp_path, text, vocabulary=tiny_corpus / "vocab.txt", held_out=0.3)
    own = evaluate.run(str(run), None, batches=2)
    other = evaluate.run(str(run), str(mixed), batches=2)
    assert other["32"]["mlm_loss"] > own["32"]["mlm_loss"] + 1
    written = json.loads((run / "evaluation.json").read_text())
    assert written["corpus"] == [str(mixed)]


@pytest.mark.slow
def test_a_run_without_next_sentence(left_to_right_run, tmp_path, capsys):
    shutil.copytree(left_to_right_run, tmp_path / "run")
    results = evaluate.run(str(tmp_path / "run"), None, batches=1)
    assert "nsp_loss" not in results["32"]
    assert "nsp" not in capsys.readouterr().out


def test_a_corpus_of_another_vocabulary(run, tiny_corpus, tmp_path):
    text = (tiny_corpus.parent / "text.txt").read_text().replace("quack", "bark")
    with pytest.raises(InputError, match="built with another tokenizer"):
        evaluate.run(str(run), str(prepared(tmp_path, text)), batches=1)
    assert not (run / "evaluation.json").exists()
