"""Texts go on token by token, as by transformers' generate."""

import copy
import dataclasses

import jax
import numpy as np
import pytest
from scipy.special import softmax

from bertjax.base.errors import InputError
from bertjax.inference.generate import complete, nucleus
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.interop.proof import outputs
from bertjax.models.encoders import head_types
from bertjax.programs import complete as program
from tests.helpers.small_gpt import gpt2_tokenizer, small_gpt
from tests.helpers.small_models import MODERNBERT, PIECES, SPEC, random_model, small_model

PROMPTS = ["The cat", "The cat number 16 sat on", "isn't", ""]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return gpt2_tokenizer(tmp_path_factory.mktemp("gpt2"))


@pytest.mark.peers
@pytest.mark.parametrize("name", ["gpt2", "openai-gpt"])
@pytest.mark.parametrize("tokens", [6, 99])
def test_greedy_texts_are_those_of_transformers(tokenizer, tmp_path, name, tokens):
    import torch
    from transformers import AutoModelForCausalLM

    model = small_gpt(tokenizer, name)
    write_hugging_face(model, tmp_path)
    peer = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    found = complete(model, PROMPTS, tokens)
    for prompt, ids in zip(PROMPTS, found, strict=True):
        prompt_ids = tokenizer.encode([prompt])[0] or [tokenizer.end_id]
        most = min(tokens, model.spec.max_position_embeddings - len(prompt_ids))
        reference = peer.generate(torch.tensor([prompt_ids]), max_new_tokens=most, do_sample=False)
        reference = reference[0].tolist()[0 if prompt else 1 :]
        if reference[-1] == tokenizer.end_id:
            reference.pop()
        assert ids == reference
    assert len({tuple(ids[-3:]) for ids in found}) > 1


def test_a_text_ends_at_the_end_of_text(tokenizer):
    """A piece that the model puts becomes the end of texts."""
    whole = complete(small_gpt(tokenizer), PROMPTS, 8)[0]
    place = next(i for i in range(3, len(whole)) if whole[i] not in whole[:i])
    changed = copy.copy(tokenizer)
    changed.roles = tokenizer.roles | {"eos": whole[place]}
    found = complete(small_gpt(changed), PROMPTS, 8)
    assert found[0] == whole[:place] and len(found[1]) > place  # while another text goes on


def test_draws(tokenizer):
    model = small_gpt(tokenizer)
    greedy = complete(model, PROMPTS, 6)
    drawn = [complete(model, PROMPTS, 6, temperature=1.5, seed=seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and drawn[0] != greedy
    assert complete(model, PROMPTS, 6, temperature=1.0, top_p=1e-6, seed=3) == greedy
    assert complete(model, PROMPTS, 6, temperature=1e-4, seed=3) == greedy


def _logits(model, ids: list[int]) -> np.ndarray:
    """Those of a whole text at once, [S, V]."""
    inputs = {name: np.zeros((1, len(ids)), np.int32) for name in model.family.text_inputs}
    inputs |= {"input_ids": np.array([ids]), "input_mask": np.ones((1, len(ids)), np.int32)}
    return outputs(model.model(), model.params, inputs)["masked_lm"][0]


def test_draws_have_the_probabilities_of_the_model(tokenizer):
    model, count = small_gpt(tokenizer), 2000
    ids = tokenizer.encode(PROMPTS[:1])[0]
    expected = softmax(_logits(model, ids)[-1] / 0.5)
    found = complete(model, PROMPTS[:1] * count, 1, temperature=0.5)
    drawn = [each[-1] for each in found if len(each) > len(ids)]
    shares = np.bincount(drawn, minlength=len(expected)) / count
    shares[tokenizer.end_id] = 1 - len(drawn) / count
    assert np.abs(shares - expected).max() < 5 * np.sqrt(expected.max() / count)
    assert expected.max() > 0.05


def test_the_nucleus_has_the_fewest_tokens_that_reach_its_probability():
    probabilities = np.array([[0.2, 0.5, 0.05, 0.25], [0.97, 0.01, 0.01, 0.01]], np.float32)
    logits, kept_of = np.log(probabilities), jax.jit(nucleus)
    least = np.finfo(logits.dtype).min
    for top_p, kept in ((0.5, [1]), (0.6, [1, 3]), (0.76, [0, 1, 3]), (1.0, [0, 1, 2, 3])):
        found = kept_of(logits, np.float32(top_p - 1e-5))
        assert np.flatnonzero(found[0] > least).tolist() == kept
    assert np.flatnonzero(kept_of(logits, np.float32(0.9))[1] > least).tolist() == [0]


def test_a_transformer_xl(tokenizer):
    """Each token follows from all before it, which are in the memory."""
    model = small_gpt(tokenizer, "transfo-xl")
    for ids in complete(model, PROMPTS[:3]):
        best = _logits(model, ids).argmax(-1)
        assert 8 < len(ids) <= 23 and ids[-5:] == best[-6:-1].tolist()


def _bert(vocabulary):
    return small_model(vocabulary, "BertLMHeadModel", dataclasses.replace(SPEC, causal=True))


def _modernbert(vocabulary):
    """Its second layer sees three tokens back."""
    spec = dataclasses.replace(MODERNBERT, causal=True, num_hidden_layers=2)
    return random_model(vocabulary, head_types.CAUSAL_LM, spec)


@pytest.mark.parametrize("make", [_bert, _modernbert])
def test_a_bert_that_reads_left_to_right(tmp_path, make):
    """Its texts stand in their special tokens; each token follows from all before it."""
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("".join(f"{piece}\n" for piece in PIECES))
    model = make(vocabulary)
    tokenizer = model.tokenizer
    (found,) = complete(model, ["the cat"], 2**31 - 1)
    best = _logits(model, [tokenizer.cls_id, *found]).argmax(-1)
    assert found[:2] == tokenizer.encode(["the cat"])[0] and len(found) > 8
    assert best[2:-1].tolist() == found[2:]
    assert len(found) + 1 == model.spec.max_position_embeddings or best[-1] == tokenizer.sep_id


def test_wrong_input(tokenizer, tmp_path, monkeypatch, capsys):
    model = small_gpt(tokenizer)
    for wrong, message in (
        (dict(tokens=0), "--tokens=0: must be at least 1"),
        (dict(temperature=-1.0), "--temperature=-1.0: must be at least 0"),
        (dict(top_p=0.0), "--top_p=0.0: must be in \\(0, 1\\]"),
        (dict(seed=-1), "seed=-1"),
    ):
        with pytest.raises(InputError, match=message):
            complete(model, PROMPTS, **wrong)
    with pytest.raises(InputError, match="tokens, and the model takes 23"):
        complete(model, ["cat " * 40])
    monkeypatch.setattr(program, "open_model", lambda source, kind: model)
    assert program.run("here", PROMPTS, 4) == capsys.readouterr().out.rstrip("\n").split("\n\n")
