"""Vocabularies with more pieces: old ids, what is added, and the saved pieces; all three kinds."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library

from bertjax.base.errors import InputError
from bertjax.programs import prepare
from bertjax.text.domain_words import count_pieces, count_words
from bertjax.text.extension import extended, extends
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn
from tests.text.small_vocabularies import added

OLD = [f"The cat number {n * n} sat on the mat, and it's late (no {n % 7})." for n in range(90)]
OLD += ["Jack kept a jumpy dog, big zebras vie, box it"] * 9
# Frequent words, each with its own ending, and letters that the old text lacks.
NEW = [
    f"mtoto anapenda kitabu{end} sana, na mtoto ana\u014ba'o \u014bo kitabu {n % 5}."
    for n, end in enumerate(random.Random(3).choices(["", "ni", "je"], k=90))
]


def wordpiece(folder: Path, cased: bool = True) -> Tokenizer:
    learn("wordpiece", OLD, folder / "vocab.txt", size=180, cased=cased)
    return Tokenizer.open(folder / "vocab.txt", cased)


def bpe(folder: Path) -> Tokenizer:
    learn("bpe", OLD, folder / "tokenizer.json", size=300, cased=True)
    return Tokenizer.open(folder / "tokenizer.json")


def modern(folder: Path) -> Tokenizer:
    """A BPE with tokens after its pieces, which are not among them, as ModernBERT's."""
    content = json.loads(bpe(folder).vocabulary)
    for number, name in enumerate(["[unused0]", "   "], 300):
        content["added_tokens"].append(added(number, name, special=number == 300))
    (folder / "modern.json").write_text(json.dumps(content))
    return Tokenizer.open(folder / "modern.json")


def unigram(folder: Path, names: Sequence[str] = SPECIAL_TOKENS) -> Tokenizer:
    """A unigram model with a token after its pieces, which is not among them."""
    letters = sorted({c for text in OLD + NEW for c in text} - {" "})
    pieces = [*names, "\u2581", "\u2581the", "\u2581mat", "toto", *letters]
    special = [*enumerate(names), (len(pieces), "<extra>")]
    content = {
        "added_tokens": [added(number, name, special=True) for number, name in special],
        "normalizer": {"type": "NFKC"},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True},
        "model": {
            "type": "Unigram",
            "unk_id": 1,
            "vocab": [[piece, -2 - number / 9] for number, piece in enumerate(pieces)],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return Tokenizer.open(folder / "tokenizer.json")


@pytest.mark.parametrize("make", [wordpiece, bpe, modern, unigram], ids=lambda make: make.__name__)
def test_new_pieces_come_behind_the_old_ones(tmp_path, make):
    old = make(tmp_path)
    counts = count_words(NEW, old)
    new = extended(old, NEW, counts, 13)
    size = old.vocabulary_size
    assert new.tokens[:size] == old.tokens and new.vocabulary_size <= size + 13
    more = new.tokens[size:]
    assert len(set(more)) == len(more) >= 5 and not set(more) & set(old.tokens)
    assert new.roles == old.roles and new.template == old.template
    assert extends(new, old) and not extends(old, new) and extends(old, old)
    # Every new piece is used, and the text is shorter by what is counted.
    used = Counter(each for ids in new.encode(NEW) for each in ids)
    if make in (wordpiece, unigram):  # a merge may be used only within a longer one
        words = [piece for piece in more if piece.lstrip("#") != "\u014b"]
        assert all(used[new.tokens.index(piece)] for piece in words)
    assert count_pieces(counts, new) < 0.8 * count_pieces(counts, old)
    assert sum(map(len, new.encode(NEW))) < 0.8 * sum(map(len, old.encode(NEW)))
    # The old text has the ids that it had, but for pieces that stand in it, too.
    assert new.encode(["the cat sat"]) == old.encode(["the cat sat"])
    assert new.encode(["[MASK] mtoto"], special=True)[0][0] == old.mask_id
    again = extended(old, NEW, counts, 13)
    assert again.identity == new.identity
    new.save(tmp_path)
    assert Tokenizer.open(tmp_path).identity == new.identity


def test_wordpiece_takes_missing_letters_and_the_best_words(tmp_path):
    old = wordpiece(tmp_path)
    new = extended(old, NEW, count_words(NEW, old), 12)
    more = new.tokens[old.vocabulary_size :]
    assert {"\u014b", "##\u014b", "kitabu", "mtoto", "anapenda"} <= set(more)
    assert more[:2] == ["\u014b", "##\u014b"]
    assert not any(old.unk_id in ids for ids in new.encode(NEW))
    assert any(old.unk_id in ids for ids in old.encode(NEW))


def test_a_letter_and_its_accent_count_as_the_character_that_they_become(tmp_path):
    learned = wordpiece(tmp_path)
    texts = ["cafe\u0301 caf\u00e9"]
    assert len(count_words(texts, learned)) == 2
    nfc = Tokenizer("wordpiece", learned.vocabulary, "here", cased=True, nfc=True)
    assert count_words(texts, nfc) == {"caf\u00e9": 2}


def test_merges_are_those_that_learning_goes_on_with(tmp_path):
    """A plain BPE, which joins the most frequent pair again and again, finds the same pieces."""
    old = bpe(tmp_path)
    counts = count_words(NEW, old)
    new = extended(old, NEW, counts, 20)
    words = {word: [old.tokens[i] for i in old.encode([word])[0]] for word in counts}
    known, expected = set(old.tokens), []
    while len(expected) < 20:
        pairs: Counter = Counter()
        for word, pieces in words.items():
            for pair in zip(pieces, pieces[1:], strict=False):
                pairs[pair] += counts[word] if counts[word] >= 3 else 0
        best = min(
            (pair for pair in pairs if "".join(pair) not in known), key=lambda p: (-pairs[p], p)
        )
        expected.append("".join(best))
        known.add(expected[-1])
        for word, pieces in words.items():
            found: list[str] = []
            for piece in pieces:
                if found and (found[-1], piece) == best:
                    found[-1] += piece
                else:
                    found.append(piece)
            words[word] = found
    assert new.tokens[old.vocabulary_size :] == expected
    for word, pieces in words.items():
        assert [new.tokens[i] for i in new.encode([word])[0]] == pieces


def test_a_merge_to_a_piece_that_is_there_is_left_out(tmp_path):
    """Here "abc" comes of "ab" and "c", but the text is cut to "a" and "bc"."""
    content = json.loads(bpe(tmp_path).vocabulary)
    single = [
        piece for piece in sorted(content["model"]["vocab"], key=content["model"]["vocab"].get)
    ]
    pieces = [*single[: len(SPECIAL_TOKENS) + 256], "bc", "ab", "abc"]
    content["model"] |= {
        "vocab": {piece: number for number, piece in enumerate(pieces)},
        "merges": [["b", "c"], ["a", "b"], ["ab", "c"]],
    }
    (tmp_path / "few.json").write_text(json.dumps(content))
    old = Tokenizer.open(tmp_path / "few.json")
    texts = ["xabcz xabcy"] * 7
    new = extended(old, texts, count_words(texts, old), 3)
    assert new.tokens[: len(pieces)] == old.tokens == pieces
    assert new.tokens[len(pieces) :] == ["xa", "xabc", "\u0120xabc"]


def test_the_library_gives_the_same_ids(tmp_path):
    """A tokenizer.json with new pieces is read by the library as by us."""
    for make in (modern, unigram):
        old = make(tmp_path)
        new = extended(old, NEW, count_words(NEW, old), 9)
        library = Library.from_buffer(new.vocabulary)
        texts = NEW[:5] + OLD[:5]
        encoded = [library.encode(text, add_special_tokens=False).ids for text in texts]
        assert encoded == new.encode(texts)
        for number, piece in enumerate(new.tokens):
            assert library.token_to_id(piece) == number


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_a_corpus_with_an_extended_vocabulary(tmp_path, kind, capsys):
    (tmp_path / "new.txt").write_text("\n\n".join(NEW), "utf-8")
    old = {"wordpiece": wordpiece, "bpe": bpe}[kind](tmp_path)
    vocabulary = tmp_path / {"wordpiece": "vocab.txt", "bpe": "tokenizer.json"}[kind]
    options = dict(vocabulary=vocabulary, held_out=0.0, workers=1)
    old_report = prepare.run([f"text:{tmp_path}/new.txt"], tmp_path / "not_extended", **options)
    report = prepare.run(
        [f"text:{tmp_path}/new.txt"], tmp_path / "corpus", extend_vocabulary=11, **options
    )
    new = Tokenizer.open(tmp_path / "corpus")
    assert report["new_pieces"]["pieces"] == new.readable[old.vocabulary_size :]
    assert report["train"]["tokens"] < old_report["train"]["tokens"]
    assert f"{len(report['new_pieces']['pieces'])} new pieces save" in capsys.readouterr().out
    with pytest.raises(InputError, match="now .*'extend_vocabulary': 12"):
        prepare.run(
            [f"text:{tmp_path}/new.txt"], tmp_path / "corpus", extend_vocabulary=12, **options
        )


def test_an_uncased_vocabulary_is_warned_of(tmp_path, capsys):
    """New words of an uncased vocabulary lose their marks, which is said."""
    (tmp_path / "new.txt").write_text("\u1ecdj\u1ecd\u0301 d\u00e1ra p\u1eb9\u0300l\u00fa \n\n" * 9)
    wordpiece(tmp_path, cased=False)
    options = dict(vocabulary=tmp_path / "vocab.txt", cased=False, held_out=0.0, workers=1)
    source = [f"text:{tmp_path}/new.txt"]
    report = prepare.run(source, tmp_path / "corpus", extend_vocabulary=30, **options)
    assert "lose accents, tone marks" in capsys.readouterr().out
    assert "dara" in report["new_pieces"]["pieces"]


def test_refused(tmp_path):
    (tmp_path / "new.txt").write_text("\n\n".join(NEW), "utf-8")
    source, output = [f"text:{tmp_path}/new.txt"], tmp_path / "corpus"
    learn("sentencepiece", OLD, tmp_path / "own.model", size=60, cased=True)
    wordpiece(tmp_path)
    for more, message in (
        (dict(vocabulary=tmp_path / "own.model"), "is a SentencePiece .model, to which no pieces"),
        (dict(learn_vocabulary=100), "extend_vocabulary=7: the new pieces come after those of a"),
        (dict(vocabulary=tmp_path / "vocab.txt", extend_vocabulary=-1), "=-1: a number of pieces"),
        (dict(vocabulary=f"hf:{tmp_path / 'none'}"), "hf:.*no such folder"),
    ):
        with pytest.raises(InputError, match=message):
            prepare.run(source, output, **dict(extend_vocabulary=7, workers=1) | more)
    assert not output.exists()
