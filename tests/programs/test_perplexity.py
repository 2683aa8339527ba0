"""Perplexity by a sliding window is that of a direct computation with transformers."""

import json

import numpy as np
import pytest
from scipy.special import log_softmax

from bertjax.base.errors import InputError
from bertjax.data.corpus.store import HELDOUT, TokenStore
from bertjax.inference.likelihood import nats_of_text
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.interop.proof import outputs
from bertjax.programs import perplexity, prepare
from tests.helpers.closeness import assert_close
from tests.helpers.small_gpt import TEXTS, gpt2_tokenizer, small_gpt


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return gpt2_tokenizer(tmp_path_factory.mktemp("gpt2"))


def _by_windows(peer, ids: list[int], length: int, stride: int) -> float:
    """The nats of all tokens but the first, window by window, as users of transformers do it."""
    import torch

    total, before = 0.0, 1
    for begin in range(0, len(ids), stride):
        end = min(begin + length, len(ids))
        with torch.inference_mode():
            logits = peer(torch.tensor([ids[begin:end]])).logits[0]
        log = torch.log_softmax(logits, -1)
        total -= sum(float(log[i - begin - 1, ids[i]]) for i in range(before, end))
        before = end
        if end == len(ids):
            break
    return total


@pytest.mark.peers
@pytest.mark.parametrize("size, stride", [(150, 5), (151, 22), (23, 7), (9, 7), (46, 22)])
def test_equal_to_transformers(tokenizer, tmp_path, size, stride):
    import torch
    from transformers import AutoModelForCausalLM

    model = small_gpt(tokenizer)
    write_hugging_face(model, tmp_path)
    peer = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    ids = np.random.default_rng(size).integers(0, tokenizer.vocabulary_size, size, np.int32)
    expected = _by_windows(peer, ids.tolist(), 23, stride)
    assert_close(nats_of_text(model, ids, stride), expected)


@pytest.mark.devices(8)
def test_with_a_memory_it_is_equal_however_a_text_is_cut(tokenizer):
    """That of the whole text in one row, which is longer than the windows."""
    model = small_gpt(tokenizer, "transfo-xl")
    ids = np.random.default_rng(3).integers(0, tokenizer.vocabulary_size, 61, np.int32)
    row = {"input_ids": ids[None], "input_mask": np.ones_like(ids)[None]}
    logits = outputs(model.model(), model.params, row)["masked_lm"][0, :-1]
    whole = -log_softmax(logits.astype(np.float64), -1)[np.arange(60), ids[1:]].sum()
    for stride in (22, 7, 13):
        assert_close(nats_of_text(model, ids, stride, 60), whole)
    assert_close(nats_of_text(model, ids[:9], 13, 5), nats_of_text(model, ids[:9], 8))
    assert abs(nats_of_text(model, ids, 7, 6) - whole) > 0.1  # the beginning is forgotten


def test_a_corpus(tokenizer, tmp_path, monkeypatch):
    text, folder = tmp_path / "text.txt", tmp_path / "corpus"
    text.write_text("\n\n".join(TEXTS))
    vocabulary = tmp_path / "bpe.json"
    vocabulary.write_bytes(tokenizer.vocabulary)
    prepare.run([f"text:{text}"], folder, vocabulary=vocabulary, held_out=0.3, workers=1)
    model = small_gpt(tokenizer)
    monkeypatch.setattr(perplexity, "open_model", lambda source, kind: model)
    found = perplexity.run("hf:here", str(folder), 11, str(tmp_path / "found.json"))
    assert json.loads((tmp_path / "found.json").read_bytes()) == found

    store = TokenStore.open([folder], HELDOUT)
    bounds = store.document_starts
    pieces = np.split(store.read_spans(bounds[:-1], np.diff(bounds)), bounds[1:-1])
    ids = np.concatenate([[*each, tokenizer.end_id] for each in pieces]).astype(np.int32)
    nats = nats_of_text(model, ids, 11)
    documents = [tokenizer.decode(each) for each in pieces]
    assert set(documents) < set(TEXTS)
    size = sum(len(document.encode()) for document in documents)
    assert (found["tokens"], found["bytes"]) == (len(ids) - 1, size)
    assert found["perplexity"] == pytest.approx(np.exp(nats / (len(ids) - 1)))
    assert found["bits_per_byte"] == pytest.approx(nats / np.log(2) / size)


def test_wrong_input(tokenizer):
    model = small_gpt(tokenizer)
    for stride in (0, 23):
        with pytest.raises(InputError, match=f"--stride={stride}: must be from 1 to "):
            nats_of_text(model, np.arange(9), stride)
    with pytest.raises(InputError, match="--memory=8: a gpt2: gpt2 has no memory: leave it out"):
        nats_of_text(model, np.arange(9), 5, 8)
    with pytest.raises(InputError, match="--memory=-1: must be at least 0"):
        nats_of_text(model, np.arange(9), 5, -1)
    with pytest.raises(InputError, match="has no corpus of its own: name one with --corpus"):
        perplexity.run("hf:here", None, 5)
