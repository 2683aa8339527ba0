"""Learned vocabularies work with their tokenizer by construction."""

import random
import subprocess
import sys

import pytest

from bertjax.base.errors import InputError
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn


def made_up_text(sentences: int) -> list[str]:
    """Makes sentences of about a hundred words, with accents, digits, CJK and punctuation."""
    numbers = random.Random(7)
    syllables = ["ka", "lo", "Mi", "nué", "st", "ra", "pe", "tho", "Žu", "42", "world", "in"]
    words = ["".join(numbers.choices(syllables, k=numbers.randint(1, 4))) for _ in range(400)]
    return [
        " ".join(numbers.choices(words, k=numbers.randint(3, 12)))
        + numbers.choice([".", "!", " 中。"])
        for _ in range(sentences)
    ]


TEXTS = made_up_text(600)


@pytest.mark.parametrize("cased", [False, True])
def test_learned_wordpiece(tmp_path, cased):
    path = tmp_path / "vocab.txt"
    size = learn("wordpiece", TEXTS, path, size=300, cased=cased)
    tokenizer = Tokenizer.open(path, cased=cased)
    assert size == tokenizer.vocabulary_size == 300
    assert tokenizer.tokens[:5] == list(SPECIAL_TOKENS)
    for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        assert tokenizer.unk_id not in ids
        if cased:
            joined = "".join(tokenizer.tokens[i].removeprefix("##") for i in ids)
            assert joined == text.replace(" ", "")
    # Pieces beyond single characters were learned and are used.
    tokens = sum(map(len, tokenizer.encode(TEXTS)))
    assert tokens < 0.6 * sum(len(text.replace(" ", "")) for text in TEXTS)


def test_wordpiece_knows_new_words_of_its_alphabet(tmp_path):
    learn("wordpiece", TEXTS, tmp_path / "vocab.txt", size=300, cased=False)
    tokenizer = Tokenizer.open(tmp_path / "vocab.txt", cased=False)
    assert tokenizer.unk_id not in tokenizer.encode(["wwwkkkpppttt42hhh zzz"])[0]
    assert tokenizer.encode(["\u0416"]) == [[tokenizer.unk_id]]


def test_wordpiece_says_how_much_it_learned(tmp_path):
    path = tmp_path / "vocab.txt"
    size = learn("wordpiece", TEXTS, path, size=100_000, cased=False)
    assert 300 < size < 5000
    assert len(path.read_text(encoding="utf-8").split("\n")) == size + 1


LEARN = """
import sys
from tests.text.test_vocabulary import TEXTS
from bertjax.text.vocabulary import learn
learn("bpe", TEXTS, sys.argv[1] + "/bpe.json", size=450, cased=True)
learn("wordpiece", TEXTS, sys.argv[1] + "/vocab.txt", size=300, cased=False)
learn("sentencepiece", TEXTS, sys.argv[1] + "/unigram.model", size=150, cased=False)
learn("sentencepiece", TEXTS, sys.argv[1] + "/bpe.model", size=150, cased=False, model_type="bpe")
"""


def test_the_same_text_gives_the_same_file(tmp_path):
    """It runs in separate processes, because the libraries seed hash tables per process."""
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
        subprocess.run([sys.executable, "-c", LEARN, folder], check=True)
    for name in ("vocab.txt", "unigram.model", "bpe.model", "bpe.json"):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1, name


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
@pytest.mark.parametrize("cased", [False, True])
def test_learned_sentencepiece(tmp_path, model_type, cased):
    path = tmp_path / "learned.model"
    learn("sentencepiece", TEXTS, path, size=150, cased=cased, model_type=model_type)
    tokenizer = Tokenizer.open(path, cased=cased)
    assert tokenizer.vocabulary_size == 150
    assert tokenizer.tokens[:5] == list(SPECIAL_TOKENS)
    for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        assert tokenizer.unk_id not in ids
        # NFKC does not change these characters, except the full stop of CJK punctuation.
        assert tokenizer.decode(ids) == (text if cased else text.lower())


@pytest.mark.parametrize("cased", [False, True])
def test_learned_byte_level_bpe(tmp_path, cased):
    path = tmp_path / "bpe.json"
    size = learn("bpe", TEXTS, path, size=450, cased=cased)
    tokenizer = Tokenizer.open(path)
    assert size == tokenizer.vocabulary_size == 450 and tokenizer.cased == cased
    assert tokenizer.tokens[:5] == list(SPECIAL_TOKENS)
    assert {len(token) for token in tokenizer.tokens[5:261]} == {1}  # the bytes
    encoded = tokenizer.encode([*TEXTS, "\U0001f600 \u0416"])
    assert [tokenizer.decode(ids) for ids in encoded[:-1]] == [
        text if cased else text.lower() for text in TEXTS
    ]
    assert tokenizer.decode(encoded[-1]) == ("\U0001f600 \u0416" if cased else "\U0001f600 \u0436")
    assert sum(map(len, encoded)) < 0.6 * sum(map(len, TEXTS))
    assert learn("bpe", TEXTS, path, size=100_000, cased=cased) < 5000


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_a_word_without_end_is_cut(tmp_path, kind):
    texts = ["ab" * 1100, f"{'ab' * 500} {'ab' * 500} {'ab' * 100}"]
    for name, text in zip(("whole", "cut"), texts, strict=True):
        learn(kind, [text, *TEXTS], tmp_path / name, size=400, cased=True)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "cut").read_bytes()


def test_too_little_text(tmp_path):
    path = tmp_path / "learned.model"
    with pytest.raises(InputError, match=r"cannot learn 30000 pieces from this text: .*smaller"):
        learn("sentencepiece", TEXTS, path, size=30000, cased=False)
    for texts in ([], ["", "  \n"]):
        with pytest.raises(InputError, match="no characters"):
            learn("sentencepiece", texts, path, size=100, cased=False)
        with pytest.raises(InputError, match="no characters"):
            learn("wordpiece", texts, path, size=100, cased=False)
        with pytest.raises(InputError, match="no characters"):
            learn("bpe", texts, path, size=300, cased=True)
    assert list(tmp_path.iterdir()) == []
