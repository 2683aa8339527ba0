"""Texts after a prompt, and which of their tokens count."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.text.prompted import prompted
from bertjax.text.special_tokens import BERT
from bertjax.text.template import Template
from tests.text.small_vocabularies import wordpiece

PIECES = [*BERT.values(), *"the cat dog ##s run : query".split()]
TEXTS = ["cats run", "", "the dog"]


@pytest.fixture
def tokenizer():
    return wordpiece(PIECES, cased=False)


def test_a_prompt_counts_or_not(tokenizer):
    pieces = {
        "cats run": "[CLS] query : cat ##s run [SEP]",
        "": "[CLS] query : [SEP]",
        "the dog": "[CLS] query : the dog [SEP]",
    }
    for count, zeros in ((True, 0), (False, 3)):
        found = prompted(TEXTS, tokenizer, prompt="query: ", count_prompt=count, max_length=9)
        for text, one in zip(TEXTS, found, strict=True):
            assert [tokenizer.tokens[each] for each in one.ids] == pieces[text].split()
            assert one.counted.tolist() == [0] * zeros + [1] * (len(one.ids) - zeros)
            assert {each.dtype for each in one} == {np.dtype(np.int32)}
            assert not one.token_types.any()


def test_without_a_prompt_every_token_counts(tokenizer):
    for one in prompted(TEXTS, tokenizer, count_prompt=False, max_length=9):
        assert one.counted.all()


def test_the_end_of_a_long_text_is_cut(tokenizer):
    (one,) = prompted(TEXTS[:1], tokenizer, prompt="query: ", count_prompt=False, max_length=5)
    assert [tokenizer.tokens[each] for each in one.ids] == "[CLS] query : cat [SEP]".split()
    assert one.counted.tolist() == [0, 0, 0, 1, 1]
    # A prompt that fills the sequence would make all texts alike.
    for count, most in ((True, 4), (False, 3)):
        with pytest.raises(InputError, match="prompt 'query: ' has 2 tokens, where [12] are free"):
            prompted(["cat"], tokenizer, prompt="query: ", count_prompt=count, max_length=most)
    with pytest.raises(InputError, match="at most 1 tokens: no room for the special tokens"):
        prompted(["cat"], tokenizer, max_length=1)


def test_the_template_of_the_tokenizer_is_used(tokenizer):
    tokenizer.template = Template((), (), (3, 2), last_type=2)  # XLNet's
    (one,) = prompted(["cat"], tokenizer, prompt="query: ", count_prompt=False, max_length=9)
    assert one.ids.tolist() == [11, 10, 6, 3, 2]
    assert one.token_types.tolist() == [0, 0, 0, 0, 2]
    # Of two special tokens at the end, sentence-transformers takes only one for the prompt's.
    assert one.counted.tolist() == [0, 0, 0, 1, 1]
