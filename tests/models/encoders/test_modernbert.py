"""ModernBERT: its function, its layers, and its sizes."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.interop import transformers_check
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.proof import random_inputs
from bertjax.interop.published.registry import PUBLISHED, array_names
from bertjax.models.encoders import head_types
from bertjax.models.encoders.presets import ModernBertSpec
from bertjax.models.encoders.transformer import Transformer
from bertjax.models.heads.head_specs import HEAD_SPECS, text_inputs
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.models.layers import dropout
from bertjax.runs.recipe import Recipe
from bertjax.training.model import zeros
from tests.helpers.closeness import assert_close
from tests.helpers.same_as_transformers import peer_of
from tests.helpers.small_models import MODERNBERT, random_model, random_params
from tests.helpers.tiny_run import tiny_config

ROWS, LENGTH = 4, 31
KINDS = tuple(PUBLISHED["modernbert"].classes)


def _entries_of_masked_lm(spec: ModernBertSpec):
    kind = head_types.MASKED_LM
    return array_names(HEAD_SPECS[kind].parts(spec), spec, kind, 0)


def _inputs(ids, mask):
    return {"input_ids": ids, "input_mask": mask}


def _batch(length: int):
    """Token ids, and masks with padding after the tokens; before them in row 1."""
    rng = np.random.default_rng(0)
    ids = rng.integers(4, MODERNBERT.vocab_size, (ROWS, length))
    mask = np.arange(length) < rng.integers(1, length + 1, (ROWS, 1))
    mask[1] = mask[1, ::-1]
    return ids, mask.astype(int)


@pytest.mark.peers
def test_hidden_states_of_transformers(vocabulary, tmp_path):
    import torch

    model = random_model(vocabulary, head_types.MASKED_LM, MODERNBERT)
    ids, mask = _batch(LENGTH)
    inputs, peer = _inputs(ids, mask), peer_of(model, tmp_path)
    with torch.inference_mode():
        wanted = peer(**transformers_check.inputs(inputs), output_hidden_states=True).hidden_states
    apply = functools.partial(Transformer(MODERNBERT).apply, deterministic=True)
    apply = jax.jit(functools.partial(apply, method="hidden_states"))
    states = apply({"params": model.params["modernbert"]}, inputs)
    assert len(states) == len(wanted) == MODERNBERT.num_hidden_layers + 1
    for result, reference in zip(states[:-1], wanted[:-1], strict=True):
        assert_close(np.asarray(result)[mask > 0], reference.numpy()[mask > 0])


DROPS = dataclasses.replace(
    MODERNBERT, num_hidden_layers=2, hidden_dropout_prob=0.25, attention_probs_dropout_prob=0.125
)


def _dropped(model: Pretrained, monkeypatch) -> list[tuple[float, int]]:
    """The rate and the width of every array that a model drops from, in their order."""
    found: list[tuple[float, int]] = []

    def record(x, seed, rate):
        del seed
        found.append((rate, x.shape[-1]))
        return x

    monkeypatch.setattr(dropout, "dropout", record)
    rngs = {"dropout": jax.random.key(0)}
    apply = functools.partial(model.model().apply, deterministic=False, rngs=rngs)
    jax.eval_shape(apply, {"params": model.params}, random_inputs(model))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_dropped(kind, vocabulary, monkeypatch):
    """Embeddings; in each layer attention's output and the inner columns; before an output layer.

    Attention's probabilities are dropped within attention.
    """
    layer = [(0.125, MODERNBERT.hidden_size), (0.25, MODERNBERT.intermediate_size)]
    of_task = kind not in (head_types.ENCODER, head_types.MASKED_LM)
    width = MODERNBERT.hidden_size
    wanted = [(0.25, width), *layer, *layer, *[(0.25, width)] * of_task]
    assert _dropped(random_model(vocabulary, kind, DROPS), monkeypatch) == wanted


@pytest.mark.peers
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_transformers_drops(kind, vocabulary, monkeypatch, tmp_path):
    import torch

    model, reference = random_model(vocabulary, kind, DROPS), []
    peer = peer_of(model, tmp_path).train()
    for module in peer.modules():
        if isinstance(module, torch.nn.Dropout):
            module.register_forward_hook(
                lambda module, _, output: reference.append((module.p, output.shape[-1]))
            )
    peer(**transformers_check.inputs(random_inputs(model)))
    assert _dropped(model, monkeypatch) == reference


@pytest.mark.peers
@pytest.mark.parametrize("size", ModernBertSpec.sizes)
def test_the_parameters_of_every_size(size):
    import torch
    import transformers

    spec = ModernBertSpec.named(size)
    config = transformers.ModernBertConfig(**PUBLISHED["modernbert"].config.write(spec))
    with torch.device("meta"):
        peer = transformers.ModernBertForMaskedLM(config)
    entries = _entries_of_masked_lm(spec)
    result = sum(math.prod(entry.shape) for entry in entries)
    assert result == sum(p.numel() for p in peer.parameters())


def test_the_sizes_of_the_paper():
    """149 and 395 million parameters (arXiv 2412.13663, section 2.1)."""
    for size, millions in (("base", 149), ("large", 395)):
        spec = ModernBertSpec.named(size)
        entries = _entries_of_masked_lm(spec)
        assert sum(math.prod(entry.shape) for entry in entries) // 10**6 == millions


def test_initial_values():
    """Products into the residual stream begin smaller, by 1 / sqrt(2 L): 0.01 for two layers.

    All are normal, and cut at two sigmas, so their deviation is 0.88 of that; norms begin with 1.
    """
    spec = ModernBertSpec.named("tiny", vocab_size=997)
    model = PreTrainingModel(spec, next_sentence=False)
    init = jax.jit(functools.partial(model.init, deterministic=True))
    inputs = zeros(text_inputs(spec, B=1, S=5))
    params = nn.unbox(init(jax.random.key(0), inputs)["params"])
    deviations = {}
    for name, leaf in flatten_dict(params, sep="/").items():
        if name.endswith(("scale", "bias")):
            assert (leaf == name.endswith("scale")).all(), name
        else:
            deviations[name.removesuffix("/kernel")] = float(leaf.std()) / 0.8796256610342398
    layers = [f"modernbert/encoder/layer_{i}" for i in (0, 1)]
    names = ("attention/output", "output")
    smaller = {f"{layer}/{name}" for layer in layers for name in names} | {"masked_lm/transform"}
    assert smaller < deviations.keys() and len(deviations) == 1 + 2 * 4 + 1
    for name, deviation in deviations.items():
        assert deviation == pytest.approx(0.01 if name in smaller else 0.02, rel=0.02), name


VARIANTS = (
    {},
    {"positions": "learned"},
    {"norm": "after"},
    {"feed_forward": "plain"},
    {"positions": "learned", "norm": "after", "feed_forward": "plain"},
    {"global_attn_every_n_layers": 1},
    {"remat": "layer"},
    {"remat": "attention"},
)


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda changes: "-".join(changes) or "modern")
def test_names_cover_the_parameters_of_every_variant(changes):
    spec = dataclasses.replace(MODERNBERT, **changes, vocab_multiple=8)
    model = PreTrainingModel(spec, next_sentence=False)

    def init(inputs):
        return model.init(jax.random.key(0), inputs, deterministic=True)["params"]

    shapes = jax.eval_shape(init, text_inputs(spec, B=2, S=17))
    wanted = flatten_dict(nn.unbox(shapes), sep="/")
    unpadded = dataclasses.replace(spec, vocab_multiple=1)
    result = flatten_dict(random_params(head_types.MASKED_LM, unpadded), sep="/")
    assert wanted.keys() == result.keys()
    rows = {"modernbert/embeddings/token", "masked_lm/bias"}
    for name, leaf in wanted.items():
        padding = 4 if name in rows else 0  # 20 pieces, 24 rows
        assert leaf.shape == (result[name].shape[0] + padding, *result[name].shape[1:]), name


@pytest.mark.slow
@pytest.mark.parametrize("remat", ["layer", "attention", "none"])
def test_remat_changes_nothing(remat):
    params = random_params(head_types.ENCODER, MODERNBERT)["modernbert"]
    ids, mask = _batch(17)

    def gradient(spec):
        def loss(params):
            inputs = _inputs(ids, mask)
            output = Transformer(spec).apply({"params": params}, inputs, deterministic=True)
            return (output**2 * mask[..., None]).sum()

        return jax.jit(jax.grad(loss))(params)

    wanted, found = gradient(MODERNBERT), gradient(dataclasses.replace(MODERNBERT, remat=remat))
    assert_close(found, wanted, 1000, share=0.01)


def test_a_token_sees_no_further_than_its_window():
    """A stack of local layers carries a change by half a window in each layer, and no further."""
    spec = dataclasses.replace(MODERNBERT, num_hidden_layers=3, global_attn_every_n_layers=4)
    params = random_params(head_types.ENCODER, spec)["modernbert"]
    ids, mask = _batch(LENGTH)
    mask[:] = 1

    @jax.jit
    def outputs(ids):
        # Layer 0 is global: its attention is taken out, so that only the local ones mix tokens.
        alone = params | {"encoder": dict(params["encoder"])}
        layer = dict(alone["encoder"]["layer_0"])
        layer["attention"] = jax.tree.map(np.zeros_like, layer["attention"])
        alone["encoder"]["layer_0"] = layer
        return Transformer(spec).apply({"params": alone}, _inputs(ids, mask), deterministic=True)

    other = ids.copy()
    other[:, 15] = (ids[:, 15] + 1) % MODERNBERT.vocab_size
    changed = np.abs(np.asarray(outputs(other)) - outputs(ids)).max((0, 2)) > 0
    assert np.flatnonzero(changed).tolist() == list(range(15 - 6, 15 + 6 + 1))


@pytest.mark.slow
def test_rotary_positions_are_relative():
    """With global layers alone, text after padding has the outputs it has without."""
    spec = dataclasses.replace(MODERNBERT, global_attn_every_n_layers=1)
    params = random_params(head_types.ENCODER, spec)["modernbert"]
    ids, _ = _batch(9)
    encoder, mask = Transformer(spec), np.ones_like(ids)
    apply = jax.jit(functools.partial(encoder.apply, deterministic=True))
    alone = apply({"params": params}, _inputs(ids, mask))
    padded = _inputs(*(np.pad(x, [(0, 0), (8, 0)]) for x in (ids, mask)))
    later = np.asarray(apply({"params": params}, padded))[:, 8:]
    assert_close(later, alone)


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(hidden_size=21), "a width of 7: rotary positions need an even width"),
        (dict(hidden_size=25), "does not divide over num_attention_heads=3"),
        (dict(local_attention=1), "local_attention=1: must be at least 2"),
        (dict(global_rope_theta=1.0), "global_rope_theta=1.0: must be above 1"),
        (dict(positions="sinusoid"), "positions='sinusoid': must be one of"),
        (dict(norm="both"), "norm='both': must be one of"),
        (dict(feed_forward="relu"), "feed_forward='relu': must be one of"),
        (dict(classifier_pooling="max"), "classifier_pooling='max': must be one of"),
        (dict(scan_layers=True), "scan_layers=True: the layers of modernbert are not alike"),
        (dict(attention="fused", attention_probs_dropout_prob=0.1), "cannot drop"),
        (dict(global_attn_every_n_layers=0), "global_attn_every_n_layers=0: must be at least 1"),
    ],
)
def test_bad_specs(fields, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(MODERNBERT, **fields)
    with pytest.raises(ValueError, match="size='huge': must be one of tiny, mini"):
        ModernBertSpec.named("huge")


def test_useful_operations_of_both_kinds_of_layers():
    """By hand, for one global and one local layer; a token sees at most 7 keys in a window."""
    spec = dataclasses.replace(MODERNBERT, num_hidden_layers=2)
    products = 2 * (4 * 24**2 + 3 * 24 * 56)
    head = 24 * MODERNBERT.vocab_size + 24**2
    for length, window in ((5, 5), (50, 7)):
        wanted = 6.0 * (products + 2 * 24 * (length + window) + 3 / length * head)
        assert spec.flops_per_token(length, 3) == pytest.approx(wanted)


def _config(corpus, **changes):
    config = tiny_config(corpus, objective="masked_lm", **changes)
    model = dict(encoder="modernbert", num_hidden_layers=2, max_position_embeddings=64)
    model |= dict(size="tiny", hidden_size=32, num_attention_heads=2, local_attention=6)
    return config | {"model": model | changes.get("model", {})}


def test_what_its_config_may_say(tiny_corpus):
    spec = Recipe.from_config(_config(tiny_corpus)).spec(37)
    assert (spec.encoder, spec.local_attention, spec.positions) == ("modernbert", 6, "rotary")
    for changes, message in (
        (dict(model=dict(num_attention_heads=32)), "model.hidden_size=32 .* need an even width"),
        (dict(model=dict(local_attention=1)), "config.model.local_attention=1: must be at least 2"),
        (dict(model=dict(type_vocab_size=2)), "config.model.type_vocab_size: unknown key"),
        (dict(phase_2=dict(length=80)), "config.phase_2.length=80 is over the position table"),
    ):
        with pytest.raises(InputError, match=message):
            Recipe.from_config(_config(tiny_corpus, **changes))
    config = _config(tiny_corpus) | {"objective": "masked_lm_next_sentence"}
    with pytest.raises(InputError, match="'masked_lm_next_sentence': modernbert has no head for"):
        Recipe.from_config(config)
