"""The positions of pieces in their text."""

import unicodedata

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.wordpiece import bert_wordpiece
from tests.text.hard_texts import HARD_TEXTS
from tests.text.hard_texts import PIECES as HARD_PIECES
from tests.text.small_vocabularies import random_texts, wordpiece


def shown(tokenizer: Tokenizer, text: str) -> list[tuple[str, str]]:
    """Each piece, and the characters from which it was made."""
    ((ids, offsets),) = tokenizer.encode_with_offsets([text])
    assert offsets.dtype == np.int32 and offsets.shape == (len(ids), 2)
    return [(tokenizer.tokens[i], text[a:b]) for i, (a, b) in zip(ids, offsets, strict=True)]


WORDPIECE_CASES = {
    "The CATS, unable": "the|The cat|CAT ##s|S ,|, un|un ##able|able",
    "caf\u00e9 CAFE\u0301, x": "cafe|caf\u00e9 cafe|CAFE\u0301 ,|, [UNK]|x",
    "c\u0301a\u0323\u0301ts": "cat|c\u0301a\u0323\u0301t ##s|s",
    "ca\u200bts\u00a0the\x00": "cat|ca\u200bt ##s|s the|the",
    "the\u4e2d\u6587cat": "the|the \u4e2d|\u4e2d [UNK]|\u6587 cat|cat",
    "\u0130x cat": "[UNK]|\u0130x cat|cat",
    "\u2764\ufe0fthe": "[UNK]|\u2764\ufe0fthe",
    "": "",
}


@pytest.mark.parametrize("text", WORDPIECE_CASES, ids=ascii)
def test_wordpiece_cases(text):
    pieces = [*SPECIAL_TOKENS, *"the cat ##s , un ##able cafe \u4e2d".split()]
    got = shown(wordpiece(pieces, cased=False), text)
    assert " ".join(map("|".join, got)) == WORDPIECE_CASES[text]


def test_sentencepiece_cases(model_file):
    tokenizer = Tokenizer.open(model_file)
    text = "  The   cat \t \u00bd \ufb01\n"
    got = [word for _, word in shown(tokenizer, text)]
    assert [word for word in got if word] == [*"Thecat", "\u00bd", "\ufb01"]
    uncased = Tokenizer.open(model_file, cased=False)
    text = "The\u0130 ON \u4e2d mat"  # "\u0130" becomes two characters
    got = [word for _, word in shown(uncased, text)]
    assert [word for word in got if word] == [*"The", "\u0130", "\u0130", *"ON", "\u4e2d", *"mat"]


@pytest.mark.parametrize("kind", ["uncased", "cased", "sentencepiece", "sentencepiece uncased"])
def test_ids_are_those_of_encode_and_offsets_ascend(kind, model_file, monkeypatch):
    if kind.startswith("sentencepiece"):
        tokenizer = Tokenizer.open(model_file, cased=not kind.endswith("uncased"))
    else:
        tokenizer = wordpiece(HARD_PIECES, cased=kind == "cased")
        monkeypatch.setattr(type(tokenizer._pieces), "_TEXTS_AT_ONCE", 7)
    texts = [*HARD_TEXTS, *random_texts(1500)]
    encoded = tokenizer.encode_with_offsets(texts)
    assert [ids for ids, _ in encoded] == tokenizer.encode(texts)
    for text, (_, offsets) in zip(texts, encoded, strict=True):
        assert np.all(np.diff(offsets, axis=0) >= 0)
        assert np.all(offsets[:, 0] <= offsets[:, 1])
        assert np.all((offsets >= 0) & (offsets <= len(text)))


@pytest.mark.parametrize("cased", [False, True])
def test_a_piece_is_what_its_characters_become(cased):
    """Characters in no piece are removed, or belong to the letter before them."""
    letters = [*"abcdeABCDE\u00e9\u00c9\u00df.,![]#'", "ab", "\u4e2d", "\U0001f600"]
    pieces = list(dict.fromkeys([*SPECIAL_TOKENS, *letters, *(f"##{each}" for each in letters)]))
    tokenizer = wordpiece(pieces, cased=cased)
    normalize = bert_wordpiece(None, cased=cased).normalizer.normalize_str
    known = 0
    for text in random_texts(1500):
        ((ids, offsets),) = tokenizer.encode_with_offsets([text])
        outside = np.ones(len(text), bool)
        for each, (start, end) in zip(ids, offsets, strict=True):
            outside[start:end] = False
            if each != tokenizer.unk_id:
                piece = tokenizer.tokens[each].removeprefix("##")
                assert normalize(text[start:end]).strip() == piece
                known += 1
                if not cased:  # an accent after it is included
                    assert end == len(text) or unicodedata.category(text[end]) != "Mn"
        left = "".join(np.array(list(text))[outside]) if text else ""
        assert normalize(left).split() == []
    assert known > 2000


def test_half_a_surrogate_pair_is_refused(model_file):
    for tokenizer in (wordpiece(HARD_PIECES, cased=False), Tokenizer.open(model_file)):
        with pytest.raises(InputError, match=r"text 1 \(of 2.*character 4 is U\+D83D, half"):
            tokenizer.encode_with_offsets(["the", "the \ud83d"])
