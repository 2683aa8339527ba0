"""XLNet through every program: from its own vocabulary to transformers' classes."""

import json
import shutil

import pytest

from bertjax.base.errors import InputError
from bertjax.inference.blanks import fill
from bertjax.models.encoders import head_types
from bertjax.programs import convert, evaluate, finetune, predict, pretrain
from bertjax.runs import same_text
from bertjax.runs.source import open_model
from tests.helpers.closeness import LOGITS, assert_close, rounding
from tests.helpers.stopped import assert_goes_on_exactly
from tests.helpers.task_files import FAMILIES, tiny_finetuning
from tests.helpers.tiny_run import corpus_once, metrics_of, rows_of, tiny_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus():
    return corpus_once("xlnet_corpus", learn_vocabulary=60, tokenizer="xlnet")


def _config(corpus, **changes):
    phases = {"phase_1": {"share": 1.0, "batch_size": 8}, "phase_2": {"share": 0.0}}
    phases["phase_2"]["batch_size"] = 8
    objective = dict(name="permutation", reuse=16, memory=16)
    model = dict(encoder="xlnet", size="tiny", max_position_embeddings=128)
    return tiny_config(
        corpus,
        **dict(objective=objective, model=model, short_probability=0.0, total_steps=24)
        | phases
        | changes,
    )


@pytest.fixture(scope="module")
def run(corpus, pretrained_once):
    """A finished run; do not write into it."""
    return pretrained_once("xlnet_run", _config(corpus))


def test_it_learns_and_is_evaluated(run, corpus, tmp_path):
    rows = rows_of(run, "train")
    assert rows[-1]["mlm_loss"] < 0.8 * rows[0]["mlm_loss"]
    assert rows[0].keys() >= {"early_loss", "middle_loss", "late_loss"}
    figures = evaluate.run(str(shutil.copytree(run, tmp_path / "run")), None, 2)
    assert figures["32"]["mlm_loss"] < rows[0]["mlm_loss"]
    ((guesses,),) = fill(open_model(str(run)), ["moo [MASK] moo"], 60)
    assert_close(sum(guess.probability for guess in guesses), 1.0)
    masked = same_text.evaluate(open_model(str(run)), str(corpus))
    assert masked["mlm_loss"] < rows[0]["mlm_loss"]


def test_a_stopped_run_goes_on_to_the_same_end(run, corpus, tmp_path):
    """With the memory of the update at which it was stopped."""
    assert_goes_on_exactly(_config(corpus), run, tmp_path / "run")


def test_it_is_exported_and_goes_on_from_there(run, corpus, tmp_path):
    source = f"hf:{tmp_path / 'exported'}"
    assert max(convert.run(str(run), source).values()) < rounding(LOGITS)
    pretrained = open_model(source)
    assert pretrained.head_type == head_types.PERMUTATION_LM
    assert pretrained.tokenizer.template == open_model(str(run)).tokenizer.template
    written = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert written["architectures"] == ["XLNetLMHeadModel"]
    said = json.loads((tmp_path / "exported" / "tokenizer_config.json").read_text())
    assert said["padding_side"] == "left"
    assert pretrain.run(_config(corpus, init_from=source), str(tmp_path / "again")) == 0
    rows = metrics_of(tmp_path / "again")
    assert rows[0]["mlm_loss"] < 0.9 * metrics_of(run)[0]["mlm_loss"]


@pytest.mark.parametrize("task", ["CoLA", "NER", "SQuAD 1.1", "SWAG"])
def test_fine_tuned_it_predicts_and_is_exported(task, run, tmp_path):
    family = FAMILIES[task]
    family.write(tmp_path / "data")
    config = tiny_finetuning(run, tmp_path / "data", task=family.task)
    assert finetune.run(config, str(tmp_path / "tuned")) == 0
    if task in ("CoLA", "NER"):
        (tmp_path / "lines.txt").write_text("baa baa moo\nquack\n")
        predict.run(str(tmp_path / "tuned"), str(tmp_path / "lines.txt"), str(tmp_path / "out"))
        assert len((tmp_path / "out").read_text().splitlines()) == 2
    found = convert.run(str(tmp_path / "tuned"), f"hf:{tmp_path / 'exported'}")
    assert max(found.values()) < rounding(LOGITS)


def test_other_text_is_refused(tiny_corpus, tmp_path):
    with pytest.raises(InputError, match="special tokens before the text.*--tokenizer=xlnet"):
        pretrain.run(_config(tiny_corpus), str(tmp_path / "run"))


def test_masked_tokens_with_the_same_body(corpus, tmp_path):
    config = _config(corpus)
    config["objective"] = {"name": "masked_lm"}
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    rows = rows_of(tmp_path / "run", "train")
    assert rows[-1]["mlm_loss"] < 0.8 * rows[0]["mlm_loss"]
