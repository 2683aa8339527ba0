"""The ids equal those of transformers' fast tokenizer, and of its Python one except for a list."""

import lzma
import os
import sys
import unicodedata
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from pathlib import Path

import pytest

from bertjax.interop.tokenizer_files import write_tokenizer
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn
from bertjax.text.wordpiece import bert_wordpiece
from tests.text.hard_texts import HARD_TEXTS, PIECES

pytestmark = pytest.mark.peers

CASES = ["uncased", "cased"]

# Texts for which transformers' tokenizer in Python differs from its own fast one and from ours:
# text, our words, its words. The reasons are in the docstring of bertjax/text/tokenizer.py.
_IN_BOTH = [
    ("a\u2e43b", "a\u2e43b", "a \u2e43 b"),  # punctuation since Unicode 9
    ("a\u0378b", "a\u0378b", "ab"),  # no character yet
    ("a\U0002b820", "a\U0002b820", "a \U0002b820"),  # a Chinese character
]
PYTHON_DIFFERS = {
    "uncased": [
        *_IN_BOTH,
        ("AB\u03a3", "ab\u03c3", "ab\u03c2"),  # a sigma that ends a word
        ("a\U0001e000", "a\U0001e000", "a"),  # an accent since Unicode 9
    ],
    "cased": [
        *_IN_BOTH,
        ("Cafe\u0301", "Cafe\u0301", "Caf\u00e9"),  # composed
        ("1\u212a", "1\u212a", "1K"),  # the kelvin sign, too
    ],
}


@pytest.fixture(scope="module")
def vocabulary_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_bytes("".join(f"{piece}\n" for piece in PIECES).encode())
    return path


def python_basic_tokenizer(cased: bool):
    from transformers.models.bert.tokenization_bert_legacy import BasicTokenizer

    return BasicTokenizer(do_lower_case=not cased)


def words_of(text: str, cased: bool) -> list[str]:
    library = bert_wordpiece({"[UNK]": 0}, cased=cased)
    text = library.normalizer.normalize_str(text)
    return [word for word, _ in library.pre_tokenizer.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", ["BertTokenizer", "BertTokenizerFast", "BertTokenizerLegacy"])
@pytest.mark.parametrize("case", CASES)
def test_hard_texts(vocabulary_file, name, case):
    import transformers
    from transformers.models.bert import tokenization_bert_legacy

    module = tokenization_bert_legacy if name.endswith("Legacy") else transformers
    reference = getattr(module, name)(str(vocabulary_file), do_lower_case=case == "uncased")
    result = Tokenizer.open(vocabulary_file, cased=case == "cased")
    texts = list(HARD_TEXTS)
    if name.endswith("Legacy"):  # see PYTHON_DIFFERS
        texts = [text for text in texts if "\u03a3" not in text]
        if case == "cased":
            texts = [text for text in texts if unicodedata.is_normalized("NFC", text)]
    got = result.encode(texts, special=True)
    assert got == [reference.encode(text, add_special_tokens=False) for text in texts]


@pytest.mark.parametrize("case", CASES)
def test_where_the_python_tokenizer_differs(case):
    reference = python_basic_tokenizer(case == "cased")
    for text, result, python in PYTHON_DIFFERS[case]:
        assert words_of(text, case == "cased") == result.split()
        assert reference.tokenize(text) == python.split()


@pytest.mark.parametrize("cased", [False, True], ids=CASES)
def test_every_old_character_in_a_word_is_as_in_python(cased):
    """Tests all single characters of Unicode 3.2 whose class has not changed since."""
    library, reference = bert_wordpiece({"[UNK]": 0}, cased=cased), python_basic_tokenizer(cased)
    compared, different = 0, []
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        category = unicodedata.category(character)
        if category in ("Cn", "Co", "Cs"):
            continue
        if unicodedata.ucd_3_2_0.category(character) != category:
            continue
        text = f"a{character}b"
        words = library.pre_tokenizer.pre_tokenize_str(library.normalizer.normalize_str(text))
        compared += 1
        if [word for word, _ in words] != reference.tokenize(text):
            different.append(text)
    assert compared > 90_000
    if cased:  # the Python one composes characters
        different = [text for text in different if unicodedata.is_normalized("NFC", text)]
    assert different == []


# ---------------------------------------------------------------- English Wikipedia


@pytest.fixture(scope="module")
def wikipedia(shared_data) -> list[str]:
    """The lines of a file of real text."""
    with lzma.open(shared_data / "corpus/enwiki/enwiki-00.txt.xz") as file:
        lines = file.read().decode().removesuffix("\n").split("\n")
    assert len(lines) == 108_824
    return lines


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_line_of_wikipedia(shared_data, wikipedia, case):
    from transformers import BertTokenizer, BertTokenizerFast

    path = shared_data / f"vocab/bert-base-{case}-vocab.txt"
    got = Tokenizer.open(path).encode(wikipedia)
    assert sum(map(len, got)) > 10_000_000
    # In transformers 5 these are two names of one class; in older versions they are two classes.
    for reference in {BertTokenizer, BertTokenizerFast}:
        tokenizer = reference(str(path), do_lower_case=case == "uncased")
        expected = tokenizer(
            wikipedia,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        different = sum(a != b for a, b in zip(got, expected, strict=True))
        assert (different, len(got)) == (0, 108_824)


@pytest.mark.slow
def test_every_line_of_wikipedia_by_byte_level_bpe(wikipedia, tmp_path):
    from transformers import AutoTokenizer

    learn("bpe", wikipedia[:5_000], tmp_path / "bpe.json", size=8_000, cased=True)
    result = Tokenizer.open(tmp_path / "bpe.json")
    write_tokenizer(result, tmp_path, 512)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    got = result.encode(wikipedia)
    assert sum(map(len, got)) > 10_000_000
    assert all(map(str.__eq__, map(result.decode, got[::50]), wikipedia[::50]))
    expected = reference(wikipedia, add_special_tokens=False, verbose=False)["input_ids"]
    different = sum(a != b for a, b in zip(got, expected, strict=True))
    assert (different, len(got)) == (0, 108_824)


def _python_ids(path: Path, case: str, words: list[str]) -> list[list[int]]:
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    reference = BertTokenizerLegacy(str(path), do_lower_case=case == "uncased")
    return [reference.convert_tokens_to_ids(reference.tokenize(word)) for word in words]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_word_of_wikipedia_in_python(shared_data, wikipedia, case):
    """The Python tokenizer splits at spaces first, so each distinct word is tested once.

    Half of the words are tested in one case, half in the other, and those with a sigma in both.
    """
    path = shared_data / f"vocab/bert-base-{case}-vocab.txt"
    every = sorted(set(chain.from_iterable(line.split(" ") for line in wikipedia)))
    assert len(every) > 400_000
    half = set(every[CASES.index(case) :: 2])
    words = [word for word in every if word in half or "\u03a3" in word]
    shares = [words[start::16] for start in range(16)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        expected = list(pool.map(_python_ids, [path] * 16, [case] * 16, shares))
    result = Tokenizer.open(path)
    different = [
        word
        for share, ids in zip(shares, expected, strict=True)
        for word, a, b in zip(share, result.encode(share), ids, strict=True)
        if a != b
    ]
    assert all("\u03a3" in word for word in different), different[:20]
    lines = sum(any(word in line.split(" ") for word in different) for line in wikipedia)
    assert lines == (2 if case == "uncased" else 0)
