"""XLM's vocabulary: transformers' ids, its files in and out, and what it cannot do."""

import json
import shutil
import sys
from types import SimpleNamespace
from unittest import mock

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, trainers

from bertjax.base.errors import InputError
from bertjax.interop.tokenizer_files import differences, read_tokenizer, write_tokenizer
from bertjax.text.moses_bpe import FOLDED, SPLIT_AT_SPACES, MosesBPE
from bertjax.text.tokenizer import Tokenizer
from tests.text.small_vocabularies import added

TEXTS = [
    "The cats sat on the mats, and the cat's hats sat there.",
    "Café cats don't sit: 12 hats, 7 mats (« nº 3 »)…",
    "Él dijo: “no”, 1,5 % …and U.S. cats’ hats -- e.g. Mr. Smith's; l'été à Noël",
    "東京。２０００ km away！ <s> a</w> b",
    "अर्थशास्त्र பொருளாதாரம் অর্থনীতি මෙහෙයුම เศรษฐกิจ اقتصادٌ й ö̈ x⃝",
    "soft\u00adhyphen zero\u200bwidth tab\tand\u00a0space $5.00 http://a.b/c?d=e&f [x] {y} |z|",
    "",
    " ",
]
SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", *(f"<special{number}>" for number in range(10))]


def learn(folder, folds):
    library = Library(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=170, special_tokens=SPECIAL, end_of_word_suffix="</w>", show_progress=False
    )
    texts = [text.lower() if folds else text for text in TEXTS[:3]]
    library.train_from_iterator(texts, trainer)
    folder.mkdir()
    library.model.save(str(folder))
    merges = [m for m in (folder / "merges.txt").read_text().splitlines() if "#version" not in m]
    (folder / "merges.txt").write_text("".join(f"{merge} 7\n" for merge in merges))
    config = {"tokenizer_class": "XLMTokenizer", "do_lowercase_and_remove_accent": folds}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module", params=[True, False], ids=["folded", "cased"])
def folder(request, tmp_path_factory):
    pytest.importorskip("sacremoses")
    folder = tmp_path_factory.mktemp("xlm") / "reference"
    learn(folder, request.param)
    return folder


def test_accents_go_and_vowel_signs_stay(monkeypatch):
    """As in XLM: of the marks, only those that take no space (Mn) are accents."""
    moses = SimpleNamespace(normalize=str, tokenize=lambda text, **_: text.split())
    fake = SimpleNamespace(MosesPunctNormalizer=lambda **_: moses, MosesTokenizer=lambda **_: moses)
    monkeypatch.setitem(sys.modules, "sacremoses", fake)
    pieces = ["<unk>", *"अरथशासतe", "र</w>", "e</w>", "ा</w>"]
    former = [{"type": "Lowercase"}, {"type": "NFD"}, {"type": "StripAccents"}]
    content = {
        "model": {
            "type": "BPE",
            "vocab": {piece: number for number, piece in enumerate(pieces)},
            "merges": [],
            "unk_token": "<unk>",
            "end_of_word_suffix": "</w>",
        },
        "normalizer": FOLDED,
        "pre_tokenizer": SPLIT_AT_SPACES,
        "added_tokens": [added(0, "<unk>", special=True)],
    }

    def split(text):
        (ids,) = MosesBPE(json.dumps(content).encode(), "a file", {}).encode([text])
        return [pieces[each] for each in ids]

    word = "अर्थशास्त्र"
    assert split(f"{word} É") == ["अ", "र", "थ", "श", "ा", "स", "त", "र</w>", "e</w>"]
    assert split("ा") == ["ा</w>"]
    # A file from before goes on with the ids that its model learned.
    content["normalizer"] = {"type": "Sequence", "normalizers": former}
    assert split(word) == ["अ", "र", "थ", "श", "स", "त", "र</w>"]


@pytest.mark.needs("transformers", "sacremoses")
def test_ids_are_those_of_transformers(folder, tmp_path):
    from transformers import XLMTokenizer

    result = read_tokenizer(folder)
    write_tokenizer(result, tmp_path, 64, token_types=False)
    for reference in (XLMTokenizer.from_pretrained(folder), XLMTokenizer.from_pretrained(tmp_path)):
        for text, ids in zip(TEXTS, result.encode(TEXTS), strict=True):
            pieces = reference._tokenize(text)
            assert [result.tokens[each] for each in ids] == [
                piece if piece in reference.encoder else "<unk>" for piece in pieces
            ]
        pair = [result.encode([text])[0] for text in TEXTS[:2]]
        assert result.template.sequence(*pair).ids == reference(*TEXTS[:2])["input_ids"]
        prompt = "the <special1> sat,<special1>"
        assert result.encode([prompt], special=True) == [
            reference(prompt, add_special_tokens=False)["input_ids"]
        ]


@pytest.mark.needs("sacremoses")
def test_it_is_known_by_its_model(folder, tmp_path):
    """Without the class, the files are told from GPT's by the model's config."""
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(folder / name, tmp_path)
    rules = {"do_lowercase_and_remove_accent": not read_tokenizer(folder).cased}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(rules))
    (tmp_path / "config.json").write_text('{"model_type": "xlm"}')
    assert read_tokenizer(tmp_path).identity == read_tokenizer(folder).identity


@pytest.mark.needs("sacremoses")
def test_its_files(folder, tmp_path):
    tokenizer = read_tokenizer(folder)
    assert tokenizer.kind == "moses_bpe"
    assert tokenizer.decode(tokenizer.encode(["the  cats, sat"])[0]) == "the cats , sat"
    write_tokenizer(tokenizer, tmp_path, 64)
    assert differences(tokenizer, tmp_path, [*TEXTS, "<special1> hats"]) == []
    assert read_tokenizer(tmp_path).identity == tokenizer.identity
    (tmp_path / "saved").mkdir()
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.open(tmp_path / "saved").identity == tokenizer.identity
    alone = Tokenizer.open(tmp_path / "saved" / "moses_bpe.json")
    assert alone.encode(TEXTS) == tokenizer.encode(TEXTS)


@pytest.mark.needs("sacremoses")
def test_what_it_cannot_do(folder, tmp_path):
    tokenizer = read_tokenizer(folder)
    with pytest.raises(InputError, match="cannot say where its pieces stand"):
        tokenizer.encode_with_offsets(TEXTS)
    with pytest.raises(InputError, match="half a surrogate"):
        tokenizer.encode(["a \ud800"])
    absent = mock.patch.dict(sys.modules, {"sacremoses": None})
    with (
        absent,
        pytest.raises(InputError, match=r"needs sacremoses: pip install -e '\.\[xlm\]'"),
    ):
        read_tokenizer(folder)
