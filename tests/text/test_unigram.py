"""Unigram models: ids as the library's, special tokens, words, positions, and refused files."""

import json
import random
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Library

from bertjax.base.errors import InputError
from bertjax.inference.features.texts import TextEncoder
from bertjax.text.extension import extends
from bertjax.text.template import Template
from bertjax.text.tokenizer import Tokenizer
from tests.text.hard_texts import HARD_TEXTS
from tests.text.small_vocabularies import added, put

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
WORDS = "\u2581the \u2581cat \u2581sat \u2581 \u2581<s> mask caf\u00e9 un able \u2044".split()
PIECES = [*SPECIAL, *WORDS, *"thecasonmi12<>/.,'\u4e2d\u6587", "<mask>"]
MARK = {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True}


def content() -> dict:
    """A tokenizer.json in the form of XLM-R's."""
    scores = [
        0.0 if piece in (*SPECIAL, "<mask>") else -1 - n / 7 for n, piece in enumerate(PIECES)
    ]
    made = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            added(PIECES.index(name), name, special=True, lstrip=name == "<mask>")
            for name in (*SPECIAL, "<mask>")
        ],
        "normalizer": {"type": "NFKC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, MARK]},
        "post_processor": {
            "type": "RobertaProcessing",
            "cls": ["<s>", 0],
            "sep": ["</s>", 2],
            "trim_offsets": True,
            "add_prefix_space": True,
        },
        "decoder": MARK,
        "model": {
            "type": "Unigram",
            "unk_id": 3,
            "vocab": [list(pair) for pair in zip(PIECES, scores, strict=True)],
        },
    }
    return json.loads(json.dumps(made))  # a deep copy


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("unigram") / "tokenizer.json"
    path.write_text(json.dumps(content()), "utf-8")
    return path


def random_texts(count: int) -> list[str]:
    numbers = random.Random(0)
    pool = [*("thecasonmi" * 6), *(" " * 30), *"<>/.,'12\u00bd\u00e9\u0301\u4e2d\u6587\u2581"]
    pool += ["<s>", "</s>", "<mask>", " <mask> ", "<pad>", "<unk>", "the", "cat", "\u3000", "\n"]
    pool += [*"\x00\x85\xa0\u200b\u2028\ufeff\U0001f600"]
    return ["".join(numbers.choices(pool, k=n % 40)) for n in range(count)]


TEXTS = [*HARD_TEXTS, *random_texts(1500)]


def test_attributes(file):
    tokenizer = Tokenizer.open(file)
    assert (tokenizer.kind, tokenizer.cased, tokenizer.keeps_spaces) == ("unigram", True, False)
    assert tokenizer.tokens == tokenizer.readable == PIECES
    mask = len(PIECES) - 1
    ids = {"pad": 1, "unk": 3, "cls": 0, "sep": 2, "mask": mask, "bos": 0, "eos": 2}
    assert tokenizer.roles == ids and tokenizer.special_ids == (0, 1, 2, 3, mask)
    assert tokenizer.template == Template((0,), (2, 2), (2,), second_type=0)
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id) == (1, 0, 2)
    assert tokenizer.word_links is None


def test_ids_are_the_librarys(file):
    """As text, where no special token stands in it; and as prompts always."""
    tokenizer, library = Tokenizer.open(file), Library.from_file(str(file))
    library.post_processor = None
    expected = [each.ids for each in library.encode_batch(TEXTS)]
    assert tokenizer.encode(TEXTS, special=True) == expected
    unmarked = [text for text in TEXTS if not any(name in text for name in (*SPECIAL, "<mask>"))]
    assert len(unmarked) > 500
    assert tokenizer.encode(unmarked) == [each.ids for each in library.encode_batch(unmarked)]
    assert tokenizer.decode(expected[0]) == library.decode(expected[0])


def test_no_text_becomes_a_special_token(file):
    """To the library, <s> in a text is the piece of that name, which is a probable one."""
    tokenizer, library = Tokenizer.open(file), Library.from_file(str(file))
    library.encode_special_tokens = True
    assert 0 in library.encode("the<s>", add_special_tokens=False).ids
    made = {*chain(*tokenizer.encode(TEXTS))} & {*tokenizer.special_ids}
    assert made == {tokenizer.unk_id}  # of characters that the vocabulary lacks
    (ids,) = tokenizer.encode(["the<s> <mask>"])
    pieces = "\u2581the < s > \u2581 < mask >".split()
    assert [tokenizer.tokens[i] for i in ids] == pieces
    (ids,) = tokenizer.encode(["the <mask> s"], special=True)
    assert [tokenizer.tokens[i] for i in ids] == ["\u2581the", "<mask>", "\u2581", "s"]


def test_an_added_token_that_is_not_special_is_found_in_text(tmp_path):
    """Special ones have other names for the reader of text, but not this one."""
    made, number = content(), PIECES.index("mask")
    made["added_tokens"].append(added(number, "mask"))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(made))
    (ids,) = Tokenizer.open(path).encode(["the mask cat"])
    assert [PIECES[each] for each in ids] == ["\u2581the", "mask", "\u2581cat"]
    assert ids == Library.from_file(str(path)).encode("the mask cat", add_special_tokens=False).ids


def test_words(file):
    """The mark begins a word; special tokens are none."""
    tokenizer = Tokenizer.open(file)
    (ids,) = tokenizer.encode(["the cats, \u4e2d\u6587 sat"])
    begins = ~tokenizer.continues_word[ids]
    words = [tokenizer.decode(word) for word in np.split(np.array(ids), np.flatnonzero(begins)[1:])]
    assert words == ["the", "cats,", "\u4e2d\u6587", "sat"]
    assert not tokenizer.continues_word[list(tokenizer.special_ids)].any()
    texts = [["the", "cats"], [], ["\u4e2d\u6587", "<s>"]]
    found = [list(chain(*words)) for words in tokenizer.encode_words(texts)]
    assert found == tokenizer.encode([" ".join(text) for text in texts])
    (text,) = TextEncoder(tokenizer, "words", 20).encode(["the cats ||| sat"])
    assert text.tokens == ["the", "cats", "sat"]
    assert [tokenizer.tokens[i] for i in text.ids] == (
        "<s> \u2581the \u2581cat s </s> </s> \u2581sat </s>".split()
    )
    assert text.groups.tolist() == [-1, 0, 1, 1, -1, -1, 2, -1]
    assert not text.token_types.any()


def test_offsets(file):
    tokenizer = Tokenizer.open(file)
    encoded = tokenizer.encode_with_offsets(TEXTS)
    assert [ids for ids, _ in encoded] == tokenizer.encode(TEXTS)
    for text, (ids, offsets) in zip(TEXTS, encoded, strict=True):
        assert offsets.dtype == np.int32 and offsets.shape == (len(ids), 2)
        assert np.all(np.diff(offsets, axis=0) >= 0)
        for start, end in offsets:
            assert 0 <= start <= end <= len(text)
            assert text[start:end] == text[start:end].strip()
    text = "  the \u00bdcats, cafe\u0301\u3000\u4e2d."
    ((ids, offsets),) = tokenizer.encode_with_offsets([text])
    shown = [f"{tokenizer.tokens[i]}|{text[a:b]}" for i, (a, b) in zip(ids, offsets, strict=True)]
    assert shown == [
        *("\u2581the|the", "\u2581|\u00bd", "1|\u00bd", "\u2044|\u00bd", "2|\u00bd"),
        *("c|c", "a|a", "t|t", "s|s", ",|,", "\u2581|c", "caf\u00e9|cafe\u0301"),
        *("\u2581|\u4e2d", "\u4e2d|\u4e2d", ".|."),
    ]


def test_save_and_open_a_folder(tmp_path, file):
    tokenizer = Tokenizer.open(file)
    tokenizer.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["unigram.json", "vocabulary.json"]
    description = json.loads((tmp_path / "vocabulary.json").read_text())
    assert description["special_tokens"]["mask"] == "<mask>" and "template" not in description
    again = Tokenizer.open(tmp_path)
    assert again.identity == tokenizer.identity and again.template == tokenizer.template
    assert again.encode(TEXTS[:200], special=True) == tokenizer.encode(TEXTS[:200], special=True)

    description["special_tokens"]["mask"] = 3
    (tmp_path / "vocabulary.json").write_text(json.dumps(description))
    with pytest.raises(
        InputError, match=r"vocabulary\.json: .*special_tokens\['mask'\]=3: expected"
    ):
        Tokenizer.open(tmp_path)


def test_another_template_is_another_identity(tmp_path, file):
    """And so are other roles; weights and corpora agree only if scores and templates do."""
    tokenizer, changed = Tokenizer.open(file), content()
    cls, sep = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("<s>", "</s>"))
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    named = {name: {"id": name, "ids": [number]} for name, number in (("<s>", 0), ("</s>", 2))}
    changed["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [a, sep, cls],
        "pair": [a, sep, b, sep, cls],
        "special_tokens": named,
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(changed), "utf-8")
    other = Tokenizer.open(path)
    assert other.template == Template((), (2,), (2, 0), second_type=0)
    assert other.vocabulary == tokenizer.vocabulary and other.identity != tokenizer.identity
    other.save(tmp_path)
    again = Tokenizer.open(tmp_path)
    assert again.template == other.template and again.identity == other.identity
    assert extends(other, again) and not extends(other, tokenizer)

    changed = content()
    changed["model"]["vocab"][5][1] = -1.5
    path.write_text(json.dumps(changed), "utf-8")
    assert not extends(Tokenizer.open(path), tokenizer)


def test_a_role_that_is_absent(tmp_path):
    changed = content()
    changed["added_tokens"] = changed["added_tokens"][:4]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(changed), "utf-8")
    names = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    tokenizer = Tokenizer("unigram", path.read_bytes(), str(path), special_tokens=names)
    assert tokenizer.roles == {"pad": 1, "unk": 3, "bos": 0, "eos": 2}
    assert tokenizer.pad_id == 1 and tokenizer.special_ids == (0, 1, 2, 3)
    for role in ("cls", "sep", "mask"):
        with pytest.raises(InputError, match=f"no special token for '{role}' .it has <s>, <pad>"):
            getattr(tokenizer, f"{role}_id")


NEVER = {**MARK, "prepend_scheme": "never"}


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (["model", "vocab"], [], "no model with a vocabulary and an unk_id in it"),
        (["model", "unk_id"], None, "no model with a vocabulary and an unk_id in it"),
        (["model", "unk_id"], 99, "cannot read it: "),
        (["model", "byte_fallback"], True, "model.byte_fallback is True, where a unigram model"),
        (["model", "vocab", 5], ["a"], r"model.vocab\[5\]=\['a'\]: expected `array` of length 2"),
        (["model", "vocab", 5], ["s", 0], "'\u2581sat' has id 6, and is number 5 in the order"),
        (["pre_tokenizer"], None, r"the types of its pre_tokenizer is \[\], where"),
        (["pre_tokenizer"], NEVER, "pre_tokenizer.prepend_scheme is 'never', where"),
        (["pre_tokenizer", "pretokenizers", 0, "type"], "Digits", "types of its pre_tokenizer is"),
        (["pre_tokenizer", "pretokenizers", 1, "replacement"], "_", "replacement is '_', where"),
        (["pre_tokenizer", "pretokenizers", 1, "split"], False, "split is False, where"),
        (["normalizer"], {"type": "Prepend"}, "its normalizer is 'Prepend'; bertjax reads Precom"),
        (["added_tokens"], [], r"\[PAD\] .* \[MASK\] not among its special tokens"),
        (["added_tokens", 4, "id"], 9, r"added token '<mask>' has id 9, where the next is"),
        (["post_processor", "cls"], ["<s>", 2], "post_processor has id 2 for '<s>', and the voc"),
        (["post_processor", "type"], "Other", r"its post_processor \(Other\) puts texts otherwise"),
        (["post_processor", "cls"], None, r"its post_processor \(RobertaProcessing\) puts texts"),
        (["post_processor", "sep"], 3, "post_processor.sep=3: expected `array"),
    ],
    ids=str,
)
def test_refused_files(tmp_path, keys, value, message):
    changed = content()
    put(changed, keys, value)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(changed), "utf-8")
    with pytest.raises(InputError, match=message) as raised:
        Tokenizer.open(path)
    assert str(raised.value).startswith(f"{path}: ") and "\n" not in str(raised.value)


TEXT_A, TEXT_B = ({"Sequence": {"id": name, "type_id": n}} for n, name in enumerate("AB"))
SEP = {"SpecialToken": {"id": "</s>", "type_id": 0}}


@pytest.mark.parametrize(
    ("single", "pair"),
    [
        ([TEXT_A, SEP], [TEXT_A, TEXT_B]),  # another end in pairs
        ([TEXT_A], [TEXT_B, TEXT_A]),
        ([TEXT_A], [TEXT_A]),
        ([SEP, SEP], [TEXT_A, TEXT_B]),
        ([TEXT_A, SEP], [TEXT_A, TEXT_B, SEP, SEP]),
        ([TEXT_A, {"SpecialToken": {"id": "<x>", "type_id": 0}}], [TEXT_A, TEXT_B]),
        ([TEXT_A], [TEXT_A, {"SpecialToken": {"id": "<x>", "type_id": 0}}, TEXT_B]),
        ([TEXT_A, {}], []),
    ],
    ids=str,
)
def test_templates_that_are_refused(tmp_path, single, pair):
    changed = content()
    changed["post_processor"] = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}},
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(changed), "utf-8")
    with pytest.raises(InputError, match=r"its post_processor \(TemplateProcessing\) puts texts"):
        Tokenizer.open(path)
