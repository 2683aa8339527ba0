"""The common interface of WordPiece and SentencePiece."""

import hashlib
import json
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.wordpiece import bert_wordpiece
from tests.text.hard_texts import HARD_TEXTS
from tests.text.hard_texts import PIECES as HARD_PIECES
from tests.text.small_vocabularies import ACCENTED, CHAIRS, LETTERS, random_texts, wordpiece

PIECES = [
    *SPECIAL_TOKENS,
    *"the cat un ##aff ##able ##s paris is of france . , [ ] mask ! Paris".split(),
]


def write_vocabulary(path: Path, pieces: list[str]) -> Path:
    path.write_bytes("".join(f"{piece}\n" for piece in pieces).encode())
    return path


@pytest.fixture
def tokenizer():
    return wordpiece(PIECES, cased=False)


def ids_of(*pieces):
    return [PIECES.index(piece) for piece in pieces]


def test_wordpiece_is_greedy_longest_match_first(tokenizer):
    assert tokenizer.encode(["The CATS, unaffable.", "", "dog the"]) == [
        ids_of("the", "cat", "##s", ",", "un", "##aff", "##able", "."),
        [],
        ids_of("[UNK]", "the"),
    ]


@pytest.mark.parametrize("text", HARD_TEXTS, ids=ascii)
def test_hard_texts(tmp_path, text):
    path = write_vocabulary(tmp_path / "vocab.txt", HARD_PIECES)
    tokenizer = Tokenizer.open(path, cased=False)
    (ids,) = tokenizer.encode([text], special=True)
    assert " ".join(tokenizer.tokens[i] for i in ids) == HARD_TEXTS[text]


def test_half_a_surrogate_pair_is_refused(tokenizer, model_file):
    for each in (tokenizer, Tokenizer.open(model_file)):
        for special in (False, True):
            with pytest.raises(InputError, match=r"text 1 \(of 2.*character 4 is U\+D83D, half"):
                each.encode(["the", "the \ud83d"], special=special)


def test_attributes(tokenizer):
    assert tokenizer.kind == "wordpiece" and not tokenizer.cased
    assert tokenizer.vocabulary_size == len(PIECES) and tokenizer.tokens == PIECES
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id) == (0, 1, 2)
    assert (tokenizer.sep_id, tokenizer.mask_id) == (3, 4)
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert np.flatnonzero(~tokenizer.ordinary).tolist() == [0, 1, 2, 3, 4]
    continuing = [PIECES[i] for i in np.flatnonzero(tokenizer.continues_word)]
    assert continuing == ["##aff", "##able", "##s"]


def test_special_tokens_come_only_from_prompts(tokenizer):
    text = "Paris is [MASK]."
    masked = ids_of("paris", "is", "[MASK]", ".")
    assert tokenizer.encode([text], special=True) == [masked]
    assert tokenizer.encode([text]) == [ids_of("paris", "is", "[", "mask", "]", ".")]
    assert tokenizer.encode(["[CLS][MASK] the [SEP]"], special=True) == [
        ids_of("[CLS]", "[MASK]", "the", "[SEP]")
    ]
    assert tokenizer.decode(masked) == "paris is [MASK]."


def test_a_word_of_more_than_100_characters_is_unknown(tokenizer):
    assert tokenizer.encode(["s" + "s" * 100, "the"]) == [ids_of("[UNK]"), ids_of("the")]


@pytest.mark.parametrize("cased", [False, True])
def test_word_cache_changes_nothing(tmp_path, cased, monkeypatch):
    """The ids equal the library's, on difficult text and with a cache that overflows."""
    texts = random_texts(3000)
    pieces = [*LETTERS, *ACCENTED, *".,![]'", "ab", "##bc", "##cde"]
    pieces = list(dict.fromkeys([*SPECIAL_TOKENS, *pieces, *(f"##{c}" for c in LETTERS)]))
    tokenizer = Tokenizer.open(write_vocabulary(tmp_path / "vocab.txt", pieces), cased=cased)
    monkeypatch.setattr(type(tokenizer._pieces), "_CACHE_BYTES", 100_000)
    library = bert_wordpiece({piece: i for i, piece in enumerate(pieces)}, cased=cased)
    expected = [library.encode(text, add_special_tokens=False).ids for text in texts]
    got = []
    for start in range(0, len(texts), 100):
        got += tokenizer.encode(texts[start : start + 100])
    assert got == expected
    assert sum(map(len, got)) > 10_000


def test_the_word_cache_is_bounded_by_memory(tmp_path, monkeypatch):
    """With words of 45 Chinese characters, 45 ids each, the counted memory is the real one."""
    characters = [chr(0x4E00 + n) for n in range(3000)]
    path = write_vocabulary(tmp_path / "vocab.txt", [*SPECIAL_TOKENS, *characters])
    pieces = Tokenizer.open(path)._pieces
    numbers = random.Random(0)
    texts = [" ".join("".join(numbers.choices(characters, k=45)) for _ in range(50))]
    pieces.encode(texts)
    counted = []
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(40):
            pieces.encode([" ".join("".join(numbers.choices(characters, k=45)) for _ in range(50))])
            counted.append(pieces._cached_bytes)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(pieces._cache) == 41 * 50
    assert 0.7 < (counted[-1] - counted[0]) * 40 / 39 / taken < 1.4

    monkeypatch.setattr(type(pieces), "_CACHE_BYTES", 500_000)
    sizes = []
    for _ in range(40):
        pieces.encode([" ".join("".join(numbers.choices(characters, k=45)) for _ in range(50))])
        sizes.append(len(pieces._cache))
    assert 100 < max(sizes) * (160 + 45 + 40 * 45) <= 500_000
    assert 0 in sizes[1:]


def test_only_a_line_feed_ends_a_line(tmp_path):
    pieces = [*SPECIAL_TOKENS, "a\u2028b", "\x85", "the"]
    tokenizer = Tokenizer.open(write_vocabulary(tmp_path / "vocab.txt", pieces))
    assert tokenizer.vocabulary_size == 8
    assert tokenizer.encode(["the"]) == [[7]]


def test_dos_line_ends_and_a_missing_last_line_end(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join([*SPECIAL_TOKENS, "the"]).encode())
    assert Tokenizer.open(path).encode(["the"]) == [[5]]


def test_case_is_seen_from_the_pieces(tmp_path):
    cased = Tokenizer.open(write_vocabulary(tmp_path / "a.txt", PIECES))
    assert cased.cased and cased.tokens[cased.encode(["Paris"])[0][0]] == "Paris"
    assert not Tokenizer.open(write_vocabulary(tmp_path / "b.txt", PIECES[:-1])).cased


def test_bad_vocabularies(tmp_path):
    path = tmp_path / "vocab.txt"
    with pytest.raises(InputError, match=r"vocab\.txt: no such vocabulary file"):
        Tokenizer.open(path)
    write_vocabulary(path, [piece for piece in PIECES if piece not in ("[MASK]", "[SEP]")])
    with pytest.raises(InputError, match=r"vocab\.txt: \[SEP\] \[MASK\] not among its"):
        Tokenizer.open(path)
    write_vocabulary(path, [*PIECES, "cat"])
    with pytest.raises(InputError, match=rf"lines 7 and {len(PIECES) + 1} are both 'cat'"):
        Tokenizer.open(path)
    path.write_bytes(b"[PAD]\n\xff\xfe\n")
    with pytest.raises(InputError, match="not UTF-8 at byte 6"):
        Tokenizer.open(path)
    (tmp_path / "bad.model").write_bytes(b"no model")
    with pytest.raises(InputError, match="not a SentencePiece model"):
        Tokenizer.open(tmp_path / "bad.model")


def test_save_and_open_a_folder(tmp_path, tokenizer, model_file):
    for name, one in {"a": tokenizer, "b": Tokenizer.open(model_file)}.items():
        folder = tmp_path / name
        folder.mkdir()
        one.save(folder)
        again = Tokenizer.open(folder)
        assert again.identity == one.identity and again.cased == one.cased
        assert again.encode(CHAIRS[:3]) == one.encode(CHAIRS[:3])


def test_bad_folders(tmp_path, tokenizer):
    with pytest.raises(InputError, match=r"no vocabulary\.json in this folder"):
        Tokenizer.open(tmp_path)
    tokenizer.save(tmp_path)
    with pytest.raises(InputError, match="says cased=False, asked for True"):
        Tokenizer.open(tmp_path, cased=True)
    write_vocabulary(tmp_path / "vocab.txt", [*PIECES, "another"])
    with pytest.raises(InputError, match=r"vocab\.txt: not the file that .*vocabulary\.json"):
        Tokenizer.open(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(InputError, match=r"vocab\.txt: missing"):
        Tokenizer.open(tmp_path)
    description = json.loads((tmp_path / "vocabulary.json").read_text())
    for content in (
        *({"version": "1.0"}, None, []),
        *(description | {"file": 7}, description | {"kind": "letters"}),
    ):
        (tmp_path / "vocabulary.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match="does not describe a tokenizer of ours"):
            Tokenizer.open(tmp_path)
    (tmp_path / "vocabulary.json").write_text(json.dumps(description | {"file": "../vocab.txt"}))
    with pytest.raises(InputError, match=r"vocabulary\.json: names the file '\.\./vocab\.txt'"):
        Tokenizer.open(tmp_path)


# "\u00e9" and a Chinese character in a word, by strip_accents and tokenize_chinese_chars.
RULES = {
    (None, True): "cafe a \u4e2d a",
    (False, True): "caf\u00e9 a \u4e2d a",
    (None, False): "cafe a ##\u4e2da",
    (False, False): "caf\u00e9 a ##\u4e2da",
}


@pytest.mark.parametrize("strip, chinese", RULES)
def test_rules_that_are_not_berts(tmp_path, strip, chinese):
    pieces = [*SPECIAL_TOKENS, *"cafe caf\u00e9 a ##\u4e2da \u4e2d".split()]
    rules = {"strip_accents": strip, "tokenize_chinese_chars": chinese}
    tokenizer = wordpiece(pieces, cased=False, **rules)
    tokenizer.save(tmp_path)
    for each in (tokenizer, Tokenizer.open(tmp_path)):
        (ids,) = each.encode(["CAF\u00c9 a\u4e2da"])
        assert " ".join(each.tokens[i] for i in ids) == RULES[strip, chinese]
        assert each.identity == tokenizer.identity
        assert (each.strip_accents, each.tokenize_chinese_chars) == (strip is None, chinese)
    standard = wordpiece(pieces, cased=False)
    assert (standard.identity == tokenizer.identity) == ((strip, chinese) == (None, True))


def test_identity_is_that_of_stores_already_built(tmp_path):
    path = write_vocabulary(tmp_path / "vocab.txt", PIECES)
    expected = hashlib.sha256(path.read_bytes() + b"\0wordpiece False").hexdigest()
    tokenizer = Tokenizer.open(path, cased=False)
    assert tokenizer.identity == expected
    tokenizer.save(tmp_path)
    description = json.loads((tmp_path / "vocabulary.json").read_text())
    assert description.keys() == {"kind", "cased", "file", "sha256"}


# What `Tokenizer.save` wrote for PIECES in the first release.
DESCRIPTION = """{
  "kind": "wordpiece",
  "cased": false,
  "file": "vocab.txt",
  "sha256": "c92e1cf87a7801fd77fabd99c2a7d391c77fb8fa76ae3572bfbb6c70b624e51e"
}
"""


def test_a_folder_that_was_written_earlier(tmp_path):
    write_vocabulary(tmp_path / "vocab.txt", PIECES)
    (tmp_path / "vocabulary.json").write_text(DESCRIPTION)
    tokenizer = Tokenizer.open(tmp_path)
    assert tokenizer.identity == "aa41c2603b155bd9ccb2748e3505b7c9bea7d64af551d0cabb43d381c7c070ff"
    with pytest.raises(InputError, match=r"vocabulary\.json: says cased=False, asked for True"):
        Tokenizer.open(tmp_path, cased=True)
    tokenizer.save(tmp_path)
    assert (tmp_path / "vocabulary.json").read_text() == DESCRIPTION


def test_identity_depends_on_file_and_case(tmp_path):
    path = write_vocabulary(tmp_path / "vocab.txt", PIECES)
    other = write_vocabulary(tmp_path / "other.txt", [*PIECES, "more"])
    identities = {Tokenizer.open(p, cased=c).identity for p in (path, other) for c in (True, False)}
    assert len(identities) == 4


def test_sentencepiece(model_file):
    tokenizer = Tokenizer.open(model_file)
    assert tokenizer.kind == "sentencepiece" and tokenizer.cased
    assert tokenizer.tokens[:5] == list(SPECIAL_TOKENS)
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    for text, ids in zip(CHAIRS, tokenizer.encode(CHAIRS), strict=True):
        assert tokenizer.decode(ids) == text
        assert not set(ids) & set(tokenizer.special_ids)
        # A word starts at the word mark, so their number is the number of spaces plus one.
        assert np.count_nonzero(~tokenizer.continues_word[ids]) == len(text.split())
    masked = tokenizer.encode(["The cat [MASK] on mat 3."], special=True)[0]
    assert masked.count(tokenizer.mask_id) == 1
    assert tokenizer.decode(masked) == "The cat [MASK] on mat 3."
    assert tokenizer.mask_id not in tokenizer.encode(["The [MASK]"])[0]


def test_sentencepiece_uncased(model_file):
    tokenizer = Tokenizer.open(model_file, cased=False)
    assert tokenizer.encode(["Sat ON mat"]) == tokenizer.encode(["sat on mat"])
    assert tokenizer.identity != Tokenizer.open(model_file).identity


def test_sentencepiece_without_mask(tmp_path):
    import io

    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(CHAIRS), model_writer=model, vocab_size=70, minloglevel=2
    )
    path = tmp_path / "plain.model"
    path.write_bytes(model.getvalue())
    with pytest.raises(InputError, match=r"\[PAD\] \[CLS\] \[SEP\] \[MASK\] not among its control"):
        Tokenizer.open(path)


@pytest.mark.parametrize("name, cased, size", [("uncased", False, 30522), ("cased", True, 28996)])
def test_published_vocabularies(shared_data, name, cased, size):
    tokenizer = Tokenizer.open(shared_data / f"vocab/bert-base-{name}-vocab.txt")
    assert (tokenizer.cased, tokenizer.vocabulary_size) == (cased, size)
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.mask_id) == (0, 100, 103)
    if not cased:  # the example of google-research/bert's README
        ids = tokenizer.encode(["John Johanson's house"])[0]
        pieces = "john johan ##son ' s house"
        assert [tokenizer.tokens[i] for i in ids] == pieces.split()
