"""One or two texts as one sequence, cut if they are too long."""

import pytest

from bertjax.text.pairs import joined, kept_lengths
from bertjax.text.special_tokens import SPECIAL_TOKENS
from tests.text.small_vocabularies import wordpiece

WORDS = wordpiece([*SPECIAL_TOKENS, *"abcdef"], cased=False)


@pytest.mark.parametrize(
    ("lengths", "room", "kept"),
    [
        ([9], 4, [4]),
        ([3], 4, [3]),
        ([7, 3], 6, [3, 3]),
        ([2, 8], 6, [2, 4]),
        ([3, 3], 5, [3, 2]),  # of equal lengths, the second is cut (run_classifier.py)
        ([4, 3], 5, [3, 2]),
        ([2, 3], 5, [2, 3]),
    ],
    ids=str,
)
def test_the_longer_text_loses_its_end(lengths, room, kept):
    assert kept_lengths(lengths, room) == kept


def test_joined():
    cls, sep = WORDS.cls_id, WORDS.sep_id
    assert joined(WORDS, [5, 6, 7], None, 4) == ([cls, 5, 6, sep], [0] * 4)
    ids = [cls, 5, 6, 7, sep, 8, 9, sep]
    assert joined(WORDS, [5, 6, 7], [8, 9, 10], 8) == (ids, [0] * 5 + [1] * 3)
