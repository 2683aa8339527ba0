"""Words as ids of their bytes, by hand."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.text.characters import Characters


def test_a_word_is_its_bytes_between_marks():
    (((word,),),) = Characters().encode_words([["é!"]])
    assert word == (259, 0xC3 + 1, 0xA9 + 1, ord("!") + 1, 260) + (261,) * 45


def test_a_long_word_is_cut_to_48_bytes():
    ((long,), (cut,)) = Characters().encode_words([["x" * 60, "x" * 48]])[0]
    assert long == cut == (259, *[ord("x") + 1] * 48, 260)


def test_a_text_begins_and_ends_with_words_of_their_own():
    characters = Characters()
    ids = np.array(characters.template.sequence(characters.encode(["a  b\n"])[0]).ids)
    assert ids.shape == (4, 50)
    assert ids[0].tolist() == [259, 257, 260] + [261] * 47
    assert ids[-1].tolist() == [259, 258, 260] + [261] * 47
    assert ids[1, 1] == ord("a") + 1 and ids[2, 1] == ord("b") + 1
    assert characters.pad_id == 0


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(InputError, match="half a surrogate pair"):
        Characters().encode_words([["a"], ["b", "\ud800"]])
