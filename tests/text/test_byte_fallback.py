"""BPE with byte fallback (Gemma, mmBERT): ids as transformers', words, places, what is refused."""

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Library

from bertjax.base.errors import InputError
from bertjax.interop.hugging_face import read_hugging_face, write_hugging_face
from bertjax.interop.tokenizer_files import differences, read_tokenizer, write_tokenizer
from bertjax.interop.vocabulary_change import with_vocabulary
from bertjax.models.encoders import head_types
from bertjax.text.extension import check_extensible
from bertjax.text.template import Template
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn
from tests.helpers.small_models import family_model
from tests.text.gemma_vocabulary import GEMMA_CONFIG, learn_gemma
from tests.text.hard_texts import HARD_TEXTS
from tests.text.small_vocabularies import SENTENCES, added, random_texts

MARKED = ["<mask>", "the <mask>s  <mask>", "<bos>cat<eos> <pad><unk>", "<0x41> \u2581\u2581"]
TEXTS = [*HARD_TEXTS, *SENTENCES[:9], *random_texts(500), *MARKED, ""]
ROLES = {"pad": 0, "unk": 3, "cls": 2, "sep": 1, "mask": 4, "bos": 2, "eos": 1}
TEMPLATE = Template((2,), (1,), (1,), second_type=0)


@pytest.fixture(scope="module")
def content() -> dict:
    return learn_gemma(SENTENCES, 400)


@pytest.fixture(scope="module")
def folder(content, tmp_path_factory) -> Path:
    """A folder of transformers with this tokenizer."""
    folder = tmp_path_factory.mktemp("gemma")
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "tokenizer_config.json").write_text(json.dumps(GEMMA_CONFIG))
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder) -> Tokenizer:
    return read_tokenizer(folder)


def test_ids_are_the_librarys(tokenizer, folder, tmp_path):
    assert (tokenizer.kind, tokenizer.cased, tokenizer.keeps_spaces) == (
        *("byte_fallback_bpe", True, True),
    )
    assert (tokenizer.roles, tokenizer.template) == (ROLES, TEMPLATE)
    library = Library.from_file(str(folder / "tokenizer.json"))
    for special in (False, True):
        library.encode_special_tokens = not special
        expected = [each.ids for each in library.encode_batch(TEXTS, add_special_tokens=False)]
        assert tokenizer.encode(TEXTS, special=special) == expected
    assert differences(tokenizer, folder, TEXTS) == []
    ids = tokenizer.encode(TEXTS)
    assert not {*chain(*ids)} & {*tokenizer.special_ids}
    spaced = [text.replace("\u2581", " ") for text in TEXTS]  # the mark is a space
    assert list(map(tokenizer.decode, ids)) == spaced
    tokenizer.save(tmp_path)
    assert Tokenizer.open(tmp_path).identity == tokenizer.identity
    for number, name in enumerate(("tokenizer_config.json", "special_tokens_map.json", "")):
        written = tmp_path / f"{number}"
        written.mkdir()
        write_tokenizer(tokenizer, written, 64, token_types=False)
        (written / name).unlink() if name else None
        assert read_tokenizer(written).identity == tokenizer.identity


@pytest.mark.peers
@pytest.mark.parametrize("class_name", ["GemmaTokenizer", "GemmaTokenizerFast", "ours"])
def test_ids_are_those_of_transformers(tokenizer, folder, tmp_path, class_name):
    from transformers import AutoTokenizer

    write_tokenizer(tokenizer, tmp_path, 64, token_types=False)
    if class_name != "ours":
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config["tokenizer_class"] = class_name
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    peer = AutoTokenizer.from_pretrained(tmp_path)
    template = tokenizer.template
    ids = [template.sequence(each).ids for each in tokenizer.encode(TEXTS, special=True)]
    assert peer(TEXTS)["input_ids"] == ids
    a, b = tokenizer.encode(["The cat", " on"])
    assert peer("The cat", " on")["input_ids"] == template.sequence(a, b).ids
    text = TEXTS[-6]
    assert peer.decode(ids[-6], skip_special_tokens=True) == tokenizer.decode(ids[-6][1:-1]) == text


def test_no_text_becomes_a_special_token(content, tmp_path):
    """A published file may have merges into the names of its special tokens."""
    made = json.loads(json.dumps(content))
    number = len(made["model"]["vocab"])
    made["model"]["vocab"] |= {"<": number, ">": number + 1, "<mask": number + 2, "k": number + 3}
    made["model"]["vocab"] |= {"<m": number + 4, "ask": number + 5, "as": number + 6}
    merges = [["<", "m"], ["a", "s"], ["as", "k"], ["<m", "ask"], ["<mask", ">"]]
    made["model"]["merges"] += merges
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    tokenizer = Tokenizer.open(tmp_path / "tokenizer.json")
    library = Library.from_file(str(tmp_path / "tokenizer.json"))
    library.encode_special_tokens = True
    assert tokenizer.mask_id in library.encode("a<mask>", add_special_tokens=False).ids
    (ids,) = tokenizer.encode(["a<mask>"])
    assert [tokenizer.tokens[each] for each in ids] == ["a", "<mask", ">"]
    (ids,) = tokenizer.encode(["a<mask>"], special=True)
    assert [tokenizer.tokens[each] for each in ids] == ["a", "<mask>"]


def test_words_and_bytes(tokenizer):
    """A word begins at a space, or where the class of characters changes between pieces."""
    (ids,) = tokenizer.encode(["The cats on, \u4e2d\u6587\u65e5 xyz1"])
    marks = tokenizer.word_links[:, ids]
    begins = np.append(True, (marks[0, 1:] & marks[1, :-1]) == 0)
    words = [tokenizer.decode(word) for word in np.split(np.array(ids), np.flatnonzero(begins)[1:])]
    assert words == ["The", " cats", " on", ",", " \u4e2d\u6587\u65e5", " xyz", "1"]
    assert tokenizer.tokens[ids[-3]] == "<0x79>" and tokenizer.readable[ids[-3]] == "y"
    assert not tokenizer.continues_word[list(tokenizer.special_ids)].any()
    texts = [["The", "cats"], [], ["\u4e2d\u6587", "<bos>"]]
    found = [list(chain(*words)) for words in tokenizer.encode_words(texts)]
    assert found == tokenizer.encode([" ".join(text) for text in texts])


def test_places_of_pieces(tokenizer):
    text = "The cat \u4e2d x\U0001f600  a"
    ((ids, places),) = tokenizer.encode_with_offsets([text])
    found = [
        (tokenizer.tokens[i], text[start:end]) for i, (start, end) in zip(ids, places, strict=True)
    ]
    assert found == [
        *[("The", "The"), ("\u2581cat", "cat"), ("\u2581\u4e2d", "\u4e2d"), ("\u2581", "")],
        *[("<0x78>", "x"), *((f"<0x{b:02X}>", "\U0001f600") for b in "\U0001f600".encode())],
        *[("\u2581", ""), ("\u2581", ""), ("a", "a")],
    ]
    for text, (ids, places) in zip(TEXTS, tokenizer.encode_with_offsets(TEXTS), strict=True):
        assert ids == tokenizer.encode([text])[0] and (np.diff(places, axis=0) >= 0).all()


@pytest.mark.parametrize(
    "change, message",
    [
        (
            dict(pre_tokenizer={"type": "ByteLevel"}),
            "pre_tokenizer is {'type': 'ByteLevel'}",
        ),
        (dict(model={"byte_fallback": False}), "model.byte_fallback is False, where a BPE with"),
        (dict(model={"vocab": None}), "no model with a vocabulary"),
        (dict(added_tokens=[added(4, "<mask>", special=True)]), "<pad> <unk> .* not among its"),
    ],
)
def test_another_way_to_pieces_is_refused(content, folder, tmp_path, change, message):
    made = json.loads(json.dumps(content))
    made |= change | {"model": made["model"] | change.get("model", {})}
    (tmp_path / "tokenizer.json").write_text(json.dumps(made))
    config = (folder / "tokenizer_config.json").read_text()
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(InputError, match=message):
        read_tokenizer(tmp_path)


# ------------------------------------------------------------------------------ mmBERT


@pytest.fixture(scope="module")
def mmbert(folder, tokenizer):
    """A small ModernBERT with this vocabulary."""
    path, size = folder / "tokenizer.json", tokenizer.vocabulary_size
    return family_model(path, "modernbert", head_types.MASKED_LM, vocab_size=size)


def test_mmbert_out_and_in(mmbert, tmp_path):
    write_hugging_face(mmbert, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_type"] == "modernbert"
    assert [config[f"{role}_token_id"] for role in ("bos", "cls", "sep", "eos", "pad")] == [
        *(2, 2, 1, 1, 0)
    ]
    again = read_hugging_face(tmp_path, "hf:again")
    assert again.tokenizer.identity == mmbert.tokenizer.identity
    assert again.tokenizer.template == TEMPLATE and again.tokenizer.pad_id == 0


def test_rows_of_another_vocabulary(mmbert, tokenizer, tmp_path):
    """Pieces of a byte-level BPE stand for those with byte fallback, and the reverse."""
    with pytest.raises(InputError, match="BPE with byte fallback, to which no pieces can be added"):
        check_extensible(tokenizer, "it")
    learn("bpe", SENTENCES, tmp_path / "bpe.json", size=320, cased=True)
    other = Tokenizer.open(tmp_path / "bpe.json")
    changed = with_vocabulary(mmbert, other)
    table, old = (each.params["modernbert"]["embeddings"]["token"] for each in (changed, mmbert))
    same = other.tokens.index("\u0120cat"), tokenizer.tokens.index("\u2581cat")
    np.testing.assert_array_equal(table[same[0]], old[same[1]])
    np.testing.assert_array_equal(table[other.mask_id], old[tokenizer.mask_id])
    back = with_vocabulary(changed, tokenizer).params["modernbert"]["embeddings"]["token"]
    np.testing.assert_array_equal(back[same[1]], old[same[1]])
