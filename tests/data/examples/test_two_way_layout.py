"""Sentences in both directions: the rows are those of a walk over the text, word by word."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.shards import HELDOUT, TRAIN
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.batches import Examples, ExampleSpec
from bertjax.data.examples.corruption import Unchanged
from bertjax.data.examples.two_way_layout import TWO_WAY
from bertjax.text.characters import characters_of
from tests.data.examples.places import FIRST, Corpus

BEGIN, END = 0, 1
ROWS, LENGTH = 5, 7
# Rows 0 to 3 read the first source, row 4 the second.
SOURCES = [
    ("a", 0.8, [[3, 1, 4, 11], [2], [1, 1], [19]], [[2, 3]]),
    ("b", 0.2, [[5], [1, 6]], [[1, 2]]),
]


class Words:
    """A vocabulary of words, whose ids are positions of a store."""

    def __init__(self, size: int):
        self.kind, self.identity = "words", "places"
        self.roles = {"bos": BEGIN, "eos": END, "unk": 2}
        self.tokens = [f"w{number}" for number in range(size)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return Corpus(tmp_path_factory.mktemp("two_way") / "corpus", SOURCES)


def _examples(corpus, split=TRAIN, words=None):
    words = words or Words(corpus.tokenizer.vocabulary_size)
    spec = ExampleSpec(TWO_WAY, Unchanged(), LENGTH, ROWS, 3, "x", 0.0)
    return Examples(TokenStore.open(corpus.folder, split), words, spec), words


def _walks(number: int, split: str) -> list[tuple[int, int, int, int]]:
    """For each place of a source's stream: what each direction reads, and what it predicts."""
    before = sum(sum(map(sum, source[2])) for source in SOURCES[: None if split else number])
    if split:
        before += sum(sum(map(sum, source[3])) for source in SOURCES[:number])
    place, walk = FIRST + before, []
    for document in SOURCES[number][3 if split else 2]:
        for size in document:
            sentence = [BEGIN, *range(place, place + size), END]
            back = sentence[::-1]
            walk += zip(sentence[:-1], sentence[1:], back[:-1], back[1:], strict=True)
            place += size
    return walk


def _ids(table: np.ndarray, characters: np.ndarray) -> np.ndarray:
    """The words of characters [R, S, W]."""
    of = {tuple(row): number for number, row in enumerate(table.tolist())}
    return np.array([[of[tuple(word)] for word in row] for row in characters.tolist()])


@pytest.mark.parametrize("split", [TRAIN, HELDOUT])
def test_the_rows_are_those_of_a_walk(corpus, split):
    """Over several rounds of each source, whose end stands inside rows."""
    examples, words = _examples(corpus, split)
    table = characters_of(words)
    for step in range(13):
        batch = examples.batch(step)
        read = _ids(table, batch["characters"])
        read_back = _ids(table, batch["backward_characters"])
        assert (batch["input_mask"] == 1).all() and batch["characters"].dtype == np.int32
        for row in range(ROWS):
            number = int(row == 4)
            walk = _walks(number, "" if split == TRAIN else split)
            within = ((row + 0.5) / ROWS - 0.8 * number) / (0.2 if number else 0.8)
            first = int(within * len(walk) + 1e-9) + step * LENGTH
            wanted = np.array([walk[(first + i) % len(walk)] for i in range(LENGTH)]).T
            np.testing.assert_array_equal(read[row], wanted[0])
            np.testing.assert_array_equal(batch["forward_ids"][row], wanted[1])
            # The last is read first.
            np.testing.assert_array_equal(read_back[row, ::-1], wanted[2])
            np.testing.assert_array_equal(batch["backward_ids"][row, ::-1], wanted[3])


def test_hosts_make_their_own_rows(corpus):
    examples, _ = _examples(corpus)
    whole, some = examples.batch(4), examples.batch(4, slice(1, 4))
    for name, array in whole.items():
        np.testing.assert_array_equal(some[name], array[1:4])


def test_every_word_is_predicted_once_a_round_in_each_direction(corpus):
    """The rows of a source together, at even distances, have read all of it after a round."""
    examples, _ = _examples(corpus)
    size = len(_walks(1, ""))
    places = np.concatenate([examples.batch(step)["forward_ids"][4] for step in range(size)])
    counts = np.bincount(places)
    assert counts[END] == 3 * LENGTH  # three sentences, and as many rounds as a row has places
    assert (counts[counts > 0][1:] == LENGTH).all() and places.size == size * LENGTH


def test_refused(corpus):
    words = Words(9)
    words.kind = "wordpiece"
    with pytest.raises(InputError, match="is a wordpiece one.*--tokenizer=words"):
        _examples(corpus, words=words)
