"""Texts with a prompt before them."""

import pytest

from bertjax.text.prompted import encode_prompted
from bertjax.text.tokenizer import Tokenizer
from tests.helpers.small_models import PIECES


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    return Tokenizer.open(tmp_path / "vocab.txt")


def _shown(tokenizer, text):
    return " ".join(tokenizer.tokens[i] for i in text.ids)


def test_a_prompt_is_a_part_of_the_text(tokenizer):
    texts = ["a dog", "runs !"]
    found = encode_prompted(tokenizer, texts, "the cat ", count_prompt=True, max_length=9)
    assert [_shown(tokenizer, each) for each in found] == [
        "[CLS] the cat a dog [SEP]",
        "[CLS] the cat run ##s ! [SEP]",
    ]
    assert all(each.counted.all() and not each.token_types.any() for each in found)


def test_its_tokens_need_not_count(tokenizer):
    """Nor [CLS] before them; without a prompt all count."""
    given = dict(count_prompt=False, max_length=6)
    (found,) = encode_prompted(tokenizer, ["a dog , blue house"], "the cat ", **given)
    assert _shown(tokenizer, found) == "[CLS] the cat a dog [SEP]"  # it is cut at its end
    assert found.counted.tolist() == [0, 0, 0, 1, 1, 1]
    (plain,) = encode_prompted(tokenizer, ["a dog"], "", **given)
    assert plain.counted.tolist() == [1, 1, 1, 1]
