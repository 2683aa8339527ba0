"""Transformer-XL through every program: its memory is saved, and stays in evaluation."""

import shutil

import pytest

from bertjax.base.errors import InputError
from bertjax.programs import complete, convert, evaluate, perplexity, pretrain
from bertjax.runs.source import open_model
from tests.helpers.stopped import assert_goes_on_exactly
from tests.helpers.tiny_run import corpus_once, rows_of, tiny_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus():
    """Its tokens are bytes, as those of enwik8."""
    return corpus_once("bytes_corpus", learn_vocabulary=257, tokenizer="gpt2")


def _config(corpus, **changes):
    phases = {"phase_1": {"share": 1.0, "batch_size": 8}, "phase_2": {"share": 0.0}}
    phases["phase_2"]["batch_size"] = 8
    settings = dict(
        objective=dict(name="left_to_right", text="continued", memory=48),
        model=dict(encoder="transfo-xl", size="tiny", hidden_act="relu"),
        short_probability=0.0,
        total_steps=24,
    )
    return tiny_config(corpus, **settings | phases | changes)


@pytest.fixture(scope="module")
def run(corpus, pretrained_once):
    """A finished run; do not write into it."""
    return pretrained_once("transformer_xl_run", _config(corpus))


def test_it_learns_and_is_evaluated(run, tmp_path):
    rows = rows_of(run, "train")
    assert rows[-1]["mlm_loss"] < 0.8 * rows[0]["mlm_loss"]
    figures = evaluate.run(str(shutil.copytree(run, tmp_path / "run")), None, 2)
    assert figures["32"]["mlm_loss"] < rows[0]["mlm_loss"]
    assert open_model(str(run)).spec.encoder == "transfo-xl"


def test_a_stopped_run_goes_on_to_the_same_end(run, corpus, tmp_path):
    """With the memory of the update at which it was stopped."""
    assert_goes_on_exactly(_config(corpus), run, tmp_path / "run")


def test_without_its_memory_it_is_another_run(corpus, run, tmp_path):
    config = _config(corpus, objective=dict(name="left_to_right", text="continued"))
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    losses = [rows_of(each, "train")[-1]["mlm_loss"] for each in (tmp_path / "run", run)]
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], rel=0.3)


def test_perplexity_with_its_memory_or_another(run):
    """The nearer of the tokens before say more than none."""
    of_run = perplexity.run(str(run), None, 16)
    assert (of_run["memory"], of_run["length"]) == (48, 17)
    assert perplexity.run(str(run), None, 16, memory=48) == of_run
    values = [perplexity.run(str(run), None, 16, memory=n)["perplexity"] for n in (1, 16, 300)]
    assert values[0] > values[1] and len({of_run["perplexity"], *values}) == 4


def test_it_goes_on_with_a_text(run):
    (found,) = complete.run(str(run), ["Moo"], 4)
    assert found.startswith("Moo") and len(found) > 3


def test_what_it_is_not_for(run, tmp_path):
    with pytest.raises(InputError, match="transformers has no such model as this transfo-xl"):
        convert.run(str(run), f"hf:{tmp_path / 'exported'}")
