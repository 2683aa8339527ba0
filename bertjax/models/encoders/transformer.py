"""The transformer encoder: embeddings, and blocks, unrolled or scanned."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.attention.contract import AttentionPattern, Mask
from bertjax.models.attention.disentangled import Distances, distances_of
from bertjax.models.attention.remat import keep_kernel_results
from bertjax.models.attention.self_attention import SelfAttention
from bertjax.models.encoders.spec import TransformerSpec
from bertjax.models.layers.activation import activation
from bertjax.models.layers.dense import Dense, add_bias, parameter, product
from bertjax.models.layers.dropout import Dropout
from bertjax.models.layers.embedding import embedding_lookup
from bertjax.models.layers.norm import LayerNorm, RMSNorm
from bertjax.models.layers.platform import platform
from bertjax.models.layers.positions import last_positions, positions_of
from bertjax.models.layers.rotary import Rotation, rotation

_EMBED = axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED


def norm(spec: TransformerSpec, name: str | None = None, axis: str = axes.EMBED) -> nn.Module:
    """The norm of the type that the spec names."""
    if spec.norm_type == "rms":
        return RMSNorm(axis, spec.layer_norm_eps, name=name)
    return LayerNorm(axis, spec.layer_norm_eps, use_bias=spec.norm_type == "layer", name=name)


class Embeddings(nn.Module):
    """The sum of the embeddings of tokens, their types and their positions."""

    spec: TransformerSpec

    def setup(self) -> None:
        spec = self.spec
        gathered_as = spec.precision.gathered_as
        self.token = self._table("token", axes.VOCAB, spec.padded_vocab_size, gathered_as)
        if spec.position_rows:
            self.position = self._table("position", axes.POSITIONS, spec.position_rows)
        if spec.type_vocab_size:
            self.segment = self._table("segment", axes.SEGMENTS, spec.type_vocab_size)
        if spec.embedding_norm:
            self.norm = norm(spec)
        self.dropout = Dropout(spec.hidden_dropout_prob)

    def _table(self, name: str, axis: str, rows: int, gathered_as: str = "float32") -> jax.Array:
        # The normal distribution is cut at two deviations and not rescaled, so that the result has
        # 0.88 of the deviation, as in google-research/bert (modeling.py, create_initializer).
        init = nn.initializers.truncated_normal(self.spec.initializer_range)
        shape = rows, self.spec.embedding_width
        return parameter(self, name, (axis, axes.EMBED), shape, init, gathered_as)

    def __call__(self, inputs: Mapping[str, jax.Array], deterministic: bool) -> jax.Array:
        """Returns [B, S, E]."""
        spec = self.spec
        x = embedding_lookup(self.token, inputs["input_ids"])
        if spec.type_vocab_size and spec.type_input in inputs:
            # A product, because the gradient of a look-up in a table of two rows is a slow scatter.
            one_hot = jax.nn.one_hot(inputs[spec.type_input], spec.type_vocab_size)
            x += jnp.matmul(one_hot, self.segment, precision=jax.lax.Precision.HIGHEST)
        if spec.position_rows:
            x += self._positions(inputs)
        x = nn.with_logical_constraint(x, _EMBED)
        x = self.norm(x) if spec.embedding_norm else x
        return self.dropout(x, deterministic).astype(spec.compute_dtype)

    def _positions(self, inputs: Mapping[str, jax.Array]) -> jax.Array:
        """The embeddings of the positions: [S, E], or [B, S, E] where rows differ in them."""
        places = places_of(inputs)
        if self.spec.positions == "learned":
            rows = slice(inputs["input_ids"].shape[1]) if places is None else places
            return self.position[rows]
        mask = inputs["input_mask"].astype(jnp.int32)
        counted = jnp.cumsum(mask, axis=1) if places is None else places + 1
        if not with_cache(inputs):
            counted = counted * mask  # padding has the row of its id
        return embedding_lookup(self.position, counted + self.spec.pad_token_id)


def with_cache(inputs: Mapping[str, jax.Array]) -> bool:
    """Whether the tokens before these are in a cache (`bertjax.models.encoders.cache`)."""
    return inputs["input_mask"].shape[1] != inputs["input_ids"].shape[1]


def places_of(inputs: Mapping[str, jax.Array]) -> jax.Array | None:
    """The position of each token in its text, int [B, S]; None: they count from 0 in each row."""
    if with_cache(inputs):
        return last_positions(inputs["input_mask"])
    if "position_ids" in inputs:
        return inputs["position_ids"]
    return positions_of(inputs["segment_ids"]) if "segment_ids" in inputs else None


class Convolution(nn.Module):
    """Each token reads its neighbours in its document: [B, S, D] -> [B, S, D]."""

    spec: TransformerSpec

    @nn.compact
    def __call__(self, x: jax.Array, mask: Mask, deterministic: bool) -> jax.Array:
        spec, precision = self.spec, self.spec.precision
        width, size, length = spec.hidden_size, spec.conv_kernel_size, x.shape[1]

        def around(array: jax.Array) -> jax.Array:
            """[B, S, ...] -> [B, S, places, ...]; there are zeros outside the row."""
            reach = (0, 0), (size // 2, size // 2), *((0, 0),) * (array.ndim - 2)
            wide = jnp.pad(array, reach)
            return jnp.stack([wide[:, i : i + length] for i in range(size)], axis=2)

        documents = mask.keys if mask.segment_ids is None else mask.segment_ids
        seen = around(documents) == documents[:, :, None]
        sides = axes.EMBED, axes.NEIGHBOURS, axes.EMBED_OUT
        init = nn.initializers.truncated_normal(spec.initializer_range)
        shape, gathered_as = (width, size, width), precision.gathered_as
        kernel = parameter(self, "kernel", sides, shape, init, gathered_as)
        bias = parameter(self, "bias", sides[2:], (width,), nn.initializers.zeros)
        x = jnp.where(seen[..., None], around(x), 0)
        y = add_bias(product("abki,iko->abo", x, kernel, precision, precision.compute), bias)
        y = Dropout(spec.hidden_dropout_prob)(y, deterministic)
        return activation(spec.conv_act, y, spec.keeps_slopes)


class Block(nn.Module):
    """One layer: attention and feed-forward, each added to its input.

    If `stacked`, the output is returned a second time, for the scan to stack.
    """

    spec: TransformerSpec
    layer: int
    deterministic: bool
    stacked: bool

    @nn.compact
    def __call__(
        self, x: jax.Array, mask: Mask, rotated_by: Rotation | None, distances: Distances | None
    ) -> tuple[jax.Array, jax.Array | None]:
        spec, deterministic = self.spec, self.deterministic
        init = nn.initializers.truncated_normal(spec.initializer_range)
        into_residual = nn.initializers.truncated_normal(spec.residual_range)
        drop_inner, rate = spec.dropout_of == "inner", spec.hidden_dropout_prob
        attention_rate = spec.attention_probs_dropout_prob if drop_inner else rate
        attend = SelfAttention(
            heads=spec.num_attention_heads,
            head_width=spec.head_width,
            pattern=AttentionPattern(spec.causal, spec.window(self.layer)),
            implementation=spec.attention,
            rate=spec.attention_probs_dropout_prob,
            dropout_bits=spec.dropout_bits,
            qkv_init=init,
            output_init=into_residual,
            precision=spec.precision,
            use_bias=spec.use_bias,
            remat=spec.remat == "attention",
            key_value_heads=spec.num_key_value_heads,
            name="attention",
        )
        embedded = x = nn.with_logical_constraint(x, _EMBED)
        attention_norm, output_norm = norm(spec, "attention_norm"), norm(spec, "output_norm")
        is_normal = spec.embedding_norm and self.layer == 0
        y = attention_norm(x) if spec.pre_norm and not is_normal else x
        if distances is not None:
            vectors = Dropout(rate, name="distance_dropout")(distances.vectors, deterministic)
            distances = distances._replace(vectors=vectors)
        y = attend(y, mask, rotated_by, distances, deterministic=deterministic)
        x = x + Dropout(attention_rate, name="attention_dropout")(y, deterministic)
        x = x if spec.pre_norm else attention_norm(x)

        embed, inner = {axes.EMBED: spec.hidden_size}, {axes.MLP: spec.intermediate_size}
        gate = {axes.GATE: 2} if spec.feed_forward == "gated" else {}
        dense = partial(Dense, precision=spec.precision, use_bias=spec.use_bias)
        y = output_norm(x) if spec.pre_norm else x
        on_gpu = platform() == "gpu"
        split = bool(gate) and on_gpu
        y = dense(embed, gate | inner, init, split=split, name="intermediate")(y)
        with jax.named_scope("activation"):
            activate = self._activated
            if on_gpu and not spec.keeps_slopes:
                # XLA would keep a float32 array of the forward pass, and not compute it again.
                activate = jax.checkpoint(activate)
            y = activate(y)
        if drop_inner:
            y = Dropout(rate, name="inner_dropout")(y, deterministic)
        y = dense(inner, embed, into_residual, name="output")(y)
        if not drop_inner:
            y = Dropout(rate, name="output_dropout")(y, deterministic)
        x = x + y
        x = x if spec.pre_norm else output_norm(x)
        if spec.conv_kernel_size and self.layer == 0:
            x += Convolution(spec, name="convolution")(embedded, mask, deterministic)
            x = norm(spec, "convolution_norm")(x)
        return x, x if self.stacked else None

    def _activated(self, y: Any) -> jax.Array:
        """[B, S, F]; of the gated form [B, S, 2, F], or a pair, the second multiplies the first."""
        spec, places = self.spec, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_MLP)
        if spec.feed_forward == "gated":
            if isinstance(y, jax.Array):
                y = nn.with_logical_constraint(y, (*places[:2], None, places[2]))
                y = y[:, :, 0], y[:, :, 1]
            return activation(spec.hidden_act, y[0], spec.keeps_slopes) * y[1]
        y = activation(spec.hidden_act, y, spec.keeps_slopes)
        return nn.with_logical_constraint(y, places)


class Layers(nn.Module):
    """L blocks: x [B, S, D] -> the outputs of all blocks, or of the last."""

    spec: TransformerSpec

    @nn.compact
    def __call__(
        self, x: jax.Array, mask: Mask, places: jax.Array, deterministic: bool, all_layers: bool
    ) -> list[jax.Array]:
        spec, block = self.spec, Block
        rotations: dict[float, Rotation] = {}
        if spec.positions == "rotary":
            for theta in {spec.theta(i): None for i in range(spec.num_hidden_layers)}:
                rotations[theta] = rotation(places, spec.head_width, theta)
        distances = self._distances(x.shape[1]) if spec.positions == "disentangled" else None
        if spec.remat == "layer":
            block = nn.remat(Block, policy=keep_kernel_results, prevent_cse=not spec.scan_layers)
        if not spec.scan_layers:
            outputs = []
            for i in range(spec.num_hidden_layers):
                layer = block(spec, i, deterministic, stacked=False, name=f"layer_{i}")
                with spec.layer_scope(i):
                    x, _ = layer(x, mask, rotations.get(spec.theta(i)), distances)
                outputs.append(x)
            return outputs
        stack = nn.scan(
            block,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=nn.broadcast,
            length=spec.num_hidden_layers,
            metadata_params={nn.PARTITION_NAME: axes.LAYERS},
        )
        layers = stack(spec, 0, deterministic, stacked=all_layers, name="layers")
        x, stacked = layers(x, mask, rotations.get(spec.theta(0)), distances)
        return [x] if stacked is None else list(stacked)

    def _distances(self, length: int) -> Distances:
        """The normed table of distances, which all layers read."""
        spec = self.spec
        init = nn.initializers.truncated_normal(spec.initializer_range)
        shape = 2 * spec.position_buckets, spec.hidden_size
        table = parameter(self, "distance", (axes.POSITIONS, axes.EMBED), shape, init)
        vectors = norm(spec, "distance_norm")(table).astype(spec.compute_dtype)
        return distances_of(vectors, length, spec.farthest)


class Transformer(nn.Module):
    """The encoder with its embeddings: see `bertjax.models.encoders.contract.EncoderFamily`."""

    spec: TransformerSpec

    def setup(self) -> None:
        spec = self.spec
        self.embeddings = Embeddings(spec)
        self.encoder = Layers(spec)
        if spec.embedding_width != spec.hidden_size:
            init = nn.initializers.truncated_normal(spec.initializer_range)
            sides = {axes.EMBED: spec.embedding_width}, {axes.EMBED_OUT: spec.hidden_size}
            self.projection = Dense(*sides, init, spec.precision)
        if spec.pre_norm:
            self.final_norm = norm(spec)

    def __call__(self, inputs: Mapping[str, jax.Array], *, deterministic: bool) -> jax.Array:
        """The output of the last layer, [B, S, D]; with pre-norm, it is normalized."""
        return self._states(inputs, deterministic, all_layers=False)[-1]

    def hidden_states(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> list[jax.Array]:
        """The embeddings, then the outputs of layers 1 to L: [B, S, D] each."""
        return self._states(inputs, deterministic, all_layers=True)

    def _states(
        self, inputs: Mapping[str, jax.Array], deterministic: bool, *, all_layers: bool
    ) -> list[jax.Array]:
        spec = self.spec
        x = self.embeddings(inputs, deterministic)
        if spec.embedding_width != spec.hidden_size:
            x = self.projection(x)
        mask = Mask(inputs["input_mask"], inputs.get("segment_ids"))
        # Rotary positions are relative: any start will do, so that packed documents share them.
        places = jnp.arange(inputs["input_ids"].shape[1])
        if with_cache(inputs):
            places = last_positions(inputs["input_mask"])
        outputs = self.encoder(x, mask, places, deterministic, all_layers)
        if spec.pre_norm:
            outputs[-1] = self.final_norm(outputs[-1])
        return [x, *outputs]

    @property
    def token_embedding(self) -> jax.Array:
        """[V (padded), E], float32: the masked-LM decoder is tied to it."""
        return self.embeddings.token
