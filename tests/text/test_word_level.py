"""Vocabularies of whole words: which words, in which order, and the characters of each."""

import json

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.text.characters import Characters, characters_of
from bertjax.text.extension import extends
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn

TEXTS = ["The cat saw the caf\u00e9, the CAT saw.", "<UNK> </S> the " + "x" * 60]


@pytest.fixture
def path(tmp_path):
    learn("words", TEXTS, tmp_path / "words.json", size=100, cased=True)
    return tmp_path / "words.json"


def test_frequent_words_come_first_behind_the_special_ones(path):
    tokenizer = Tokenizer.open(path)
    assert (tokenizer.kind, tokenizer.cased, tokenizer.keeps_spaces) == ("words", True, False)
    # Those with the same count are in the order of their characters.
    words = "the < > saw , . / CAT S The UNK caf\u00e9 cat".split()
    assert tokenizer.tokens == ["<S>", "</S>", "<UNK>", *words, "x" * 60]
    assert tokenizer.roles == {"pad": 1, "unk": 2, "bos": 0, "eos": 1}
    assert not tokenizer.continues_word.any() and tokenizer.template.specials(pair=True) == 0


def test_the_rarest_words_are_left_out(tmp_path):
    assert learn("words", TEXTS, tmp_path / "words.json", size=7, cased=False) == 7
    tokenizer = Tokenizer.open(tmp_path / "words.json")
    assert not tokenizer.cased
    # Lower-cased, and without accents, as BERT's uncased text.
    assert tokenizer.tokens[3:] == ["the", "<", ">", "cat"]
    assert tokenizer.encode(["THE Cat sat"]) == [[3, 6, 2]]


def test_text_makes_no_special_word_but_the_unknown_one(path, tmp_path):
    tokenizer = Tokenizer.open(path)
    name_of = tokenizer.tokens.__getitem__
    (ids,) = tokenizer.encode(["the dog </S> cafe\u0301"])
    assert list(map(name_of, ids)) == ["the", "<UNK>", "<", "/", "S", ">", "caf\u00e9"]
    assert tokenizer.decode(ids) == "the <UNK> < / S > caf\u00e9"
    assert tokenizer.encode(["</S> cat"], special=True) == [[1, tokenizer.tokens.index("cat")]]
    ((_, places),) = tokenizer.encode_with_offsets(["the  cafe\u0301."])
    assert places.tolist() == [[0, 3], [5, 10], [10, 11]]
    (tmp_path / "saved").mkdir()
    tokenizer.save(tmp_path / "saved")
    again = Tokenizer.open(tmp_path / "saved")
    assert again.identity == tokenizer.identity and extends(again, tokenizer)
    learn("words", TEXTS, tmp_path / "few.json", size=7, cased=True)
    assert not extends(Tokenizer.open(tmp_path / "few.json"), tokenizer)


def test_characters_of_each_word(path):
    """Those that `Characters` reads in a text; a long word is cut to 48 bytes."""
    tokenizer = Tokenizer.open(path)
    table = characters_of(tokenizer)
    characters = Characters()
    begin, end = np.array(characters.template.sequence([]).ids)
    assert table.shape == (tokenizer.vocabulary_size, 50)
    np.testing.assert_array_equal(table[:2], [begin, end])
    words = characters.encode_words([tokenizer.tokens[2:]])[0]
    np.testing.assert_array_equal(table[2:], [word for (word,) in words])
    assert table[-1, 48] == ord("x") + 1 and table[-1, 49] == 260


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda file: file["model"].update(type="WordPiece"), "no such|must|WordPiece"),
        (lambda file: file["pre_tokenizer"].update(type="Whitespace"), "has 'BertPreTokenizer'"),
        (lambda file: file["normalizer"].update(normalizers=[{"type": "NFKC"}]), "is 'NFKC'"),
        (
            lambda file: (
                file["model"]["vocab"].update({"the": 2, "<UNK>": 3}),
                file["added_tokens"][2].update(id=3),
            ),
            "its first words are <S> </S> the, and must be <S> </S> <UNK>",
        ),
    ],
    ids=["model", "words", "normalizer", "order"],
)
def test_files_that_are_refused(path, change, message):
    file = json.loads(path.read_bytes())
    change(file)
    path.write_text(json.dumps(file))
    with pytest.raises(InputError, match=message):
        Tokenizer.open(path)


def test_a_text_without_words_is_refused(tmp_path):
    with pytest.raises(InputError, match="no vocabulary to learn: the text has no characters"):
        learn("words", [" "], tmp_path / "words.json", size=9, cased=True)
