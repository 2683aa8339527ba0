"""ModernBERT (arXiv 2412.13663): rotary positions, gated feed-forward, local attention, no biases.

Its parts can be exchanged for BERT's one by one (`bertjax.models.encoders.modernbert.spec`).
"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.attention.contract import Mask, Pattern
from bertjax.models.attention.remat import keep_kernel_results
from bertjax.models.attention.self_attention import SelfAttention
from bertjax.models.encoders.modernbert.spec import BEFORE, GATED, LEARNED, ROTARY, ModernBertSpec
from bertjax.models.layers.activation import activation
from bertjax.models.layers.dense import Dense, parameter
from bertjax.models.layers.dropout import Dropout
from bertjax.models.layers.embedding import look_up
from bertjax.models.layers.norm import LayerNorm
from bertjax.models.layers.positions import last_positions, positions_of
from bertjax.models.layers.rotary import Rotation, rotation

Initializer = nn.initializers.Initializer


def into_residual(spec: ModernBertSpec) -> Initializer:
    """The initializer of products that are added to the residual: smaller for deeper models."""
    deviation = spec.initializer_range / (2 * spec.num_hidden_layers) ** 0.5
    return nn.initializers.truncated_normal(deviation)


def _others(spec: ModernBertSpec) -> Initializer:
    return nn.initializers.truncated_normal(spec.initializer_range)


def _norm(spec: ModernBertSpec, name: str | None = None) -> LayerNorm:
    return LayerNorm(axes.EMBED, spec.layer_norm_eps, use_bias=False, name=name)


class Embeddings(nn.Module):
    """The embeddings of the tokens, plus those of positions if they are learned, normalized."""

    spec: ModernBertSpec

    def setup(self) -> None:
        spec, init, width = self.spec, _others(self.spec), self.spec.hidden_size
        names, shape = (axes.VOCAB, axes.EMBED), (spec.padded_vocab_size, width)
        gathered_as = spec.precision.gathered_as
        self.token = parameter(self, "token", names, shape, init, gathered_as)
        if spec.positions == LEARNED:
            names, shape = (axes.POSITIONS, axes.EMBED), (spec.max_position_embeddings, width)
            self.position = parameter(self, "position", names, shape, init)
        self.norm = _norm(spec)
        self.dropout = Dropout(spec.hidden_dropout_prob)

    def __call__(
        self, input_ids: jax.Array, positions: jax.Array, deterministic: bool
    ) -> jax.Array:
        """input_ids: int [B, S]; positions: int [S] or [B, S]. Returns [B, S, D]."""
        x = look_up(self.token, input_ids)
        if self.spec.positions == LEARNED:
            x += self.position[positions]
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))
        x = self.dropout(self.norm(x), deterministic)
        return x.astype(self.spec.compute_dtype)


class FeedForward(nn.Module):
    """[B, S, D] -> [B, S, D]; if gated, one half of the inner columns multiplies the other."""

    spec: ModernBertSpec

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        spec = self.spec
        embed, inner = {axes.EMBED: spec.hidden_size}, {axes.MLP: spec.intermediate_size}
        gate = {axes.GATE: 2} if spec.feed_forward == GATED else {}
        dense = partial(Dense, precision=spec.precision, use_bias=False)
        y = dense(embed, gate | inner, _others(spec), name="intermediate")(x)
        sides = (None,) * len(gate)
        y = nn.with_logical_constraint(y, (axes.BATCH, axes.LENGTH, *sides, axes.ACTIVATION_MLP))
        if gate:
            y = activation(spec.hidden_act, y[:, :, 0], spec.keeps_slopes) * y[:, :, 1]
        else:
            y = activation(spec.hidden_act, y, spec.keeps_slopes)
        y = Dropout(spec.hidden_dropout_prob, name="inner_dropout")(y, deterministic)
        return dense(inner, embed, into_residual(spec), name="output")(y)


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
    def __call__(self, x: jax.Array, mask: Mask, rotation: Rotation | None) -> jax.Array:
        spec, before = self.spec, self.spec.norm == BEFORE
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))
        window = None if spec.is_global(self.layer) else spec.local_attention // 2
        attend = SelfAttention(
            heads=spec.num_attention_heads,
            head_width=spec.head_width,
            pattern=Pattern(spec.causal, window),
            implementation=spec.attention,
            rate=spec.attention_probs_dropout_prob,
            dropout_bits=spec.dropout_bits,
            qkv_init=_others(spec),
            output_init=into_residual(spec),
            precision=spec.precision,
            use_bias=False,
            remat=spec.remat == "attention",
            name="attention",
        )

        y = _norm(spec, "attention_norm")(x) if before and self.layer else x
        y = attend(y, mask, rotation, deterministic=self.deterministic)
        drop = Dropout(spec.attention_probs_dropout_prob, name="attention_dropout")
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
        self, x: jax.Array, mask: Mask, positions: jax.Array, deterministic: bool
    ) -> list[jax.Array]:
        spec, width = self.spec, self.spec.head_width
        of_global = of_local = None
        if spec.positions == ROTARY:
            of_global = rotation(positions, width, spec.global_rope_theta)
            of_local = rotation(positions, width, spec.local_rope_theta)
        block = Block
        if spec.remat == "layer":
            block = nn.remat(Block, policy=keep_kernel_results)
        outputs = []
        for i in range(spec.num_hidden_layers):
            by = of_global if spec.is_global(i) else of_local
            # The compile report tells the kinds of layers apart by this scope.
            with jax.named_scope(f"{spec.layer_kind(i)}_layer"):
                x = block(spec, i, deterministic, name=f"layer_{i}")(x, mask, by)
            outputs.append(x)
        return outputs


class ModernBert(nn.Module):
    """The encoder with its embeddings: see `bertjax.models.encoders.contract.EncoderFamily`."""

    spec: ModernBertSpec

    def setup(self) -> None:
        self.embeddings = Embeddings(self.spec)
        self.encoder = Layers(self.spec)
        if self.spec.norm == BEFORE:
            self.final_norm = _norm(self.spec)

    def __call__(self, inputs: Mapping[str, jax.Array], *, deterministic: bool) -> jax.Array:
        """The output of the last layer, normalized: [B, S, D]."""
        return self.hidden_states(inputs, deterministic=deterministic)[-1]

    def hidden_states(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> list[jax.Array]:
        """The embeddings, then the outputs of layers 1 to L, of which the last is normalized.

        With a cache (`bertjax.models.encoders.cache`), S is 1.
        """
        input_ids, segment_ids = inputs["input_ids"], inputs.get("segment_ids")
        positions = jnp.arange(input_ids.shape[1])
        if inputs["input_mask"].shape[1] != input_ids.shape[1]:  # the tokens before are in a cache
            positions = last_positions(inputs["input_mask"])
        elif segment_ids is not None and self.spec.positions == LEARNED:
            positions = positions_of(segment_ids)  # rotary ones are relative: any start will do
        x = self.embeddings(input_ids, positions, deterministic)
        mask = Mask(inputs["input_mask"], segment_ids)
        outputs = self.encoder(x, mask, positions, deterministic)
        if self.spec.norm == BEFORE:
            outputs[-1] = self.final_norm(outputs[-1])
        return [x, *outputs]

    @property
    def token_embedding(self) -> jax.Array:
        """[V (padded), D], float32: the masked-LM decoder is tied to it."""
        return self.embeddings.token
