"""GPT's BPE, whose words end with a mark: its words, its places in a text, and what is refused."""

import json

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.examples.masking import inside_words
from bertjax.interop.tokenizer_files import read_tokenizer, write_tokenizer
from bertjax.text.tokenizer import Tokenizer
from tests.text.gpt_vocabulary import learn_gpt

TEXTS = [
    "The cats sat on the mats, and the cat's hats sat there.",
    "Caf\u00e9 cats don't sit: 12 hats, 7 mats!",
    "the the then there cats cat",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt")
    learn_gpt(TEXTS, folder, size=90)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder) -> Tokenizer:
    return read_tokenizer(folder)


def test_its_kind_and_its_texts(tokenizer, tmp_path):
    assert (tokenizer.kind, tokenizer.cased, tokenizer.keeps_spaces) == ("word_bpe", False, False)
    assert tokenizer.pad_id == tokenizer.unk_id == tokenizer.tokens.index("<unk>")
    (ids,) = tokenizer.encode(["The  Cat sat"])
    assert [tokenizer.tokens[i] for i in ids] == ["the</w>", "cat</w>", "sat</w>"]
    assert tokenizer.decode(ids) == "the cat sat"
    assert tokenizer.encode(["<unk>"]) != [[tokenizer.unk_id]]
    assert tokenizer.encode(["<unk>"], special=True) == [[tokenizer.unk_id]]
    tokenizer.save(tmp_path)
    assert Tokenizer.open(tmp_path).identity == tokenizer.identity
    write_tokenizer(tokenizer, tmp_path, 64)
    assert Tokenizer.open(tmp_path / "tokenizer.json").identity == tokenizer.identity
    with pytest.raises(InputError, match="no special token for 'sep'"):
        _ = tokenizer.end_id


def test_words_are_those_of_the_text(tokenizer):
    (ids,) = tokenizer.encode(["hot cats sit on mats."])
    ids = np.array([ids])
    inside = inside_words(
        ids, np.ones(ids.shape, bool), tokenizer.continues_word, tokenizer.word_links
    )[0]
    assert np.count_nonzero(~inside) == 6 and inside.any()
    words = np.split(ids[0], np.flatnonzero(~inside)[1:])
    assert [tokenizer.decode(word) for word in words] == "hot cats sit on mats .".split()


def test_places_of_pieces(tokenizer):
    for text, (ids, places) in zip(TEXTS, tokenizer.encode_with_offsets(TEXTS), strict=True):
        assert ids == tokenizer.encode([text])[0]
        for number, (start, end) in zip(ids, places, strict=True):
            piece = tokenizer.tokens[number].removesuffix("</w>")
            if number != tokenizer.unk_id:
                assert text[start:end].lower().replace("\u00e9", "e") == piece


@pytest.mark.parametrize(
    "component, changes, message",
    [
        ("normalizer", {"lowercase": False}, "normalizer.lowercase is False"),
        ("model", {"unk_token": "[UNK]"}, r"model.unk_token is '\[UNK\]'"),
        ("pre_tokenizer", {"type": "Whitespace"}, "pre_tokenizer.type is 'Whitespace'"),
    ],
)
def test_another_way_to_pieces_is_refused(tokenizer, tmp_path, component, changes, message):
    content = json.loads(tokenizer.vocabulary)
    content[component] |= changes
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    for read in (read_tokenizer, lambda folder: Tokenizer.open(folder / "tokenizer.json")):
        with pytest.raises(InputError, match=message):
            read(tmp_path)
