"""Frequent words of a text: by every kind of vocabulary; and how much two texts have in common."""

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest

from bertjax.corpus.frequencies import common_share, frequent_words
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn_byte_level_bpe, learn_sentencepiece, learn_wordpiece


def test_words_by_hand():
    """Pieces of one word in two cases and forms, and pieces that are no words."""
    pieces = ["the", "##the", "The", "\u2581the", " Der", "der", "42", ",", "\u2581", "\xfcber"]
    tokenizer = SimpleNamespace(
        readable=pieces,
        continues_word=np.array([piece in ("##the", "der") for piece in pieces]),
    )
    frequencies = np.array([10, 20, 5, 5, 8, 9, 20, 11, 10, 2]) / 100
    words = frequent_words(frequencies, tokenizer)
    assert words == {"the": 0.66667, "der": 0.26667, "\xfcber": 0.06667}
    assert list(frequent_words(frequencies, tokenizer, 2)) == ["the", "der"]
    assert frequent_words(np.eye(10)[6], tokenizer) == {}


@pytest.mark.parametrize(
    "file, learn, size",
    [
        ("vocab.txt", learn_wordpiece, 40),
        ("a.model", learn_sentencepiece, 25),
        ("bpe.json", learn_byte_level_bpe, 290),
    ],
)
def test_words_of_each_kind_of_vocabulary(file, learn, size, tmp_path):
    text = "A 7: the rain and the snow, and the rain!"
    texts = map(" ".join, permutations(["A 7:", "the rain", "the snow", "and", "the"]))
    learn([text, *texts], tmp_path / file, size=size, cased=True)
    tokenizer = Tokenizer.open(tmp_path / file)
    (ids,) = tokenizer.encode([text])
    counts = np.bincount(ids, minlength=tokenizer.vocabulary_size)
    words = frequent_words(counts / counts.sum(), tokenizer)
    assert next(iter(words)) == "the", words
    assert words["the"] == pytest.approx(1.5 * words["and"], abs=2e-5)


def test_what_two_texts_have_in_common():
    """Of 0.4, 0.1 of the first word, all of the second, and nothing of the third are common."""
    words = {"the": 0.2, "of": 0.15, "to": 0.05}
    assert common_share(words, words) == 1
    assert common_share(words, {"the": 0.1, "of": 0.3, "a": 0.4}) == pytest.approx(0.25 / 0.4)
    assert common_share(words, {"der": 0.2}) == common_share(words, {}) == 0
