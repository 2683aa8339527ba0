"""Groups of documents that say the same."""

import itertools
import random

import numpy as np
import pytest

from bertjax.data.corpus.duplicates import BANDS, exact_keys, first_of_group, near_keys
from bertjax.data.corpus.ngrams import word_hashes, words

NEAR = pytest.mark.needs("rensa")


def brute_force(bands):
    """The smallest number in each group, by following equal keys until nothing changes."""
    count = bands.shape[1]
    first = list(range(count))
    changed = True
    while changed:
        changed = False
        for a, b in itertools.combinations(range(count), 2):
            if first[a] != first[b] and (bands[:, a] == bands[:, b]).any():
                first[a] = first[b] = min(first[a], first[b])
                changed = True
    return first


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("keys", [5, 40, 400])
def test_groups_are_those_of_a_brute_force(seed, keys):
    bands = np.random.default_rng(seed).integers(0, keys, (3, 53), np.uint64)
    assert first_of_group(bands, 53).tolist() == brute_force(bands)


def test_groups_grow_over_bands():
    bands = [np.array(keys, np.uint64) for keys in ([1, 2, 3, 2, 5], [9, 8, 7, 6, 6])]
    assert first_of_group(bands[:1], 5).tolist() == [0, 1, 2, 1, 4]
    assert first_of_group(bands, 5).tolist() == [0, 1, 2, 1, 1]
    assert first_of_group([], 3).tolist() == [0, 1, 2]
    assert first_of_group([np.zeros(0, np.uint64)], 0).tolist() == []


def test_exact_duplicates_have_the_same_paragraphs():
    documents = [["a b"], ["a", "b"], ["a b"], ["A b"], ["a b", "c"]]
    assert first_of_group(exact_keys(documents), 5).tolist() == [0, 1, 0, 3, 4]


def keys_of(texts):
    documents = [[text] for text in texts]
    return near_keys(documents, [word_hashes(words(text)) for text in texts])


@NEAR
@pytest.mark.parametrize(
    "common, own, low, high", [(98, 94, 0.0, 0.12), (151, 25, 0.67, 0.87), (184, 10, 0.97, 1.0)]
)
def test_similar_texts_share_a_band_as_often_as_the_formula_says(common, own, low, high):
    """The 5-grams of the two texts have a known Jaccard similarity, because all words differ."""
    pairs = []
    for number in range(301):
        shared = " ".join(f"w{number}x{place}" for place in range(common))
        for side in "ab":
            rest = " ".join(f"{side}{number}x{place}" for place in range(own))
            pairs.append(f"{shared} {rest}")
    similarity = (common - 4) / (common - 4 + 2 * own)
    assert similarity == pytest.approx({98: 1 / 3, 151: 0.746, 184: 0.9}[common], abs=0.001)
    keys = keys_of(pairs)
    assert keys.shape == (BANDS, 602) and keys.dtype == np.uint64
    share = (keys[:, ::2] == keys[:, 1::2]).any(axis=0).mean()
    expected = 1 - (1 - similarity**8) ** 14
    assert low <= share <= high and low <= expected <= high
    assert not (keys[:, :-2:2] == keys[:, 2::2]).any()  # texts without a word in common


@NEAR
def test_texts_of_one_length_and_the_batches_do_not_matter():
    numbers = random.Random(3)
    vocabulary = [f"word{n}" for n in range(500)]
    texts = [" ".join(numbers.choices(vocabulary, k=numbers.randint(1, 90))) for _ in range(71)]
    texts += ["", "?!", "?!", "...", "One, two", "one two", "one two three"]
    whole = keys_of(texts)
    halves = np.concatenate([keys_of(texts[:13]), keys_of(texts[13:])], axis=1)
    assert (whole == halves).all()
    first = first_of_group(whole, len(texts))
    # Without words only equals are duplicates; punctuation and case do not count.
    assert first[71:].tolist() == [71, 72, 72, 74, 75, 75, 77]
    assert first[:71].tolist() == list(range(71))
