"""XLNet: its two streams and its memory, as transformers computes them; what it refuses."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.interop import hugging_face
from bertjax.interop.names import to_hf, to_jax
from bertjax.interop.published.registry import PUBLISHED, array_names
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import ENCODERS, make_encoder
from bertjax.models.encoders.storage import from_canonical
from bertjax.models.encoders.xlnet.attention import by_distance
from bertjax.models.encoders.xlnet.spec import XlnetSpec
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.models.heads.output_heads import masked_lm
from tests.helpers.closeness import assert_close

SIZES = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=56)
SPEC = XlnetSpec(vocab_size=97, **SIZES)
ROWS, LENGTH, PREDICTED, MEMORY = 3, 13, 4, 7
CONFIG = dict(vocab_size=97, d_model=24, n_layer=3, n_head=3, d_inner=56)


def _batch() -> dict[str, np.ndarray]:
    """Rows with an order; row 1 has padding before its text."""
    rng = np.random.default_rng(5)
    shape = (ROWS, LENGTH)
    places = np.stack([rng.permutation(np.arange(3, LENGTH))[:PREDICTED] for _ in range(ROWS)])
    order = np.zeros(shape, np.int32)
    for row, some in enumerate(places):
        last = np.arange(LENGTH)[-1]
        ranked = rng.permutation([*some, *({last} - {*some})])
        order[row, ranked] = 1 + np.arange(len(ranked))
    mask = np.ones(shape, np.int32)
    mask[1, :3] = 0
    return {
        "input_ids": rng.integers(0, 97, shape).astype(np.int32),
        "input_mask": mask,
        "token_type_ids": np.sort(rng.integers(0, 3, shape), -1).astype(np.int32),
        "order": order,
        "masked_lm_positions": places.astype(np.int32),
        "memory": rng.normal(size=(ROWS, 3, MEMORY, 24)).astype(np.float32),
    }


def _hidden(order: np.ndarray, places: np.ndarray) -> np.ndarray:
    """perm_mask: 1 where a token does not see another; a predicted token does not see itself."""
    hidden = order[:, None, :] > order[:, :, None]
    for row, some in enumerate(places):
        hidden[row, some, some] = True
    return hidden.astype(np.float64)


def _random_params(spec: XlnetSpec):
    parts = HEAD_SPECS[head_types.PERMUTATION_LM].parts(spec)
    entries, rng = array_names(parts, spec, head_types.PERMUTATION_LM, 0), np.random.default_rng(3)
    arrays = {e.hf_name: rng.normal(0.1, 0.2, e.shape).astype(np.float32) for e in entries}
    return to_jax(arrays, entries, "test"), arrays, entries


def _peer(arrays, **config):
    import torch
    import transformers

    settings = {**CONFIG, "mem_len": MEMORY, "reuse_len": LENGTH - 2} | config
    model = transformers.XLNetLMHeadModel(transformers.XLNetConfig(**settings)).eval()
    tensors = {name: torch.tensor(array) for name, array in arrays.items()}
    missing = model.load_state_dict(tensors, strict=False).missing_keys
    assert set(missing) <= {"lm_loss.weight"}
    encoder, float32 = model.transformer, model.transformer.relative_positional_encoding
    encoder.relative_positional_encoding = lambda *args, **more: float32(*args, **more).double()
    return model.double()


def _reference(model, batch, *, streams: bool, memory: bool):
    """The logits, and the memories [B, L, M, D] if there is one."""
    import torch

    tensors = {
        "input_ids": torch.tensor(batch["input_ids"]).long(),
        "attention_mask": torch.tensor(batch["input_mask"]).double(),
        "token_type_ids": torch.tensor(batch["token_type_ids"]).long(),
    }
    if streams:
        hidden = _hidden(batch["order"], batch["masked_lm_positions"])
        one_hot = np.eye(LENGTH)[batch["masked_lm_positions"]]
        tensors |= {"perm_mask": torch.tensor(hidden), "target_mapping": torch.tensor(one_hot)}
    mems = [torch.tensor(each).double() for each in batch["memory"].transpose(1, 2, 0, 3)]
    found = model(**tensors, mems=mems if memory else None, use_mems=True)
    return found.logits, torch.stack(found.mems).permute(2, 0, 1, 3)


@partial(jax.jit, static_argnums=0, static_argnames=("streams", "memory"))
def _logits(spec, params, batch, *, streams: bool, memory: bool):
    """Ours, and what each layer reads of the tokens, [B, L, S, D]."""
    batch = batch if memory else {k: v for k, v in batch.items() if k != "memory"}
    encoder, head = make_encoder(spec), masked_lm(spec)
    of_encoder = {"params": params["xlnet"]}
    if streams:
        states, layers = encoder.apply(of_encoder, batch, deterministic=True, method="two_streams")
    else:
        states = encoder.apply(of_encoder, batch, deterministic=True)
        layers = encoder.apply(of_encoder, batch, deterministic=True, method="hidden_states")
    table = params["xlnet"]["embeddings"]["token"]
    logits = head.apply({"params": params["masked_lm"]}, states, table)
    return logits, jnp.stack(layers[:-1], 1)


@pytest.mark.peers
@pytest.mark.parametrize("scanned", [False, True], ids=["unrolled", "scanned"])
@pytest.mark.parametrize("memory", [False, True], ids=["alone", "memory"])
@pytest.mark.parametrize("streams", [False, True], ids=["one stream", "two streams"])
def test_outputs_are_those_of_transformers(streams, memory, scanned):
    import torch

    params, arrays, _ = _random_params(SPEC)
    spec = dataclasses.replace(SPEC, scan_layers=scanned)
    batch = _batch()
    with torch.inference_mode():
        wanted, remembered = _reference(_peer(arrays), batch, streams=streams, memory=memory)
    arguments = spec, from_canonical(params, spec), batch
    found, layers = jax.device_get(_logits(*arguments, streams=streams, memory=memory))
    real = np.ones(wanted.shape[:2], bool) if streams else batch["input_mask"] > 0
    assert real.sum() in (ROWS * PREDICTED, ROWS * LENGTH - 3)
    assert_close(found[real], wanted.numpy()[real])
    # What they remember: the last of the memory and of the tokens that are reused.
    known = layers[:, :, : LENGTH - 2]
    known = np.concatenate([batch["memory"], known], 2) if memory else known
    assert_close(known[:, :, -MEMORY:], remembered.numpy())


@pytest.mark.peers
def test_gradients_of_two_streams_with_memory():
    import torch

    params, arrays, entries = _random_params(SPEC)
    batch, peer = _batch(), _peer(arrays)
    weights = np.random.default_rng(8).normal(size=(ROWS, PREDICTED, 97))

    def summed(params):
        return (_logits(SPEC, params, batch, streams=True, memory=True)[0] * weights).sum()

    result = to_hf(jax.tree.map(np.asarray, jax.jit(jax.grad(summed))(params)), entries)
    logits, _ = _reference(peer, batch, streams=True, memory=True)
    (logits * torch.tensor(weights)).sum().backward()
    reference = {name: each.grad for name, each in peer.named_parameters()}
    assert reference.keys() - {"lm_loss.weight"} == result.keys() - {"lm_loss.weight"}
    for name, gradient in reference.items():
        scale = float(np.abs(gradient.numpy()).max())
        assert scale > 1e-3, name
        assert_close(result[name], gradient.numpy(), 1000, err_msg=name)


@pytest.mark.slow
def test_gradients_in_bfloat16_are_those_in_float32():
    """XLA's CPUs once refused the gradient of the projection of distances in bfloat16."""
    spec = dataclasses.replace(SPEC, num_hidden_layers=1)
    weights = np.random.default_rng(8).normal(size=(ROWS, PREDICTED, 97))
    params, _, _ = _random_params(spec)

    def summed(params, spec):
        return (_logits(spec, params, _batch(), streams=True, memory=False)[0] * weights).sum()

    gradient = jax.jit(jax.grad(summed), static_argnums=1)
    exact = gradient(params, spec)
    found = gradient(params, dataclasses.replace(spec, compute_dtype="bfloat16"))
    for wanted, result in zip(jax.tree.leaves(exact), jax.tree.leaves(found), strict=True):
        wanted = np.asarray(wanted)
        assert np.linalg.norm(result - wanted) < 0.05 * np.linalg.norm(wanted)


@pytest.mark.slow
def test_left_to_right_with_memory():
    params, _, _ = _random_params(SPEC)
    spec, batch = dataclasses.replace(SPEC, causal=True), _batch()
    changed = {**batch, "input_ids": batch["input_ids"].copy()}
    changed["input_ids"][:, 6] += 1
    found, other = (
        np.asarray(_logits(spec, params, each, streams=False, memory=True)[0])
        for each in (batch, changed)
    )
    differs = np.abs(found - other).max((0, -1)) > 1e-6
    np.testing.assert_array_equal(differs, np.arange(LENGTH) >= 6)


def test_a_token_does_not_change_what_is_predicted_before_it():
    """No prediction depends on itself, or on tokens that come later in the order."""
    params, _, _ = _random_params(SPEC)
    batch = _batch()
    read = lambda batch: np.asarray(_logits(SPEC, params, batch, streams=True, memory=True)[0])  # noqa: E731
    before = read(batch)
    for row, places in enumerate(batch["masked_lm_positions"]):
        order = batch["order"][row, places]
        for number in np.argsort(order):
            changed = {**batch, "input_ids": batch["input_ids"].copy()}
            changed["input_ids"][row, places[number]] += 1
            differs = np.abs(read(changed) - before).max(-1) > 1e-6
            assert not np.delete(differs, row, 0).any()
            np.testing.assert_array_equal(differs[row], order > order[number])


@pytest.mark.slow
def test_packed_documents_do_not_see_each_other():
    params, _, _ = _random_params(SPEC)
    batch = {name: _batch()[name] for name in ("input_ids", "input_mask", "token_type_ids")}
    batch["input_mask"] = np.ones_like(batch["input_mask"])
    encoder = make_encoder(SPEC)

    @jax.jit
    def read(batch):
        return encoder.apply({"params": params["xlnet"]}, batch, deterministic=True)

    packed = batch | {"segment_ids": np.repeat([[1] * 5 + [2] * 8], ROWS, 0).astype(np.int32)}
    whole = np.asarray(read(packed))
    first, second = (
        read({name: x[:, cut] for name, x in batch.items()}) for cut in (slice(5), slice(5, 13))
    )
    assert_close(whole[:, :5], first)
    assert_close(whole[:, 5:], second)


def test_scores_by_distance_are_shifted():
    """Row i of 3 queries with 5 keys, 2 of them remembered: column j has the distance 2 + i - j."""
    distances = np.arange(5, -3, -1)
    scores = np.broadcast_to(distances, (2, 3, 8))
    wanted = 2 + np.arange(3)[:, None] - np.arange(5)
    np.testing.assert_array_equal(by_distance(jnp.asarray(scores), 5), [wanted] * 2)


def test_models_that_are_computed_in_another_way_are_refused():
    family = ENCODERS["xlnet"]
    fields = {"d_model": 24, "n_head": 3, "n_layer": 3, "d_inner": 56, "vocab_size": 97}
    assert hugging_face.spec_of(fields | {"d_head": 8}, family, "test") == SPEC
    dropped = hugging_face.spec_of(fields | {"dropout": 0.2}, family, "test")
    assert (dropped.hidden_dropout_prob, dropped.attention_probs_dropout_prob) == (0.2, 0.2)
    for name, value in (
        *(("untie_r", False), ("bi_data", True), ("clamp_len", 100), ("same_length", True)),
        *(
            ("summary_type", "first"),
            ("summary_activation", "relu"),
            ("d_head", 9),
            ("attn_type", "uni"),
        ),
    ):
        with pytest.raises(InputError, match=f"{name}={value!r}: only .* can be read"):
            hugging_face.spec_of(fields | {name: value}, family, "test")
    with pytest.raises(ValueError, match="no xlnet with causal=True, only False"):
        PUBLISHED["xlnet"].config.write(dataclasses.replace(SPEC, causal=True))
    with pytest.raises(ValueError, match="hidden_size=21: must be even"):
        XlnetSpec(hidden_size=21, num_attention_heads=3)
