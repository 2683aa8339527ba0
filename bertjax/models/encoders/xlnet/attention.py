"""Attention by relative positions (Transformer-XL, arXiv 1901.02860; XLNet, arXiv 1906.08237).

The score of a query at place i and a key at place j has three terms (section 2.2 and A.1 of XLNet;
modeling.py of zihangdai/xlnet, `rel_attn_core`), each with a bias of its own for the query: one of
the key's content, one of the distance i - j, and one of whether both are of the same text. A model
without token types, as Transformer-XL, lacks the third.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.attention.contract import DropoutSpec
from bertjax.models.attention.implementations import attention
from bertjax.models.attention.relative import by_distance
from bertjax.models.encoders.xlnet.spec import XlnetSpec
from bertjax.models.layers.dense import Dense, parameter
from bertjax.models.layers.dropout import dropout_seed


class Surroundings(NamedTuple):
    """The arrays next to the tokens; keys (T) are the memory (M) and the tokens (S)."""

    distances: jax.Array  # [S + T, D], the sinusoids of T, T - 1, ..., 1 - S
    seen: jax.Array  # bool [B, T], or [B, 1, S, T]: which keys a token sees
    other_text: jax.Array | None  # bool [B, S, T], whether a key is of another text than a query
    segment_ids: jax.Array | None = None  # int [B, T], the keys' packed documents
    seen_by_targets: jax.Array | None = None  # bool [B, 1, S, T], by the query stream
    targets: jax.Array | None = None  # [B, P, S], one-hot: the places of the query stream


def sinusoids(distances: jax.Array, width: int) -> jax.Array:
    """int [R] -> float32 [R, width]: the sines of all frequencies, then the cosines."""
    frequencies = 10_000.0 ** (-jnp.arange(0, width, 2) / width)
    angles = distances[:, None] * frequencies
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


class RelativeAttention(nn.Module):
    """Attention of the content stream, and of the query stream if there is one."""

    spec: XlnetSpec
    deterministic: bool

    @nn.compact
    def __call__(
        self,
        content: jax.Array,
        query: jax.Array | None,
        memory: jax.Array | None,
        around: Surroundings,
    ) -> tuple[jax.Array, jax.Array | None]:
        """content: [B, S, D]; query: [B, P, D]; memory: [B, M, D]. Returns both streams."""
        spec, init = self.spec, nn.initializers.normal(self.spec.initializer_range)
        embed = {axes.EMBED: spec.hidden_size}
        heads = {axes.HEADS: spec.num_attention_heads, axes.HEAD_WIDTH: spec.head_width}
        dense = partial(Dense, kernel_init=init, precision=spec.precision, use_bias=False)
        to_query, output = dense(embed, heads, name="query"), dense(heads, embed, name="output")

        def vectors(name: str, *first: int) -> jax.Array:
            """A parameter [..., N, H] that is added to queries, or multiplied with them."""
            names = (axes.SEGMENTS,) * len(first) + tuple(heads)
            each = parameter(self, name, names, (*first, *heads.values()), init)
            return each.astype(spec.compute_dtype)

        known = content if memory is None else jnp.concatenate([memory, content], 1)
        key, value = (dense(embed, heads, name=name)(known) for name in ("key", "value"))
        distance = dense(embed, heads, name="distance")(around.distances)  # [S + T, N, H]
        of_content, of_distance = map(vectors, ("content_bias", "distance_bias"))
        texts = None
        if spec.type_vocab_size:  # the second are of the same text, and of another
            texts = vectors("text_bias"), vectors("text", 2)
        dropping = spec.attention_probs_dropout_prob > 0 and not self.deterministic

        def attend(queries: jax.Array, seen: jax.Array, drop: DropoutSpec | None) -> jax.Array:
            """[B, S, N, H] -> [B, S, N, H]."""
            product = partial(jnp.einsum, preferred_element_type=jnp.float32)
            distances = product("bsnh,rnh->bnsr", queries + of_distance, distance)
            bias = by_distance(distances, known.shape[1])
            if texts is not None and around.other_text is not None:
                by_text = product("bsnh,gnh->bnsg", queries + texts[0], texts[1])
                other = around.other_text[:, None]
                bias += jnp.where(other, by_text[..., 1:], by_text[..., :1])
            return attention(
                queries + of_content,
                key,
                value,
                mask=seen,
                segment_ids=around.segment_ids,
                bias=bias * spec.head_width**-0.5,
                causal=spec.causal,
                drop=drop,
                implementation=spec.attention,
            )

        def read(queries: jax.Array, seen: jax.Array) -> jax.Array:
            drop = None
            if dropping:
                rate, bits = spec.attention_probs_dropout_prob, spec.dropout_bits
                drop = DropoutSpec(dropout_seed(self), rate, bits)
            again = jax.checkpoint(attend) if spec.remat == "attention" else attend
            return again(queries, seen, drop)

        read_content = output(read(to_query(content), around.seen))
        if query is None:
            return read_content, None
        assert around.seen_by_targets is not None
        exact = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST)
        queries = exact("bpnh,bps->bsnh", to_query(query), around.targets)
        context = exact("bsnh,bps->bpnh", read(queries, around.seen_by_targets), around.targets)
        return read_content, output(context)
