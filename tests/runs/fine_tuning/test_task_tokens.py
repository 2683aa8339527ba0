"""The tokens of a task around the texts of GPT and GPT-2."""

import dataclasses

import numpy as np
import pytest

from bertjax.interop.hugging_face import read_hugging_face, write_hugging_face
from bertjax.interop.proof import outputs
from bertjax.interop.tokenizer_files import differences, read_tokenizer
from bertjax.runs.fine_tuning.task_tokens import with_task_tokens
from bertjax.text.tokenizer import Tokenizer
from tests.helpers.closeness import assert_close
from tests.helpers.small_gpt import TEXTS, gpt2_tokenizer, small_gpt
from tests.text.gpt_vocabulary import learn_gpt


@pytest.fixture(params=["gpt2", "openai-gpt"])
def model(request, tmp_path):
    if request.param == "gpt2":
        return small_gpt(gpt2_tokenizer(tmp_path))
    learn_gpt(TEXTS, tmp_path / "gpt", size=200)
    return small_gpt(read_tokenizer(tmp_path / "gpt"), "openai-gpt")


def test_texts_stand_in_the_tokens_of_the_task(model):
    size, extended = model.tokenizer.vocabulary_size, with_task_tokens(model).tokenizer
    assert extended.tokens == [*model.tokenizer.tokens, "_start_", "_delimiter_", "_classify_"]
    a, b = extended.encode(["The cat", "isn't it"])
    assert [a, b] == model.tokenizer.encode(["The cat", "isn't it"])
    assert extended.template.sequence(a).ids == [size, *a, size + 2]
    pair = extended.template.sequence(a, b)
    assert pair.ids == [size, *a, size + 1, *b, size + 2] and not any(pair.token_types)
    assert extended.roles == model.tokenizer.roles | {"cls": size + 2, "sep": size + 1}
    assert extended.encode(["_start_"]) == model.tokenizer.encode(["_start_"])
    assert extended.encode(["_start_"], special=True) == [[size]]


def test_the_model_stays_the_same_on_other_tokens(model):
    extended = with_task_tokens(model)
    assert extended.spec == dataclasses.replace(model.spec, vocab_size=model.spec.vocab_size + 3)
    ids = np.arange(12).reshape(2, 6)
    inputs = {"input_ids": ids, "input_mask": np.ones_like(ids)}
    before, after = (outputs(m.model(), m.params, inputs)["masked_lm"] for m in (model, extended))
    assert_close(after[..., :-3], before)
    table = extended.params[model.family.name]["embeddings"]["token"]
    assert 0 < np.abs(table[-3:]).max() < 0.1 and len(np.unique(table[-3:])) > 60
    again = with_task_tokens(model)
    np.testing.assert_array_equal(table, again.params[model.family.name]["embeddings"]["token"])
    assert with_task_tokens(extended) is extended


def test_folders_keep_them(model, tmp_path):
    extended, folder = with_task_tokens(model), tmp_path / "folder"
    folder.mkdir()
    write_hugging_face(extended, folder)
    again = read_hugging_face(folder, "again")
    assert again.tokenizer.identity == extended.tokenizer.identity
    assert differences(extended.tokenizer, folder, [*TEXTS, "_start_ a _classify_"]) == []
    extended.tokenizer.save(tmp_path)
    assert Tokenizer.open(tmp_path).identity == extended.tokenizer.identity
