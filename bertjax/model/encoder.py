"""The Transformer encoder: post-LayerNorm blocks, unrolled or scanned, with or without remat."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax import axes
from bertjax.model.attention import IMPLEMENTATIONS
from bertjax.model.layers import Dense, Dropout, LayerNorm, activation, dropout_seed
from bertjax.model.spec import BertSpec


class SelfAttention(nn.Module):
    """Multi-head self-attention; query, key and value come from one product."""

    spec: BertSpec

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        spec = self.spec
        heads = {axes.HEADS: spec.num_attention_heads, axes.HEAD_WIDTH: spec.head_width}
        embed = {axes.EMBED: spec.hidden_size}
        qkv = Dense(spec, embed, {axes.QKV: 3} | heads, name="qkv")(x)  # [B, S, 3, N, H]
        qkv = nn.with_logical_constraint(
            qkv, (axes.BATCH, axes.LENGTH, None, axes.ACTIVATION_HEADS, None)
        )
        rate = spec.attention_probs_dropout_prob
        seed = None if deterministic or not rate else dropout_seed(self)

        def attend(qkv, mask, seed):
            return IMPLEMENTATIONS[spec.attention](qkv, mask, rate=rate, seed=seed)

        if spec.remat == "attention":
            attend = jax.checkpoint(attend, prevent_cse=not spec.scan_layers)
        context = attend(qkv, mask, seed)  # [B, S, N, H]
        return Dense(spec, heads, embed, name="output")(context)


class Block(nn.Module):
    """One encoder layer: attention and feed-forward, each added to its input and normalized.

    Returns the output as what goes on and, with `keep`, as what the scan stacks.
    """

    spec: BertSpec
    deterministic: bool
    keep: bool

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        spec = self.spec
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))

        y = SelfAttention(spec, name="attention")(x, mask, self.deterministic)
        y = Dropout(spec, name="attention_dropout")(y, self.deterministic)
        x = LayerNorm(spec, axes.EMBED, name="attention_norm")(x + y)

        embed, mlp = {axes.EMBED: spec.hidden_size}, {axes.MLP: spec.intermediate_size}
        y = activation(spec, Dense(spec, embed, mlp, name="intermediate")(x))  # [B, S, F]
        y = nn.with_logical_constraint(y, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_MLP))
        y = Dense(spec, mlp, embed, name="output")(y)
        y = Dropout(spec, name="output_dropout")(y, self.deterministic)
        x = LayerNorm(spec, axes.EMBED, name="output_norm")(x + y)
        return x, x if self.keep else None


class Encoder(nn.Module):
    """L blocks: x [B, S, D], input_mask [B, S] -> the outputs of all blocks, or of the last."""

    spec: BertSpec

    @nn.compact
    def __call__(
        self, x: jax.Array, input_mask: jax.Array, deterministic: bool, all_layers: bool
    ) -> list[jax.Array]:
        spec = self.spec
        mask = input_mask[:, None, None, :].astype(bool)  # [B, 1, 1, S]
        if spec.causal:
            mask = mask & jnp.tril(jnp.ones((x.shape[1],) * 2, bool))  # [B, 1, S, S]

        block = Block
        if spec.remat == "layer":
            block = nn.remat(Block, prevent_cse=not spec.scan_layers)
        if not spec.scan_layers:
            outputs = []
            for i in range(spec.num_hidden_layers):
                x, _ = block(spec, deterministic, keep=False, name=f"layer_{i}")(x, mask)
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
        x, outputs = stack(spec, deterministic, keep=all_layers, name="layers")(x, mask)
        return list(outputs) if all_layers else [x]
