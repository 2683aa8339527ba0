"""ModernBERT (arXiv 2412.13663): rotary positions, gated feed-forward, local attention, no biases.

Its parts can be exchanged for BERT's one by one (`bertjax.encoders.modernbert.spec`).
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.attention.contract import Keys, Pattern
from bertjax.attention.implementations import attention
from bertjax.base import axes
from bertjax.encoders.modernbert.spec import BEFORE, GATED, LEARNED, ROTARY, ModernBertSpec
from bertjax.layers.activation import activation
from bertjax.layers.dense import Dense, parameter, truncated_normal
from bertjax.layers.dropout import Dropout, dropout_seed
from bertjax.layers.embedding import look_up, token_table
from bertjax.layers.norm import LayerNorm
from bertjax.layers.positions import positions_of
from bertjax.layers.rotary import Rotation, rotated, rotation


def into_residual(spec: ModernBertSpec):
    """The initializer of products that are added to the residual: smaller for deeper models."""
    deviation = spec.initializer_range / (2 * spec.num_hidden_layers) ** 0.5
    return nn.initializers.truncated_normal(deviation)


def _norm(spec: ModernBertSpec, name: str) -> LayerNorm:
    return LayerNorm(spec, axes.EMBED, use_bias=False, name=name)


class Embeddings(nn.Module):
    """The embeddings of the tokens, normalized; with the positions' where those are learned."""

    spec: ModernBertSpec

    def setup(self):
        spec, init = self.spec, truncated_normal(self.spec)
        self.token = token_table(self, init)
        if spec.positions == LEARNED:
            names = (axes.POSITIONS, axes.EMBED)
            shape = (spec.max_position_embeddings, spec.hidden_size)
            self.position = parameter(self, "position", names, shape, init)
        self.norm = LayerNorm(spec, axes.EMBED, use_bias=False)
        self.dropout = Dropout(spec)

    def __call__(self, input_ids, positions, deterministic: bool) -> jax.Array:
        """input_ids: int [B, S]; positions: int [S] or [B, S]. Returns [B, S, D]."""
        x = look_up(self.token, input_ids)
        if self.spec.positions == LEARNED:
            x += self.position[positions]
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))
        x = self.dropout(self.norm(x), deterministic)
        return x.astype(self.spec.compute_dtype)


class SelfAttention(nn.Module):
    """Multi-head self-attention over the whole sequence, or over a window."""

    spec: ModernBertSpec
    pattern: Pattern

    @nn.compact
    def __call__(
        self, x: jax.Array, keys: Keys, by: Rotation | None, deterministic: bool
    ) -> jax.Array:
        spec = self.spec
        heads = {axes.HEADS: spec.num_attention_heads, axes.HEAD_WIDTH: spec.head_width}
        embed = {axes.EMBED: spec.hidden_size}
        qkv = Dense(spec, embed, {axes.QKV: 3} | heads, use_bias=False, name="qkv")(x)
        qkv = nn.with_logical_constraint(  # [B, S, 3, N, H]
            qkv, (axes.BATCH, axes.LENGTH, None, axes.ACTIVATION_HEADS, None)
        )
        rate = spec.attention_probs_dropout_prob
        seed = None if deterministic or not rate else dropout_seed(self)

        def attend(qkv, by, keys, seed):
            if by is not None:
                qkv = rotated(qkv, by)
            return attention(spec.attention, qkv, keys, self.pattern, rate=rate, seed=seed)

        if spec.remat == "attention":
            attend = jax.checkpoint(attend)
        context = attend(qkv, by, keys, seed)  # [B, S, N, H]
        return Dense(spec, heads, embed, into_residual, use_bias=False, name="output")(context)


class FeedForward(nn.Module):
    """[B, S, D] -> [B, S, D]; gated, one half of the inner columns is multiplied by the other."""

    spec: ModernBertSpec

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        spec = self.spec
        embed, inner = {axes.EMBED: spec.hidden_size}, {axes.MLP: spec.intermediate_size}
        gate = {axes.GATE: 2} if spec.feed_forward == GATED else {}
        y = Dense(spec, embed, gate | inner, use_bias=False, name="intermediate")(x)
        sides = (None,) * len(gate)
        y = nn.with_logical_constraint(y, (axes.BATCH, axes.LENGTH, *sides, axes.ACTIVATION_MLP))
        y = activation(spec, y[:, :, 0]) * y[:, :, 1] if gate else activation(spec, y)
        y = Dropout(spec, name="inner_dropout")(y, deterministic)
        return Dense(spec, inner, embed, into_residual, use_bias=False, name="output")(y)


class Block(nn.Module):
    """One encoder layer: [B, S, D] -> [B, S, D].

    Attributes:
      layer: its number, from 0. The first has no norm before its attention, because its input is
        normalized.
    """

    spec: ModernBertSpec
    layer: int
    deterministic: bool

    @nn.compact
    def __call__(self, x: jax.Array, keys: Keys, by: Rotation | None) -> jax.Array:
        spec, before = self.spec, self.spec.norm == BEFORE
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))
        window = None if spec.is_global(self.layer) else spec.local_attention // 2
        attend = SelfAttention(spec, Pattern(spec.causal, window), name="attention")

        y = _norm(spec, "attention_norm")(x) if before and self.layer else x
        y = attend(y, keys, by, self.deterministic)
        drop = Dropout(spec, "attention_probs_dropout_prob", name="attention_dropout")
        x = x + drop(y, self.deterministic)
        if not before:
            x = _norm(spec, "attention_norm")(x)

        y = _norm(spec, "output_norm")(x) if before else x
        x = x + FeedForward(spec, name="feed_forward")(y, self.deterministic)
        return x if before else _norm(spec, "output_norm")(x)


class Layers(nn.Module):
    """L blocks: [B, S, D] -> the outputs of all."""

    spec: ModernBertSpec

    @nn.compact
    def __call__(
        self, x: jax.Array, keys: Keys, positions: jax.Array, deterministic: bool
    ) -> list[jax.Array]:
        spec, width = self.spec, self.spec.head_width
        of_global = of_local = None
        if spec.positions == ROTARY:
            of_global = rotation(positions, width, spec.global_rope_theta)
            of_local = rotation(positions, width, spec.local_rope_theta)
        block = nn.remat(Block) if spec.remat == "layer" else Block
        outputs = []
        for i in range(spec.num_hidden_layers):
            by = of_global if spec.is_global(i) else of_local
            # The compile report tells the kinds of layers apart by this scope.
            with jax.named_scope("global_layer" if spec.is_global(i) else "local_layer"):
                x = block(spec, i, deterministic, name=f"layer_{i}")(x, keys, by)
            outputs.append(x)
        return outputs


class ModernBert(nn.Module):
    """The encoder with its embeddings; outputs [B, S, D] in the compute dtype."""

    spec: ModernBertSpec

    def setup(self):
        self.embeddings = Embeddings(self.spec)
        self.encoder = Layers(self.spec)
        if self.spec.norm == BEFORE:
            self.final_norm = LayerNorm(self.spec, axes.EMBED, use_bias=False)

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, documents=None, deterministic: bool
    ) -> jax.Array:
        """See `bertjax.encoders.contract.EncoderFamily`; it has no token types."""
        return self.hidden_states(
            input_ids, input_mask, token_type_ids, documents=documents, deterministic=deterministic
        )[-1]

    def hidden_states(
        self, input_ids, input_mask, token_type_ids, *, documents=None, deterministic: bool
    ) -> list[jax.Array]:
        """The embeddings, then the outputs of layers 1 to L, of which the last is normalized."""
        del token_type_ids
        positions = jnp.arange(input_ids.shape[1])
        if documents is not None and self.spec.positions == LEARNED:
            positions = positions_of(documents)  # rotary ones are relative, wherever they begin
        x = self.embeddings(input_ids, positions, deterministic)
        keys = Keys(tokens=input_mask, documents=documents)
        outputs = self.encoder(x, keys, positions, deterministic)
        if self.spec.norm == BEFORE:
            outputs[-1] = self.final_norm(outputs[-1])
        return [x, *outputs]

    @property
    def token_embedding(self) -> jax.Array:
        """[V (padded), D], float32: the masked-LM decoder is tied to it."""
        return self.embeddings.token
