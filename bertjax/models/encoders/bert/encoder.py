"""BERT (section 3): its blocks, also those of its relatives, unrolled or scanned."""

from collections.abc import Mapping
from functools import partial

import jax
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.attention.contract import Mask, Pattern
from bertjax.models.attention.remat import keep_kernel_results
from bertjax.models.attention.self_attention import SelfAttention
from bertjax.models.encoders.bert.embeddings import Embeddings
from bertjax.models.encoders.bert.spec import BertSpec
from bertjax.models.layers.activation import activation
from bertjax.models.layers.dense import Dense
from bertjax.models.layers.dropout import Dropout
from bertjax.models.layers.norm import LayerNorm


class Block(nn.Module):
    """One encoder layer: attention and feed-forward, each added to its input.

    The sums are normalized; or else, with `norm_first`, what attention and feed-forward read.

    Attributes:
      stacked: whether the output is returned a second time, for the scan to stack.
    """

    spec: BertSpec
    deterministic: bool
    stacked: bool

    @nn.compact
    def __call__(self, x: jax.Array, mask: Mask) -> tuple[jax.Array, jax.Array | None]:
        spec, deterministic = self.spec, self.deterministic
        init = nn.initializers.truncated_normal(spec.initializer_range)
        into_residual = nn.initializers.truncated_normal(spec.residual_range)
        norm = partial(LayerNorm, axes.EMBED, spec.layer_norm_eps)
        drop = partial(Dropout, spec.hidden_dropout_prob)
        dense = partial(Dense, precision=spec.precision)
        attend = SelfAttention(
            heads=spec.num_attention_heads,
            head_width=spec.head_width,
            pattern=Pattern(spec.causal),
            implementation=spec.attention,
            rate=spec.attention_probs_dropout_prob,
            dropout_bits=spec.dropout_bits,
            qkv_init=init,
            output_init=into_residual,
            precision=spec.precision,
            remat=spec.remat == "attention",
            name="attention",
        )
        x = nn.with_logical_constraint(x, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED))
        attention_norm, output_norm = norm(name="attention_norm"), norm(name="output_norm")
        y = attend(attention_norm(x) if spec.norm_first else x, mask, deterministic=deterministic)
        x = x + drop(name="attention_dropout")(y, deterministic)
        x = x if spec.norm_first else attention_norm(x)

        embed, mlp = {axes.EMBED: spec.hidden_size}, {axes.MLP: spec.intermediate_size}
        y = output_norm(x) if spec.norm_first else x
        y = dense(embed, mlp, init, name="intermediate")(y)  # [B, S, F]
        y = activation(spec.hidden_act, y, spec.keeps_slopes)
        y = nn.with_logical_constraint(y, (axes.BATCH, axes.LENGTH, axes.ACTIVATION_MLP))
        y = dense(mlp, embed, into_residual, name="output")(y)
        x = x + drop(name="output_dropout")(y, deterministic)
        x = x if spec.norm_first else output_norm(x)
        return x, x if self.stacked else None


class Layers(nn.Module):
    """L blocks: x [B, S, D] -> the outputs of all blocks, or of the last."""

    spec: BertSpec

    @nn.compact
    def __call__(
        self, x: jax.Array, mask: Mask, deterministic: bool, all_layers: bool
    ) -> list[jax.Array]:
        spec = self.spec
        block = Block
        if spec.remat == "layer":
            block = nn.remat(Block, policy=keep_kernel_results, prevent_cse=not spec.scan_layers)
        if not spec.scan_layers:
            outputs = []
            for i in range(spec.num_hidden_layers):
                x, _ = block(spec, deterministic, stacked=False, name=f"layer_{i}")(x, mask)
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
        x, stacked = stack(spec, deterministic, stacked=all_layers, name="layers")(x, mask)
        return [x] if stacked is None else list(stacked)


class Bert(nn.Module):
    """The encoder with its embeddings: see `bertjax.models.encoders.contract.EncoderFamily`."""

    spec: BertSpec

    def setup(self) -> None:
        self.embeddings = self.make_embeddings()
        self.encoder = Layers(self.spec)

    def embed(self, inputs: Mapping[str, jax.Array], deterministic: bool) -> jax.Array:
        """The input of the first layer, [B, S, D]."""
        return self.embeddings(inputs, deterministic)

    def make_embeddings(self) -> Embeddings:
        """The embeddings; encoders that derive from BERT may have others."""
        return Embeddings(self.spec)

    def __call__(self, inputs: Mapping[str, jax.Array], *, deterministic: bool) -> jax.Array:
        """The output of the last layer, [B, S, D]."""
        return self._states(inputs, deterministic, all_layers=False)[-1]

    def hidden_states(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> list[jax.Array]:
        """The embeddings, then the outputs of layers 1 to L: [B, S, D] each."""
        return self._states(inputs, deterministic, all_layers=True)

    def _states(
        self, inputs: Mapping[str, jax.Array], deterministic: bool, *, all_layers: bool
    ) -> list[jax.Array]:
        x = self.embed(inputs, deterministic)
        mask = Mask(inputs["input_mask"], inputs.get("segment_ids"))
        return [x, *self.encoder(x, mask, deterministic, all_layers)]

    @property
    def token_embedding(self) -> jax.Array:
        """[V (padded), D], float32: the masked-LM decoder is tied to it."""
        return self.embeddings.token
