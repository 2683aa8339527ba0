"""BERT (section 3): post-LayerNorm blocks, unrolled or scanned, with or without remat."""

import jax
from flax import linen as nn

from bertjax.attention.contract import Keys, Pattern
from bertjax.attention.implementations import attention, by_kernel
from bertjax.base import axes
from bertjax.encoders.bert.embeddings import Embeddings
from bertjax.encoders.bert.spec import BertSpec
from bertjax.layers.activation import activation
from bertjax.layers.dense import Dense
from bertjax.layers.dropout import Dropout, dropout_seed
from bertjax.layers.norm import LayerNorm


class SelfAttention(nn.Module):
    """Multi-head self-attention; query, key and value come from one product."""

    spec: BertSpec

    @nn.compact
    def __call__(self, x: jax.Array, keys: Keys, deterministic: bool) -> jax.Array:
        spec = self.spec
        heads = {axes.HEADS: spec.num_attention_heads, axes.HEAD_WIDTH: spec.head_width}
        embed = {axes.EMBED: spec.hidden_size}
        rate, pattern = spec.attention_probs_dropout_prob, Pattern(spec.causal)
        joined = by_kernel(spec.attention, x.shape[1], *heads.values(), x.dtype, pattern, rate)
        qkv = Dense(spec, embed, {axes.QKV: 3} | heads, joined=joined, name="qkv")(x)
        qkv = nn.with_logical_constraint(  # [B, S, 3, N, H]
            qkv, (axes.BATCH, axes.LENGTH, None, axes.ACTIVATION_HEADS, None)
        )
        seed = None if deterministic or not rate else dropout_seed(self)

        def attend(qkv, keys, seed):
            return attention(spec.attention, qkv, keys, pattern, rate=rate, seed=seed)

        if spec.remat == "attention":
            attend = jax.checkpoint(attend, prevent_cse=not spec.scan_layers)
        context = attend(qkv, keys, seed)  # [B, S, N, H]
        return Dense(spec, heads, embed, joined=joined, name="output")(context)


class Block(nn.Module):
    """One encoder layer: attention and feed-forward, each added to its input and normalized.

    Returns the output as what goes on and, with `keep`, as what the scan stacks.
    """

    spec: BertSpec
    deterministic: bool
    keep: bool

    @nn.compact
    def __call__(self, x: jax.Array, keys: Keys) -> tuple[jax.Array, jax.Array | None]:
        spec = self.spec
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))

        y = SelfAttention(spec, name="attention")(x, keys, self.deterministic)
        y = Dropout(spec, name="attention_dropout")(y, self.deterministic)
        x = LayerNorm(spec, axes.EMBED, name="attention_norm")(x + y)

        embed, mlp = {axes.EMBED: spec.hidden_size}, {axes.MLP: spec.intermediate_size}
        y = activation(spec, Dense(spec, embed, mlp, name="intermediate")(x))  # [B, S, F]
        y = nn.with_logical_constraint(y, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_MLP))
        y = Dense(spec, mlp, embed, name="output")(y)
        y = Dropout(spec, name="output_dropout")(y, self.deterministic)
        x = LayerNorm(spec, axes.EMBED, name="output_norm")(x + y)
        return x, x if self.keep else None


class Layers(nn.Module):
    """L blocks: x [B, S, D] -> the outputs of all blocks, or of the last."""

    spec: BertSpec

    @nn.compact
    def __call__(
        self, x: jax.Array, keys: Keys, deterministic: bool, all_layers: bool
    ) -> list[jax.Array]:
        spec = self.spec
        block = Block
        if spec.remat == "layer":
            block = nn.remat(Block, prevent_cse=not spec.scan_layers)
        if not spec.scan_layers:
            outputs = []
            for i in range(spec.num_hidden_layers):
                x, _ = block(spec, deterministic, keep=False, name=f"layer_{i}")(x, keys)
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
        x, outputs = stack(spec, deterministic, keep=all_layers, name="layers")(x, keys)
        return list(outputs) if all_layers else [x]


class Bert(nn.Module):
    """The encoder with its embeddings; outputs [B, S, D] in the compute dtype."""

    spec: BertSpec

    def setup(self):
        self.embeddings = Embeddings(self.spec)
        self.encoder = Layers(self.spec)

    def __call__(
        self, input_ids, input_mask, token_type_ids, *, documents=None, deterministic: bool
    ) -> jax.Array:
        """Returns the last layer's [B, S, D].

        Args:
          input_ids, input_mask, token_type_ids: int [B, S].
          documents: int [B, S], the document of each token in packed rows; each sees only itself.
          deterministic: no dropout.
        """
        x = self.embeddings(input_ids, token_type_ids, documents, deterministic)
        return self.encoder(x, Keys(input_mask, documents), deterministic, all_layers=False)[-1]

    def hidden_states(
        self, input_ids, input_mask, token_type_ids, *, documents=None, deterministic: bool
    ) -> list[jax.Array]:
        """Returns every layer's [B, S, D]: the embeddings, then layers 1 to L."""
        x = self.embeddings(input_ids, token_type_ids, documents, deterministic)
        keys = Keys(input_mask, documents)
        return [x, *self.encoder(x, keys, deterministic, all_layers=True)]

    @property
    def token_embedding(self) -> jax.Array:
        """[V (padded), D], float32: the masked-LM decoder is tied to it."""
        return self.embeddings.token
