"""GPT-2 through the programs, from text to an exported model, and on from there."""

import json

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.programs import complete, convert, evaluate, finetune, perplexity, predict, pretrain
from bertjax.runs.recipe import Recipe
from bertjax.runs.source import open_model
from tests.helpers.closeness import LOGITS, rounding
from tests.helpers.small_gpt import gpt2_tokenizer
from tests.helpers.task_files import FAMILIES, tiny_finetuning
from tests.helpers.tiny_run import corpus_once, metrics_of, rows_of, tiny_config

MODEL = {"encoder": "gpt2", "size": "tiny", "hidden_act": "gelu_tanh", "intermediate_size": 48}
OBJECTIVE = {"name": "left_to_right", "text": "stream"}


def _config(corpus, **changes):
    settings = {"objective": OBJECTIVE, "short_probability": 0.0, "model": MODEL}
    return tiny_config(corpus, **settings | changes)


def test_a_learned_vocabulary_has_one_special_token(tmp_path):
    tokenizer = gpt2_tokenizer(tmp_path)
    assert tokenizer.tokens[0] == "<|endoftext|>" and tokenizer.special_ids == (0,)
    assert tokenizer.roles == dict.fromkeys(("pad", "unk", "bos", "eos"), 0)
    assert tokenizer.vocabulary_size == 300 and tokenizer.template.specials(pair=True) == 0
    with pytest.raises(InputError, match="no special token for 'mask'"):
        _ = tokenizer.mask_id


def test_other_objectives_are_refused():
    with pytest.raises(InputError, match="gpt2 reads left to right only: set config.objective"):
        Recipe.from_config(_config("", objective="masked_lm"))


@pytest.fixture(scope="module")
def corpus():
    return corpus_once("gpt2_corpus", learn_vocabulary=300, tokenizer="gpt2")


@pytest.fixture(scope="module")
def run(corpus, pretrained_once):
    """A finished run of 12 steps; do not write into it."""
    return pretrained_once("gpt2_run", _config(corpus))


@pytest.mark.slow
def test_it_learns_is_exported_and_goes_on_from_there(corpus, run, tmp_path):
    rows = rows_of(run, "train")
    assert rows[-1]["mlm_loss"] < 0.8 * rows[0]["mlm_loss"]
    source = f"hf:{tmp_path / 'exported'}"
    assert max(convert.run(str(run), source).values()) < rounding(LOGITS)
    written = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert written["architectures"] == ["GPT2LMHeadModel"]
    first, trained = open_model(source), open_model(str(run))
    assert (first.spec, first.tokenizer.identity) == (trained.spec, trained.tokenizer.identity)
    jax.tree.map(np.testing.assert_array_equal, first.params, trained.params)
    assert pretrain.run(_config(corpus, init_from=source), str(tmp_path / "again")) == 0
    assert metrics_of(tmp_path / "again")[0]["mlm_loss"] < 0.8 * rows[0]["mlm_loss"]
    found = [perplexity.run(each, str(corpus), 32) for each in (source, str(run))]
    assert found[0] == found[1] and found[0]["perplexity"] < np.exp(rows[0]["mlm_loss"])
    (text,) = complete.run(source, ["Moo moo"], 8)
    assert text.startswith("Moo moo") and text != "Moo moo"
    figures = evaluate.run(str(tmp_path / "again"), None, 2)
    assert figures["64"]["mlm_loss"] < rows[0]["mlm_loss"]


@pytest.mark.slow
@pytest.mark.devices(8)
def test_a_layout_trains_the_same_model(corpus, run, tmp_path):
    config = _config(corpus, layout="tensor_zero1", mesh={"data": -1, "model": 2})
    config["model"]["vocab_multiple"] = 8
    assert pretrain.run(config, str(tmp_path / "split")) == 0
    for one, other in zip(metrics_of(tmp_path / "split"), metrics_of(run), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["MRPC", "NER"])
def test_fine_tuned_it_predicts_and_is_exported(run, tmp_path, task):
    family = FAMILIES[task]
    family.write(tmp_path / "data")
    config = tiny_finetuning(run, tmp_path / "data", task=family.task)
    config.lm_weight = 0.5 if task == "MRPC" else 0.0
    assert finetune.run(config, str(tmp_path / "tuned")) == 0
    separator = " ||| moo" if task == "MRPC" else ""
    (tmp_path / "lines.txt").write_text(f"baa baa moo{separator}\nquack{separator}\n")
    predict.run(str(tmp_path / "tuned"), str(tmp_path / "lines.txt"), str(tmp_path / "a"))
    assert max(convert.run(str(tmp_path / "tuned"), f"hf:{tmp_path / 'out'}").values()) < rounding(
        LOGITS
    )
    predict.run(f"hf:{tmp_path / 'out'}", str(tmp_path / "lines.txt"), str(tmp_path / "b"))
    answers = [(tmp_path / each).read_text() for each in "ab"]
    assert answers[0] == answers[1] and len(answers[0].splitlines()) == 2
