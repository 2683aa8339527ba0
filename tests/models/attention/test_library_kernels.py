"""Attention by libraries' kernels, with functions of their contracts in the kernels' place.

No GPU is used: what is tested is what the kernels get, and what becomes of their results.
"""

import sys
import types
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bertjax.models.attention import implementations, library_kernels, self_attention
from bertjax.models.attention.choice import FLASH, Way
from bertjax.models.attention.contract import AttentionPattern, Mask
from bertjax.models.attention.einsum import einsum_attention
from bertjax.models.attention.library_kernels import cudnn_self_attention, flash_self_attention
from bertjax.models.attention.self_attention import SelfAttention
from bertjax.models.layers.dense import Precision
from bertjax.models.layers.rotary import rotation
from bertjax.training.sharding.mesh import MeshSpec, make_mesh
from bertjax.training.sharding.placement import Placement
from bertjax.training.sharding.rules import sharding_layout
from tests.helpers.closeness import assert_close

B, S, N, K, H = 3, 70, 4, 2, 8


def _within(query, key, value, documents, pattern, rows):
    """Attention of [T, H, D] within documents, by their numbers [T]."""
    rest = (x.reshape(rows, -1, *x.shape[1:]) for x in (query, key, value))
    numbers = documents.reshape(rows, -1)
    mask = Mask(jnp.ones_like(numbers, bool), numbers)
    return einsum_attention(*rest, mask, pattern).reshape(query.shape)


def flash_mha_varlen(query, key, value, cu_seqlens, max_seqlen, *, is_causal, window_size):
    """The contract of dew_flash_attn's function: cu_seqlens int32 [N + 1], from 0 to T."""
    assert cu_seqlens.dtype == jnp.int32 and query.shape[0] % max_seqlen == 0
    document = jnp.searchsorted(cu_seqlens, jnp.arange(query.shape[0]), side="right")
    left, right = window_size
    assert left == right
    pattern = AttentionPattern(is_causal, None if left < 0 else left)
    return _within(query, key, value, document, pattern, query.shape[0] // max_seqlen)


def cudnn_attention(query, key, value, *, q_seqlen, kv_seqlen, q_offsets, kv_offsets, **others):
    """The contract of JAX's function: offsets [B, M + 1] and lengths [B, M], then -1."""
    assert others == {"mask_type": "padding", "scale": query.shape[-1] ** -0.5}
    assert q_seqlen is kv_seqlen and q_offsets is kv_offsets
    here = jnp.arange(query.shape[1])[None, :, None]
    begins, lengths = q_offsets[:, None, :-1], q_seqlen[:, None]
    within = (lengths >= 0) & (here >= begins) & (here < begins + lengths)
    mask = Mask(jnp.ones(query.shape[:2], bool), within.argmax(-1))
    return jnp.where(
        (within.sum(-1) == 1)[..., None, None],  # each token is in one document
        einsum_attention(query, key, value, mask, AttentionPattern()),
        jnp.nan,
    )


@pytest.fixture(autouse=True)
def kernels(monkeypatch):
    library = library_kernels.FlashAttention(flash_mha_varlen, lambda capability: True)
    cudnn = types.SimpleNamespace(
        dot_product_attention=cudnn_attention, MaskType=types.SimpleNamespace(PADDING="padding")
    )
    monkeypatch.setattr(library_kernels, "flash_attention", lambda: library)
    monkeypatch.setattr(library_kernels, "cudnn_packed", lambda: cudnn)


def _arrays(rows=B, heads=K):
    rng = np.random.default_rng(1)
    shapes = (rows, S, N, H), (rows, S, heads, H), (rows, S, heads, H)
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


TOKENS = jnp.asarray(np.arange(S) < np.array([[S], [41], [S - 1]]))
DOCUMENTS = jnp.asarray(np.array([[1] * S, [1] * 40 + [2] * 30, [1] * 7 + [2] * 63]) * TOKENS)
MASKS = {"padding": Mask(TOKENS), "packed": Mask(TOKENS, DOCUMENTS)}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize(
    "attend, pattern",
    [
        (flash_self_attention, AttentionPattern()),
        (flash_self_attention, AttentionPattern(window=5)),
        (flash_self_attention, AttentionPattern(causal=True)),
        (cudnn_self_attention, AttentionPattern()),
    ],
)
def test_values_and_gradients_are_those_of_einsum(attend, pattern, name):
    mask = MASKS[name]
    tokens = mask.keys[:, :, None, None]

    @partial(jax.jit, static_argnums=0)
    def both(attend, *arrays):
        context, pull = jax.vjp(lambda *x: jnp.where(tokens, attend(*x, mask, pattern), 0), *arrays)
        return context, pull(jnp.cos(context))

    found = both(attend, *_arrays())
    assert_close(found, both(einsum_attention, *_arrays()))
    assert all(np.abs(each).max() > 0.1 for each in found[1])


@pytest.mark.parametrize("attend", [flash_self_attention, cudnn_self_attention])
def test_no_wrong_result_of_rows_that_the_kernels_cannot_compute(attend):
    """Of 70 tokens: more than three documents in a row; a text with a hole."""
    attend = jax.jit(attend, static_argnums=4)
    short = jnp.asarray(np.arange(S) // 7)[None].repeat(B, 0)
    assert jnp.isnan(attend(*_arrays(), Mask(TOKENS, short), AttentionPattern())).all()
    hole = TOKENS.at[0, 20].set(False)
    assert jnp.isnan(attend(*_arrays(), Mask(hole), AttentionPattern())).all()


def test_rows_of_a_device_share_the_bound_of_documents():
    """One row may have more than three documents, if others have less."""
    many = DOCUMENTS.at[0].set(jnp.arange(S) // 14)  # 5 + 3 + 3 of 9
    few = jax.jit(flash_self_attention, static_argnums=4)
    assert jnp.isnan(few(*_arrays(), Mask(TOKENS, many), AttentionPattern())).all()
    many = DOCUMENTS.at[0].set(jnp.arange(S) // 24)  # 3 + 3 + 3
    assert not jnp.isnan(few(*_arrays(), Mask(TOKENS, many), AttentionPattern())).any()


@pytest.mark.devices(8)
@pytest.mark.parametrize("attend", [flash_self_attention, cudnn_self_attention])
@pytest.mark.parametrize("name, model", [("data", 1), ("tensor", 2)])
def test_each_device_computes_its_rows_and_heads(attend, name, model):
    arrays = _arrays(rows=8)
    mask = jax.tree.map(lambda x: jnp.concatenate([x, x, x[:2]]), MASKS["packed"])
    attend = jax.jit(attend, static_argnums=4)
    expected = attend(*arrays, mask, AttentionPattern())
    placement = Placement(make_mesh(MeshSpec(data=-1, model=model)), sharding_layout(name))
    with placement.active():
        found = attend(*jax.device_put((*arrays, mask), placement.batch), AttentionPattern())
    assert_close(found, expected)


@pytest.mark.parametrize("shared", [0, K])
def test_a_layer_is_the_same_with_queries_keys_and_values_apart(monkeypatch, shared):
    """With rotated queries and keys, a window, and heads that share keys; and its gradients."""
    init = nn.initializers.normal()
    layer = SelfAttention(
        *(N, H, AttentionPattern(window=9), "auto", 0.0, init, init, Precision()),
        key_value_heads=shared,
    )
    x = jnp.asarray(np.random.default_rng(2).normal(size=(B, S, N * H)), jnp.float32)
    by = jax.jit(lambda: rotation(jnp.arange(S), H, 100.0))()
    rest, tokens = dict(mask=MASKS["packed"], rotation=by), TOKENS[..., None]
    params = jax.jit(partial(layer.init, deterministic=True))(jax.random.key(0), x, **rest)

    def both():
        def total(params, x):
            context = layer.apply(params, x, **rest, deterministic=True) * tokens
            return jnp.sin(context * 30).sum(), context

        return jax.jit(jax.grad(total, (0, 1), has_aux=True))(params, x)

    expected = both()
    monkeypatch.setattr(self_attention, "taken", lambda *_: Way(FLASH))
    monkeypatch.setattr(implementations, "platform", lambda: "gpu")
    assert_close(both(), expected, share=0.01)


# ------------------------------------------------------------------- the libraries themselves


def test_jax_still_lends_the_packed_form_of_cudnn(monkeypatch):
    """The private function has its arguments, and lowers for a GPU to cuDNN's calls."""
    monkeypatch.undo()
    cudnn = library_kernels.cudnn_packed()
    assert cudnn is not None
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91_400)
    monkeypatch.setattr(cudnn, "check_compute_capability", lambda capability: True)
    monkeypatch.setattr(cudnn, "is_cuda_compute_capability_equal", lambda capability: False)
    arrays = [x.astype(jnp.bfloat16) for x in _arrays()]

    def gradients(*arrays):
        attend = lambda *x: cudnn_self_attention(*x, MASKS["packed"], AttentionPattern())  # noqa: E731
        return jax.vjp(attend, *arrays)[1](arrays[0])

    text = jax.jit(gradients).trace(*arrays).lower(lowering_platforms=("cuda",)).as_text()
    assert "__cudnn$fmhaSoftmax(" in text and "__cudnn$fmhaSoftmaxBackward(" in text


def test_without_the_packed_form_there_is_none(monkeypatch):
    monkeypatch.undo()
    monkeypatch.delattr("jax._src.cudnn.fused_attention_stablehlo.MaskType")
    assert library_kernels.cudnn_packed.__wrapped__() is None


def test_the_library_of_flash_attention(monkeypatch):
    """It says for which GPUs it has code; one that cannot be loaded is as none, with a warning."""
    monkeypatch.undo()
    library = types.ModuleType("dew_flash_attn")
    library.ARCHITECTURES, library.flash_mha_varlen = ("sm80", "sm120", "sm90"), flash_mha_varlen
    monkeypatch.setitem(sys.modules, "dew_flash_attn", library)
    found = library_kernels.flash_attention.__wrapped__()
    served = [capability for capability in range(70, 130) if found.serves(capability)]
    assert served == [*range(80, 91), 120]
    del library.ARCHITECTURES
    with pytest.warns(UserWarning, match="dew_flash_attn cannot be loaded: .*ARCHITECTURES"):
        assert library_kernels.flash_attention.__wrapped__() is None
    monkeypatch.setitem(sys.modules, "dew_flash_attn", None)
    assert library_kernels.flash_attention.__wrapped__() is None
