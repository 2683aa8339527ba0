"""Multi-head self-attention with its products: the layer that encoders share."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.attention.choice import EINSUM, KERNEL, Call, taken
from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask
from bertjax.models.attention.disentangled import Distances
from bertjax.models.attention.implementations import (
    Qkv,
    attention,
    is_split,
    joined,
    self_attention,
)
from bertjax.models.attention.probabilities import ATTENTION, probabilities
from bertjax.models.layers.dense import Dense, Precision
from bertjax.models.layers.dropout import dropout_seed
from bertjax.models.layers.rotary import Rotation, rotated


class SelfAttention(nn.Module):
    """[B, S, D] -> [B, S, D]; one product makes queries, keys and values.

    If keys and values have fewer heads than queries (grouped-query attention, arXiv 2305.13245),
    queries have a product of their own.
    """

    heads: int  # N
    head_width: int  # H
    pattern: AttentionPattern
    implementation: str  # one of `choice.NAMES`
    rate: float
    qkv_init: nn.initializers.Initializer
    output_init: nn.initializers.Initializer
    precision: Precision
    use_bias: bool = True
    dropout_bits: int = 32
    remat: bool = False  # the backward pass computes the scores again
    key_value_heads: int = 0  # K, which divides N; 0: as many as N

    @nn.compact
    def __call__(
        self,
        x: jax.Array,
        mask: Mask,
        rotation: Rotation | None = None,
        distances: Distances | None = None,
        *,
        deterministic: bool,
    ) -> jax.Array:
        """If `rotation` is given, it turns queries and keys, which marks positions.

        The product that makes the queries and keys of `distances` is that of the tokens.

        With a cache (`bertjax.models.encoders.cache`), x is one token, the last of those in
        `mask.keys`. Where the collection `ATTENTION` is mutable, it gets the probabilities.
        """
        embed = {axes.EMBED: x.shape[-1]}
        heads = {axes.HEADS: self.heads, axes.HEAD_WIDTH: self.head_width}
        cached = self.has_variable("cache", "keys")
        dropping = self.rate > 0 and not deterministic
        call = Call(
            *(x.shape[1], self.head_width, x.dtype, self.pattern, self.rate, dropping),
            mask_of_keys=mask.keys.ndim == 2,
            distances=distances is not None,
        )
        way = taken(EINSUM if cached else self.implementation, call).name
        split = is_split(way)
        dense = partial(
            Dense,
            precision=self.precision,
            use_bias=self.use_bias,
            # A kernel of attention on a TPU reads and writes all heads as one axis.
            joined=way == KERNEL,
        )
        qkv: Qkv
        if self.key_value_heads in (0, self.heads):
            to_qkv = dense(embed, {axes.QKV: 3} | heads, self.qkv_init, split=split, name="qkv")
            qkv = to_qkv(x)
            if distances is not None:
                vectors = joined(to_qkv(distances.vectors[None]))[0]
                distances = distances._replace(vectors=vectors)
        else:
            shared = {axes.QKV: 2, axes.KV_HEADS: self.key_value_heads}
            shared[axes.HEAD_WIDTH] = self.head_width
            query = dense(embed, heads, self.qkv_init, name="query")(x)
            key_value = dense(embed, shared, self.qkv_init, split=split, name="key_value")(x)
            qkv = (
                (query, *key_value)
                if split
                else joined((query, key_value[:, :, 0], key_value[:, :, 1]))
            )
        if not split:
            qkv = nn.with_logical_constraint(  # [B, S, 3, N, H]
                qkv, (axes.BATCH, axes.LENGTH, None, axes.ACTIVATION_HEADS, None)
            )
        if self.is_mutable_collection(ATTENTION):
            shares = probabilities(joined(qkv), mask, self.pattern, rotation, distances)
            self.sow(ATTENTION, "probabilities", shares)
        if cached:
            context = self._attend_to_cache(joined(qkv), mask.keys, rotation)
        else:
            drop = (
                DropoutSpec(dropout_seed(self), self.rate, self.dropout_bits) if dropping else None
            )
            context = self_attention(  # [B, S, N, H]
                *(qkv, mask, self.pattern, rotation, distances),
                drop=drop,
                way=way,
                remat=self.remat,
            )
        return dense(heads, embed, self.output_init, name="output")(context)

    def _attend_to_cache(
        self, qkv: jax.Array, mask: jax.Array, rotation: Rotation | None
    ) -> jax.Array:
        """One token's attention to itself and the cache: qkv [B, 1, 3, N, H] -> [B, 1, N, H]."""
        rows, place = jnp.arange(len(qkv)), mask.sum(1) - 1
        qkv = qkv if rotation is None else rotated(qkv, rotation)
        query, *new = (qkv[:, :, number] for number in range(3))
        seen = []
        for name, array in zip(("keys", "values"), new, strict=True):
            cached: nn.Variable[jax.Array] = self.variable("cache", name)
            readers = self.heads // cached.value.shape[2]  # of one head of keys and values
            cached.value = cached.value.at[rows, place].set(array[:, 0, ::readers])
            seen.append(cached.value)
        if self.pattern.window is not None:
            mask = mask * (jnp.arange(mask.shape[1]) >= place[:, None] - self.pattern.window)
        return attention(query, *seen, mask=mask, implementation=self.implementation)
