"""Byte-level BPE: ids as the library's, words, positions, and files that are refused."""

import json
import random
import re
import unicodedata
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Library
from tokenizers.pre_tokenizers import ByteLevel

from bertjax.base.errors import InputError
from bertjax.inference import blanks
from bertjax.inference.features.texts import TextEncoder
from bertjax.text import spaced_bpe
from bertjax.text.extension import extends
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn
from tests.text.hard_texts import HARD_TEXTS
from tests.text.small_vocabularies import SENTENCES, added, put


@pytest.fixture(scope="module")
def learned(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("learned") / "bpe.json"
    learn("bpe", SENTENCES, path, size=320, cased=True)
    return path


@pytest.fixture(scope="module")
def modern(learned) -> Path:
    """A file in the form of ModernBERT's: tokens added in the vocabulary and after it."""
    content = json.loads(learned.read_text("utf-8"))
    special = content["added_tokens"]
    names = ["   ", "  ", "|||IP|||", "<|endoftext|>", "[unused0]"]
    for number, name in enumerate(names, start=320):
        settings = {"special": True} if name.startswith("<") else {"normalized": True}
        special.append(added(number, name, **settings))
    content["model"]["vocab"]["|||IP|||"] = 322  # as |||IP_ADDRESS||| of the original
    content["model"]["vocab"] |= {"   ": 320, "  ": 321}
    content["post_processor"] = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": True,
    }
    path = learned.with_name("tokenizer.json")
    path.write_text(json.dumps(content), "utf-8")
    return path


@pytest.fixture(scope="module")
def prefixed(learned) -> Path:
    """A file that puts a space before a text, under RoBERTa's names."""
    content = json.loads(learned.read_text("utf-8"))
    content["pre_tokenizer"]["add_prefix_space"] = True
    names = dict(zip(SPECIAL_TOKENS, ["<pad>", "<unk>", "<s>", "</s>", "<mask>"], strict=True))
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = {names.get(piece, piece): n for piece, n in vocabulary.items()}
    for token in content["added_tokens"]:
        token["content"] = names[token["content"]]
    path = learned.with_name("prefixed.json")
    path.write_text(json.dumps(content), "utf-8")
    return path


def random_texts(count: int) -> list[str]:
    """Texts with characters of one to four bytes, marks, jamo, controls, and runs of spaces."""
    numbers = random.Random(0)
    pool = [*("thecasonmi" * 6), *(" " * 30), *"THE0123456789.,'()[]|<>\u00bd\u00e9\u00df\u0130"]
    pool += ["\u0301", "\u0323", "\u4e2d", "\u1112", "\u1161", "\u11ab", "\uac00", "\U0001f600"]
    pool += [*"\x00\x1c\x7f\x85\xa0\xad\u200b\u2028\u3000\ufeff\ufffd\t\n\r\n", "\u0939\u093f"]
    pool += ["don't", "[MASK]", " [MASK] ", "[SEP]", "<|endoftext|>", "|||IP|||", "[unused0]"]
    pool += [chr(code) for code in numbers.sample(range(0xA0, 0xD800), 60)]
    return ["".join(numbers.choices(pool, k=n % 40)) for n in range(count)]


TEXTS = [*HARD_TEXTS, *SENTENCES[:3], *random_texts(2000)]


@pytest.mark.parametrize("name", ["learned", "modern"])
def test_ids_are_the_librarys(request, name):
    path = request.getfixturevalue(name)
    library, tokenizer = Library.from_file(str(path)), Tokenizer.open(path)
    library.post_processor = None
    assert tokenizer.vocabulary_size == library.get_vocab_size() == {"learned": 320}.get(name, 325)
    assert tokenizer.tokens == [library.id_to_token(i) for i in range(len(tokenizer.tokens))]
    for special in (False, True):
        library.encode_special_tokens = not special
        expected = [each.ids for each in library.encode_batch(TEXTS)]
        assert tokenizer.encode(TEXTS, special=special) == expected
        if not special:
            assert not {*chain(*expected)} & set(tokenizer.special_ids)
            whole = [unicodedata.normalize("NFC", text) for text in TEXTS]
            assert [tokenizer.decode(ids) for ids in expected] == whole
    (ids,) = tokenizer.encode(["the [MASK] on"], special=True)
    assert [tokenizer.tokens[i] for i in ids[-2:]] == ["[MASK]", "\u0120on"]
    assert tokenizer.tokens[ids[-3]] != "\u0120"  # [MASK] has the space before it


def plain_bpe(file: Path, texts: list[str]) -> list[list[int]]:
    """Byte-level BPE as in GPT-2's encoder.py (Radford et al., 2019), without a library.

    `re` does not know \\p{L} and \\p{N}, so the pattern lists the characters of `texts`.
    """
    model = json.loads(file.read_text("utf-8"))["model"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letter_of = {byte: chr(byte) for byte in printable}
    letter_of |= {byte: chr(256 + number) for number, byte in enumerate(others)}

    texts = [unicodedata.normalize("NFC", text) for text in texts]
    letter, number = (
        "".join(re.escape(c) for c in set(chain(*texts)) if unicodedata.category(c)[0] == kind)
        for kind in "LN"
    )
    space = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
    words = re.compile(
        f"'s|'t|'re|'ve|'m|'ll|'d| ?[{letter}]+| ?[{number}]+| ?[^{space}{letter}{number}]+"
        f"|[{space}]+(?![^{space}])|[{space}]+"
    )

    @cache
    def pieces(word: str) -> list[int]:
        symbols = [letter_of[byte] for byte in word.encode()]
        while pairs := [pair for pair in pairwise(symbols) if pair in ranks]:
            first, second = min(pairs, key=ranks.__getitem__)
            merged, rest = [], symbols
            while rest:
                whole = rest[:2] == [first, second]
                merged.append(first + second if whole else rest[0])
                rest = rest[1 + whole :]
            symbols = merged
        return [model["vocab"][symbol] for symbol in symbols]

    return [[*chain(*map(pieces, words.findall(text)))] for text in texts]


def test_ids_are_those_of_gpt_2s_rules(learned):
    assert Tokenizer.open(learned).encode(TEXTS) == plain_bpe(learned, TEXTS)


def test_attributes(modern):
    tokenizer = Tokenizer.open(modern)
    assert (tokenizer.kind, tokenizer.cased, tokenizer.keeps_spaces) == ("bpe", True, True)
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert [tokenizer.tokens[i] for i in tokenizer.special_ids] == list(SPECIAL_TOKENS)
    assert (tokenizer.pad_id, tokenizer.cls_id, tokenizer.mask_id) == (0, 2, 4)
    (ids,) = tokenizer.encode(["The cat\n\U0001f600   sat"])
    readable = [tokenizer.readable[i] for i in ids]
    assert readable == ["The", " cat", "\\n", "\\xf0", "\\x9f", "\\x98", "\\x80", "   ", "sat"]


# ------------------------------------------------------------------------------ the words


def test_words_are_those_of_the_pre_tokenizer(learned):
    """But where a contraction or a character is split over pieces, and in runs of white space."""
    tokenizer, library = Tokenizer.open(learned), Library.from_file(str(learned))
    library.encode_special_tokens = True
    pool = [*("thecasonmi" * 6), *(" " * 30), *"THE0123456789.,()[]|\u00e9\n\n\t\u4e2d\u6587"]
    numbers = random.Random(1)
    texts = SENTENCES + ["".join(numbers.choices(pool, k=60)) for _ in range(300)]
    into, out_of = tokenizer.word_links
    np.testing.assert_array_equal(tokenizer.continues_word, into > 0)
    inside = 0
    for text, encoding in zip(texts, library.encode_batch(texts), strict=True):
        ids, words = np.array(encoding.ids), np.array(encoding.word_ids)
        goes_on = (into[ids[1:]] & out_of[ids[:-1]]) != 0
        solid = np.array([tokenizer.decode([i]).strip() != "" for i in ids[1:]])
        expected = words[1:] == words[:-1]
        np.testing.assert_array_equal(goes_on[solid], expected[solid], err_msg=repr(text))
        inside += goes_on.sum()
    assert inside > 5000


def test_classes_of_characters():
    """A word goes on with characters of the class of its last one; a mark is no letter."""
    split = ByteLevel(add_prefix_space=False).pre_tokenize_str
    classes = {"a": spaced_bpe._LETTER, "1": spaced_bpe._NUMBER, "-": spaced_bpe._OTHER}
    characters = [*map(chr, range(0x21, 0x860)), *"\u2167\u20ac\u0905\u093e\u094d\u4e2d\U0001f642"]
    for character in characters:
        goes_on = [kind for last, kind in classes.items() if len(split(last + character)) == 1]
        assert [spaced_bpe._class_of(character)] == (goes_on or [0]), repr(character)


def test_a_character_in_parts_is_in_one_word(learned):
    tokenizer = Tokenizer.open(learned)
    into, out_of = tokenizer.word_links
    (ids,) = tokenizer.encode(["mat \U0001f600\u0939x [MASK]. \u2028the"])
    goes_on = [False, *((into[ids[1:]] & out_of[ids[:-1]]) != 0).tolist()]
    starts = np.flatnonzero(~np.array(goes_on))
    words = [tokenizer.decode(word) for word in np.split(np.array(ids), starts[1:])]
    assert words[:4] == ["mat", " \U0001f600\u0939x", " [", "MASK"]
    assert words[4].startswith("].") and words[-1].endswith("the")


def test_a_space_before_a_text(prefixed, learned):
    tokenizer, library = Tokenizer.open(prefixed), Library.from_file(str(prefixed))
    library.encode_special_tokens = True
    assert tokenizer.encode(TEXTS) == [each.ids for each in library.encode_batch(TEXTS)]
    spaced = [text if not text or text[0] == " " else f" {text}" for text in TEXTS]
    assert tokenizer.encode(TEXTS) == Tokenizer.open(learned).encode(spaced)
    assert tokenizer.roles == {
        "pad": 0,
        "unk": 1,
        "cls": 2,
        "sep": 3,
        "mask": 4,
        "bos": 2,
        "eos": 3,
    }
    assert tokenizer.template.sequence([9], [8]).ids == [2, 9, 3, 3, 8, 3]
    texts = ["The cat isn't on a mat .", "", "caf\u00e9 5"]
    words = tokenizer.encode_words([text.split() for text in texts])
    assert [list(chain(*each)) for each in words] == tokenizer.encode(texts)


def test_words_of_a_sentence_have_their_spaces(modern):
    tokenizer = Tokenizer.open(modern)
    texts = ["The cat isn't on a mat .", "", "caf\u00e9 \u4e2d\u6587 5"]
    words = tokenizer.encode_words([text.split() for text in texts])
    assert [list(chain(*each)) for each in words] == tokenizer.encode(texts)
    assert [len(each) for each in words] == [7, 0, 3]


def test_features_and_guesses_are_readable(modern):
    tokenizer = Tokenizer.open(modern)
    (text,) = TextEncoder(tokenizer, "tokens", 9).encode(["The cat \u4e2d"])
    assert text.tokens == ["[CLS]", "The", " cat", " \u4e2d", "[SEP]"]
    (text,) = TextEncoder(tokenizer, "words", 20).encode(["The cat\u3000\u4e2d isn't"])
    assert text.tokens == ["The", "cat", "\u4e2d", "isn't"]
    assert text.ids[1:-1].tolist() == tokenizer.encode(["The cat \u4e2d isn't"])[0]
    chance = np.zeros(tokenizer.vocabulary_size)
    chance[tokenizer.tokens.index("\u0120cat")] = 0.75
    (guess,) = blanks._best(chance, tokenizer, 1)
    assert guess == (" cat", 0.75)


# ---------------------------------------------------------------------------- the offsets


@pytest.mark.parametrize("name", ["modern", "prefixed"])
def test_offsets_cover_the_text(request, name, monkeypatch):
    tokenizer = Tokenizer.open(request.getfixturevalue(name))
    monkeypatch.setattr(type(tokenizer._pieces), "_TEXTS_AT_ONCE", 7)
    encoded = tokenizer.encode_with_offsets(TEXTS)
    assert [ids for ids, _ in encoded] == tokenizer.encode(TEXTS)
    for text, (ids, offsets) in zip(TEXTS, encoded, strict=True):
        assert offsets.dtype == np.int32 and offsets.shape == (len(ids), 2)
        assert np.all(np.diff(offsets, axis=0) >= 0)
        inside = np.zeros(len(text), bool)
        for start, end in offsets:
            assert 0 <= start <= end <= len(text)
            inside[start:end] = True
            assert text[start:end] == text[start:end].strip()
        assert all(inside[n] or character.isspace() for n, character in enumerate(text))


def test_offsets_of_a_piece_are_its_characters(learned):
    tokenizer = Tokenizer.open(learned)
    whole = 0
    for text in SENTENCES + [text for text in TEXTS if unicodedata.is_normalized("NFC", text)]:
        ((ids, offsets),) = tokenizer.encode_with_offsets([text])
        for i, (start, end) in zip(ids, offsets, strict=True):
            piece = tokenizer._pieces.decode([i])
            if "\ufffd" not in piece:
                assert text[start:end] == piece.strip()
                whole += 1
            else:  # an incomplete character
                assert text[start:end].startswith(piece.partition("\ufffd")[0].lstrip())
    assert whole > 10_000


def test_what_becomes_one_character_is_one_span(learned):
    tokenizer = Tokenizer.open(learned)
    text = " cafe\u0301 \u1112\u1161\u11ab \U0001f600x"
    ((ids, offsets),) = tokenizer.encode_with_offsets([text])
    spans = list(dict.fromkeys(text[start:end] for start, end in offsets))
    assert "".join(spans) == text.replace(" ", "")
    assert spans[-2:] == ["\U0001f600", "x"] and "\u1112\u1161\u11ab" in spans
    assert any(span.endswith("e\u0301") for span in spans)


# ------------------------------------------------------------------------------ the files


def test_the_form_of_the_file_does_not_matter(tmp_path, learned):
    """Merges as lists or texts, and what transformers adds: padding, truncation, a template."""
    content = json.loads(learned.read_text("utf-8"))
    tokenizer = Tokenizer.open(learned)
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    content["truncation"] = {
        "direction": "Right",
        "max_length": 3,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    content["decoder"] = None
    del content["model"]["ignore_merges"]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content, indent=1), "utf-8")
    other = Tokenizer.open(path)
    assert other.identity == tokenizer.identity
    assert other.encode(SENTENCES[:2]) == tokenizer.encode(SENTENCES[:2])
    assert other.decode(other.encode(SENTENCES)[5]) == SENTENCES[5]


def test_save_and_open_a_folder(tmp_path, modern):
    tokenizer = Tokenizer.open(modern)
    tokenizer.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bpe.json", "vocabulary.json"]
    again = Tokenizer.open(tmp_path)
    assert again.identity == tokenizer.identity
    assert again.encode(TEXTS[:300], special=True) == tokenizer.encode(TEXTS[:300], special=True)
    with pytest.raises(InputError, match=r"says cased=True, asked for False"):
        Tokenizer.open(tmp_path, cased=False)
    with pytest.raises(InputError, match=r"tokenizer\.json: says cased=True, asked for False"):
        Tokenizer.open(modern, cased=False)


def test_weights_and_corpus_must_have_the_same_merges(tmp_path, learned):
    content = json.loads(learned.read_text("utf-8"))
    content["model"]["merges"].reverse()
    (tmp_path / "other.json").write_text(json.dumps(content), "utf-8")
    one, other = Tokenizer.open(learned), Tokenizer.open(tmp_path / "other.json")
    assert one.tokens == other.tokens and not extends(other, one)
    assert extends(one, Tokenizer.open(learned))


def test_lower_case_is_as_the_file_says(tmp_path):
    path = tmp_path / "bpe.json"
    learn("bpe", SENTENCES, path, size=300, cased=False)
    tokenizer = Tokenizer.open(path)
    assert not tokenizer.cased
    assert tokenizer.encode(["The CAT"]) == tokenizer.encode(["the cat"])
    ((_, offsets),) = tokenizer.encode_with_offsets(["\u0130x"])  # it becomes two characters
    assert offsets[-1].tolist() == [1, 2] and offsets[0].tolist() == [0, 1]


def test_half_a_surrogate_pair_is_refused(learned):
    tokenizer = Tokenizer.open(learned)
    for encode in (tokenizer.encode, tokenizer.encode_with_offsets):
        with pytest.raises(InputError, match=r"text 1 \(of 2.*character 4 is U\+D83D, half"):
            encode(["the", "the \ud83d"])


MASK = {"id": 4, "content": "[MASK]", "special": True}
SEQUENCE = {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]}


@pytest.mark.parametrize(
    "keys, value, message",
    [
        (["model"], None, "no model with a vocabulary and merges in it.*vocab.txt for WordPiece"),
        (["model", "merges"], None, "no model with a vocabulary and merges"),
        (["model", "type"], "WordPiece", "model.type is 'WordPiece', where .* has 'BPE'"),
        (["model", "type"], "Unigram", "model.type is 'Unigram', where a byte-level BPE has"),
        (["model", "vocab"], [["a", 0.5]], r"model.vocab=\[\['a', 0.5\]\]: expected `object"),
        (["model", "vocab", "Z"], "1", r"model.vocab\['Z'\]='1': expected `int`"),
        (["model", "vocab", "Z"], 700, r"'\[' has id 63, and is number 62 in the order of ids"),
        (["model", "vocab", "Z"], 7, "has id 7, and is number 8 in the order of ids"),
        (["model", "merges", 3], ["a"], r"model.merges\[3\]=\['a'\]: expected `array` of length 2"),
        (["model", "merges", 3], "ab", r"model.merges\[3\] is 'ab', must be two pieces"),
        (["model", "merges", 3], "a b c", r"model.merges\[3\] is 'a b c', must be two pieces"),
        (["model", "merges", 3], ["a", "zz"], r"cannot read it: Token `zz` out of vocabulary"),
        (["model", "byte_fallback"], True, "model.byte_fallback is True, where"),
        (["model", "dropout"], 0.1, "model.dropout is 0.1, where .* has None"),
        (["model", "end_of_word_suffix"], "@", "model.end_of_word_suffix is '@'"),
        (["pre_tokenizer"], None, "last type of its pre_tokenizer is None, where"),
        (["pre_tokenizer"], SEQUENCE, "last type of its pre_tokenizer is 'Digits'"),
        (["pre_tokenizer"], {"type": "ByteLevel"}, "add_prefix_space is None, where"),
        (["normalizer"], {"type": "Strip"}, "its normalizer is 'Strip'; bertjax reads NFC"),
        (["added_tokens"], [], r"\[PAD\] .* \[MASK\] not among its special tokens"),
        (["added_tokens", 4, "special"], False, r"\[MASK\] not among its special tokens: it needs"),
        (["added_tokens", 4], MASK, "cannot read it: missing field"),
        (["added_tokens", 4], {"id": 4}, r"added_tokens\[4\]={'id': 4}: .* field `content`"),
        (["added_tokens", 4, "id"], 9, r"added token '\[MASK\]' has id 9, where the next is 4"),
    ],
    ids=str,
)
def test_what_is_no_byte_level_bpe_is_refused(tmp_path, learned, keys, value, message):
    content = json.loads(learned.read_text("utf-8"))
    put(content, keys, value)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(InputError, match=message) as raised:
        Tokenizer.open(path)
    assert str(raised.value).startswith(f"{path}: ") and "\n" not in str(raised.value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[]", b'{"model": 3}'])
def test_damaged_files(tmp_path, data):
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(InputError, match=r"tokenizer\.json: .*download it again"):
        Tokenizer.open(tmp_path / "tokenizer.json")
