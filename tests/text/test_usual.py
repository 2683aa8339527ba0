"""Text that a vocabulary splits more than its own, and one Unicode form for all text."""

import unicodedata

import numpy as np
import pytest

from bertjax.interop.tokenizer_files import differences, read_tokenizer, write_tokenizer
from bertjax.programs import prepare
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.usual import Usual

# Yoruba-like words; the vowels have tone marks, and dots below.
WORDS = "ọmọ ilé ọ̀rọ̀ àwọn ènìyàn ẹ̀kọ́ rẹ̀ ṣé pẹ̀lú wọ́n gbogbo ìwé jẹ́ tí ní".split()


def _text(form, documents=60):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 40)) + "." for _ in range(documents)]
    return unicodedata.normalize(form, "\n\n".join(texts))


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """A cased corpus of NFC text, and one of the same text in NFD."""
    folder = tmp_path_factory.mktemp("forms")
    for form in ("NFC", "NFD"):
        (folder / f"{form}.txt").write_text(_text(form), encoding="utf-8")
        options = dict(learn_vocabulary=160, cased=True, held_out=0.1, workers=1)
        prepare.run([f"text:{folder}/{form}.txt"], folder / form, **options)
    return folder


def test_a_cased_vocabulary_reads_both_forms_alike(corpora):
    """The same pieces are learned from both, and give both texts the same ids."""
    both = [Tokenizer.open(corpora / form) for form in ("NFC", "NFD")]
    assert both[0].nfc and set(both[0].tokens) == set(both[1].tokens)
    composed, decomposed = (_text(form) for form in ("NFC", "NFD"))
    assert composed != decomposed
    first, second = both[0].encode([composed, decomposed])
    assert first == second and both[0].unk_id not in first


def test_places_in_a_decomposed_text(corpora):
    """The pieces of a word end after its last mark."""
    tokenizer = Tokenizer.open(corpora / "NFC")
    text = unicodedata.normalize("NFD", "ọ̀rọ̀ ilé")
    ((ids, offsets),) = tokenizer.encode_with_offsets([text])
    assert ids == tokenizer.encode([text])[0]
    words = [(text[start:end]) for start, end in offsets]
    assert "".join(words) == text.replace(" ", "") and offsets[-1][1] == len(text)


def test_transformers_reads_the_form(corpora, tmp_path):
    """The library's file gives the same ids, and is read again as the same tokenizer."""
    tokenizer = Tokenizer.open(corpora / "NFC")
    write_tokenizer(tokenizer, tmp_path, 64)
    texts = [_text("NFD", 2), _text("NFC", 2)]
    assert differences(tokenizer, tmp_path, texts) == []
    again = read_tokenizer(tmp_path)
    assert again.nfc and again.identity == tokenizer.identity


@pytest.mark.peers
def test_auto_tokenizer_reads_the_form(corpora, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = Tokenizer.open(corpora / "NFC")
    write_tokenizer(tokenizer, tmp_path, 64)
    text = _text("NFD", 1)
    (ids,) = tokenizer.encode([text])
    reference = AutoTokenizer.from_pretrained(tmp_path)(text, add_special_tokens=False)["input_ids"]
    assert reference == ids


def test_a_vocabulary_knows_its_own_text(corpora):
    """`usual` is counted over the training text, and does not change the identity."""
    tokenizer = Tokenizer.open(corpora / "NFC")
    (ids,) = tokenizer.encode([_text("NFC")])
    split = np.mean([tokenizer.continues_word[each] for each in ids])
    assert tokenizer.usual.split == pytest.approx(split, abs=0.02)
    assert tokenizer.usual.unknown == 0
    assert tokenizer.unusual(np.array(ids)) == ""
    without = Tokenizer.open(corpora / "NFC")
    without.usual = None
    assert without.identity == tokenizer.identity and without.unusual(np.array(ids)) == ""


def test_other_text_is_noticed(corpora):
    tokenizer = Tokenizer.open(corpora / "NFC")

    def unusual(*texts):
        return tokenizer.unusual(np.concatenate(tokenizer.encode(texts)))

    long = "".join(WORDS[:9])
    assert "pieces a word, where the text of the vocabulary has" in unusual(*[long] * 300)
    assert unusual(*[long] * 3) == ""  # it is too short to say
    unknown = unusual(" ".join(["Ωmega", *WORDS] * 100))
    assert unknown.startswith("6.") and "% of the pieces are unknown" in unknown


def test_the_difference_of_shares():
    usual = Usual(split=0.2, unknown=0.001)
    assert usual.pieces_a_word == pytest.approx(1.25)
    assert usual.difference(Usual(0.4, 0.009)) == ""
    assert usual.difference(Usual(0.625, 0.0)) == (
        "2.67 pieces a word, where the text of the vocabulary has 1.25"
    )
    assert usual.difference(Usual(0.2, 0.05)) == (
        "5.0% of the pieces are unknown, where the text of the vocabulary has 0.10%"
    )
