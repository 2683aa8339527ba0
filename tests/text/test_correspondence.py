"""Which old pieces stand for a new one, within a kind of vocabulary and across kinds."""

from pathlib import Path

import pytest

from bertjax.text.byte_level import spelled
from bertjax.text.correspondence import old_pieces
from bertjax.text.special_tokens import ROBERTA, SPECIAL_TOKENS, XLNET
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn
from tests.text.test_extension import OLD, unigram

LETTERS = "acehmnost"


def wordpiece(path: Path, *pieces: str, cased: bool = False) -> Tokenizer:
    letters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    path.write_text("\n".join([*SPECIAL_TOKENS, *pieces, *letters, ","]) + "\n", "utf-8")
    return Tokenizer.open(path, cased)


def corresponding(old: Tokenizer, new: Tokenizer) -> dict[str, list[str]]:
    found = old_pieces(old, new)
    assert len(found) == new.vocabulary_size
    return {
        piece: [old.tokens[each] for each in ids]
        for piece, ids in zip(new.readable, found, strict=True)
    }


def test_wordpiece_to_wordpiece(tmp_path):
    old = wordpiece(tmp_path / "old.txt", "[unused3]", "cat", "the", "##the")
    new = wordpiece(
        tmp_path / "new.txt",
        *["cat", "cats", "##cats", "##then", "then", "Cat", "\u00e9th", "[unused3]", "q", "##qa"],
        cased=True,
    )
    found = corresponding(old, new)
    assert found["cat"] == ["cat"] and found["[unused3]"] == ["[unused3]"] and found[","] == [","]
    assert found["cats"] == ["cat", "##s"]
    assert found["##cats"] == ["##c", "##a", "##t", "##s"]
    assert found["##then"] == ["##the", "##n"] and found["then"] == ["the", "##n"]
    assert found["Cat"] == ["cat"]  # the old one is uncased
    assert found["\u00e9th"] == ["e", "##t", "##h"]  # and strips accents
    assert found["q"] == found["##qa"] == []  # unknown text
    assert [found[name] for name in SPECIAL_TOKENS] == [[name] for name in SPECIAL_TOKENS]


def test_byte_level_bpe_to_itself_and_from_wordpiece(tmp_path):
    for name, texts in (("old", OLD), ("new", [text.replace("at", "ath\u00e9") for text in OLD])):
        learn("bpe", texts, tmp_path / name, size=320, cased=True)
    old, new = (Tokenizer("bpe", (tmp_path / name).read_bytes(), name) for name in ("old", "new"))
    ids = old_pieces(old, new)
    for number, piece in enumerate(new.tokens):
        found = [old.tokens[each] for each in ids[number]]
        assert "".join(found) == piece  # also of half a character
        if piece in old.tokens:
            assert found == [piece]
    assert max(map(len, ids)) > 1
    found = corresponding(old, wordpiece(tmp_path / "w.txt", "the", "##the", "cased", "\u4e2d"))
    assert found["the"] == ["\u0120the"] and "".join(found["##the"]) == "the"
    assert "".join(found["cased"]) == "\u0120cased" and found[","] == [","]
    assert "".join(found["\u4e2d"]) == spelled(" \u4e2d".encode())


def test_of_two_roles_of_a_token_the_first_counts(tmp_path):
    """RoBERTa's <s> begins sequences as XLNet's <cls> does, though XLNet has a <s>, too."""
    made = []
    for name, roles in (("old", XLNET), ("new", ROBERTA)):
        (tmp_path / name).mkdir()
        made.append(unigram(tmp_path / name, list(dict.fromkeys(roles.values()))))
    old, new = made
    found = corresponding(old, new)
    assert [found[name] for name in ("<pad>", "<unk>", "<mask>", "<s>", "</s>")] == [
        *(["<pad>"], ["<unk>"], ["<mask>"], ["<cls>"], ["<sep>"])
    ]


def test_unigram_and_sentencepiece(tmp_path):
    old = unigram(tmp_path)
    found = corresponding(old, wordpiece(tmp_path / "w.txt", "the", "mat", "##mat", "##toto"))
    assert found["the"] == ["\u2581the"] and found["mat"] == ["\u2581mat"]
    assert found["##toto"] == ["toto"]
    assert found["##mat"] == ["\u2581mat"]  # no such piece without the mark
    assert found["##a"] == ["a"] and found[","] == [","]
    learn("sentencepiece", OLD, tmp_path / "old.model", size=60, cased=True)
    model = Tokenizer.open(tmp_path / "old.model")
    ids = old_pieces(model, model)
    assert [each for each in ids] == [[number] for number in range(model.vocabulary_size)]
    back = corresponding(wordpiece(tmp_path / "w.txt", "it", "##at"), model)
    assert back["\u2581it"] == ["it"] and back["at"] == ["##at"] and back["s"] == ["##s"]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_role_that_the_old_one_lacks(tmp_path, kind):
    """The mask of the new vocabulary has no old piece, and no piece has an old special token."""
    import json

    learn("bpe", OLD, tmp_path / "old", size=300, cased=True)
    content = json.loads((tmp_path / "old").read_bytes())
    names = dict(pad="[PAD]", unk="[UNK]", cls="[CLS]", sep="[SEP]")
    content["added_tokens"] = content["added_tokens"][:4]
    old = Tokenizer("bpe", json.dumps(content).encode(), "old", special_tokens=names)
    assert "mask" not in old.roles
    if kind == "bpe":
        new = Tokenizer("bpe", (tmp_path / "old").read_bytes(), "new")
    else:
        new = wordpiece(tmp_path / "w.txt")
    ids = old_pieces(old, new)
    assert ids[new.mask_id] == []
    assert ids[new.cls_id] == [old.cls_id]
    special = set(old.special_ids)
    assert not any(
        special & set(each) for number, each in enumerate(ids) if number not in new.special_ids
    )
