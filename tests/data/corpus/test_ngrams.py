"""Words and n-grams as numbers."""

import hashlib

import numpy as np
import pytest

from bertjax.data.corpus import ngrams
from bertjax.data.corpus.ngrams import ngram_hashes, word_hashes, words


def test_words_do_not_depend_on_punctuation_case_and_form():
    expected = ["the", "u", "s", "don", "t", "naïve", "x2"]
    assert words("The U.S. don't—naïve “x²”!") == expected
    assert words("the u . s . don ' t nai\u0308ve x2 $") == expected
    assert words("हिन्दी में 日本のカナ ok") == ["हिन्दी", "में", *"日本のカナ", "ok"]
    assert words(" \n.,-_ ") == []


def test_words_have_hashes_of_64_bits(monkeypatch):
    monkeypatch.setattr(ngrams, "_MOST_WORDS", 2)  # the memory is emptied now and then
    found = word_hashes(["a", "b", "c", "a", "\ud800"])
    assert found.dtype == np.uint64 and found[0] == found[3] and len(set(found.tolist())) == 4
    digest = hashlib.blake2b(b"b", digest_size=8).digest()
    assert found[1] == int.from_bytes(digest, "big")
    assert len(word_hashes([])) == 0


@pytest.mark.parametrize("n", [1, 3, 7, 8])
def test_ngrams_are_polynomials(n):
    numbers = np.random.default_rng(0).integers(0, 2**63, (2, 7), np.uint64) * np.uint64(2)
    found = ngram_hashes(numbers, n)
    assert found.shape == (2, max(0, 8 - n))
    for row, its_numbers in zip(found.tolist(), numbers.tolist(), strict=True):
        for place, value in enumerate(row):
            expected = 0
            for number in its_numbers[place : place + n]:
                expected = (expected * 0x9E3779B97F4A7C15 + number) % 2**64
            assert value == expected
