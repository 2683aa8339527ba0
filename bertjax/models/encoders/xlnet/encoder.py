"""XLNet (arXiv 1906.08237): BERT's blocks with relative positions, memory, and a second stream.

The content stream reads the text; Transformer-XL (arXiv 1901.02860) has no other. The query stream
(section 2.3) is the vector of each predicted token, which knows its place and the tokens before it
in the order, and not the token itself.
"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.attention.remat import keep_kernel_results
from bertjax.models.encoders.xlnet.attention import RelativeAttention, Surroundings, sinusoids
from bertjax.models.encoders.xlnet.spec import XlnetSpec
from bertjax.models.layers.activation import activation
from bertjax.models.layers.dense import Dense, parameter
from bertjax.models.layers.dropout import Dropout
from bertjax.models.layers.embedding import embedding_lookup
from bertjax.models.layers.norm import LayerNorm

Streams = tuple[jax.Array, jax.Array | None]  # content [B, S, D]; query [B, P, D], or None


class Block(nn.Module):
    """One layer: attention and feed-forward for each stream, each added to its input and normed."""

    spec: XlnetSpec
    deterministic: bool

    @nn.compact
    def __call__(
        self, streams: Streams, memory: jax.Array | None, around: Surroundings
    ) -> tuple[Streams, jax.Array]:
        """memory: [B, M, D]. Also returns the content stream's output, for the scan to stack."""
        spec = self.spec
        init = nn.initializers.normal(spec.initializer_range)
        dense = partial(Dense, kernel_init=init, precision=spec.precision)
        embed, mlp = {axes.EMBED: spec.hidden_size}, {axes.MLP: spec.intermediate_size}
        drop = Dropout(spec.hidden_dropout_prob)
        attention_norm, output_norm = (
            LayerNorm(axes.EMBED, spec.layer_norm_eps, name=name)
            for name in ("attention_norm", "output_norm")
        )
        widen, narrow = dense(embed, mlp, name="intermediate"), dense(mlp, embed, name="output")

        def after(x: jax.Array, read: jax.Array) -> jax.Array:
            """The output of a stream from its input and from what attention has read."""
            x = attention_norm(x + drop(read, self.deterministic))
            x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))
            y = activation(spec.hidden_act, widen(x), spec.keeps_slopes)
            y = nn.with_logical_constraint(y, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_MLP))
            y = narrow(drop(y, self.deterministic))
            return output_norm(x + drop(y, self.deterministic))

        attend = RelativeAttention(spec, self.deterministic, name="attention")
        content, query = streams
        read, read_query = attend(content, query, memory, around)
        content = after(content, read)
        query = None if query is None or read_query is None else after(query, read_query)
        return (content, query), content


class Layers(nn.Module):
    """L blocks, unrolled or scanned."""

    spec: XlnetSpec

    @nn.compact
    def __call__(
        self,
        streams: Streams,
        memory: jax.Array | None,
        around: Surroundings,
        deterministic: bool,
    ) -> tuple[list[jax.Array], jax.Array | None]:
        """memory: [B, L, M, D]. Returns the content stream after each layer; the query stream."""
        spec, block = self.spec, Block
        if spec.remat == "layer":
            block = nn.remat(Block, policy=keep_kernel_results, prevent_cse=not spec.scan_layers)
        of_layers = None if memory is None else memory.swapaxes(0, 1)
        if not spec.scan_layers:
            outputs = []
            for i in range(spec.num_hidden_layers):
                layer_states = None if of_layers is None else of_layers[i]
                layer = block(spec, deterministic, name=f"layer_{i}")
                streams, content = layer(streams, layer_states, around)
                outputs.append(content)
            return outputs, streams[1]
        stack = nn.scan(
            block,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(0, nn.broadcast),
            length=spec.num_hidden_layers,
            metadata_params={nn.PARTITION_NAME: axes.LAYERS},
        )
        streams, stacked = stack(spec, deterministic, name="layers")(streams, of_layers, around)
        return list(stacked), streams[1]


class Embeddings(nn.Module):
    """The vectors of tokens, and the one vector with which a query stream begins."""

    spec: XlnetSpec

    def setup(self) -> None:
        spec = self.spec
        width, init = spec.hidden_size, nn.initializers.normal(spec.initializer_range)
        table = (spec.padded_vocab_size, width), init, spec.precision.gathered_as
        self.token = parameter(self, "token", (axes.VOCAB, axes.EMBED), *table)
        if spec.two_streams:
            self.unknown = parameter(self, "unknown", (axes.EMBED,), (width,), init)

    def __call__(self, ids: jax.Array) -> jax.Array:
        """[B, S] -> [B, S, D]."""
        x = embedding_lookup(self.token, ids)
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))
        if self.spec.scaled_embeddings:
            x *= self.spec.hidden_size**0.5
        return x.astype(self.spec.compute_dtype)


class Xlnet(nn.Module):
    """The encoder: see `bertjax.models.encoders.contract.EncoderFamily`."""

    spec: XlnetSpec

    def setup(self) -> None:
        self.embeddings = Embeddings(self.spec)
        self.encoder = Layers(self.spec)
        self.dropout = Dropout(self.spec.hidden_dropout_prob)

    def __call__(self, inputs: Mapping[str, jax.Array], *, deterministic: bool) -> jax.Array:
        """The output of the last layer, [B, S, D]."""
        if not self.has_variable("cache", "memory"):
            return self.one_stream(inputs, deterministic=deterministic)[0]
        memory: jax.Array = self.get_variable("cache", "memory")
        seen = inputs["input_mask"]
        before = {"memory": memory, "memory_mask": seen[:, :0:-1]}  # its last tokens are there
        now = {**inputs, **before, "input_mask": seen[:, :1]}
        vectors, states = self.one_stream(now, deterministic=deterministic)
        read = jnp.stack(states[:-1], axis=1)
        self.put_variable("cache", "memory", jnp.concatenate([memory, read], axis=2)[:, :, 1:])
        return vectors

    def hidden_states(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> list[jax.Array]:
        """The embeddings, then the outputs of layers 1 to L: [B, S, D] each."""
        return self._read(inputs, deterministic)[0]

    def one_stream(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> tuple[jax.Array, list[jax.Array]]:
        states = self.hidden_states(inputs, deterministic=deterministic)
        return self.dropout(states[-1], deterministic), states

    def two_streams(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> tuple[jax.Array, list[jax.Array]]:
        states, query = self._read(inputs, deterministic, inputs["masked_lm_positions"])
        assert query is not None
        return self.dropout(query, deterministic), states

    def _read(
        self,
        inputs: Mapping[str, jax.Array],
        deterministic: bool,
        places: jax.Array | None = None,
    ) -> tuple[list[jax.Array], jax.Array | None]:
        """Both streams; the query stream is None without places."""
        memory, ids = inputs.get("memory"), inputs["input_ids"]
        dtype = self.spec.compute_dtype
        content, query = self.dropout(self.embeddings(ids), deterministic), None
        if places is not None:
            unknown = self.embeddings.unknown.astype(dtype)
            query = jnp.broadcast_to(unknown, (*places.shape, unknown.size))
            query = self.dropout(query, deterministic)
        around = self._surroundings(inputs, 0 if memory is None else memory.shape[2], places)
        distances = self.dropout(around.distances, deterministic).astype(dtype)
        around = around._replace(distances=distances)
        states, query = self.encoder((content, query), memory, around, deterministic)
        return [content, *states], query

    def _surroundings(
        self, inputs: Mapping[str, jax.Array], remembered: int, places: jax.Array | None
    ) -> Surroundings:
        """The surroundings of the tokens with M = `remembered`."""

        def with_memory(x: jax.Array, value: int) -> jax.Array:
            """[B, ..., S] -> [B, ..., T], with the value at the tokens of the memory."""
            pads = [(0, 0)] * (x.ndim - 1) + [(remembered, 0)]
            return jnp.pad(x, pads, constant_values=value)

        tokens = inputs["input_mask"] > 0
        length = tokens.shape[1]
        keys, other_text, seen = remembered + length, None, with_memory(tokens, 1)
        if self.spec.type_vocab_size:
            types = inputs["token_type_ids"]
            other_text = types[:, :, None] != with_memory(types, 0)[:, None]
        if "memory_mask" in inputs:
            seen = jnp.concatenate([inputs["memory_mask"] > 0, tokens], 1)
        around = Surroundings(
            # One for all rows, as in Transformer-XL; zihangdai/xlnet drops others in each row.
            distances=sinusoids(keys - jnp.arange(length + keys), self.spec.hidden_size),
            seen=seen,
            other_text=other_text,
            segment_ids=inputs.get("segment_ids"),
        )
        if places is None:
            return around
        order = inputs["order"]
        before, of_keys = order[:, :, None], order[:, None]
        one_hot = jax.nn.one_hot(places, length, dtype=self.spec.compute_dtype)
        return around._replace(
            seen=with_memory((of_keys <= before) & tokens[:, None], 1)[:, None],
            seen_by_targets=with_memory((of_keys < before) & tokens[:, None], 1)[:, None],
            targets=one_hot,
        )

    @property
    def token_embedding(self) -> jax.Array:
        """[V (padded), D], float32: the masked-LM decoder is tied to it."""
        return self.embeddings.token
