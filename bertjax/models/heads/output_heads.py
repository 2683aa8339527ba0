"""What stands between the encoder and an output layer, by the rows and settings of a preset."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec, PoolerSpec
from bertjax.models.encoders.registry import family_of
from bertjax.models.encoders.spec import TransformerSpec
from bertjax.models.encoders.transformer import norm
from bertjax.models.layers.activation import activation
from bertjax.models.layers.decoder import decode
from bertjax.models.layers.dense import Dense, parameter
from bertjax.models.layers.dropout import Dropout
from bertjax.models.layers.pooling import mean_of_tokens, one_token

_OTHERS = {"tanh": jnp.tanh, "relu": jax.nn.relu}


def _dense(spec: TransformerSpec, width: int, name: str, use_bias: bool) -> Dense:
    init = nn.initializers.truncated_normal(spec.residual_range)
    sides = {axes.EMBED: spec.hidden_size}, {axes.EMBED_OUT: width}
    return Dense(*sides, init, spec.precision, use_bias, name=name)


class Pooler(nn.Module):
    """The vector of a text: [B, S, D] -> [B, D].

    If `last`, the last token stands for the first one: left to right, [CLS] sees no other token (as
    in GPT; Radford et al., 2018).
    """

    spec: TransformerSpec
    row: PoolerSpec
    last: bool

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        """states: [B, S, D]; mask: int [B, S]."""
        spec, row, pooling = self.spec, self.row, self.spec.classifier_pooling
        if pooling == "cls":
            states = one_token(states, mask, self.last)
        elif pooling == "mean":
            states = mean_of_tokens(states, mask)
        if row.dropout:
            states = Dropout(spec.hidden_dropout_prob, name="dropout")(states, deterministic)
        if row.act:
            states = _dense(spec, spec.hidden_size, "dense", row.use_bias)(states)
            act = spec.hidden_act if row.act == "hidden_act" else row.act
            states = _OTHERS[act](states) if act in _OTHERS else activation(act, states)
        if row.norm:
            states = norm(spec, "norm", axes.EMBED_OUT)(states)
        return mean_of_tokens(states, mask) if pooling == "late" else states


def _transformed(spec: TransformerSpec, x: jax.Array, width: int, name: str, act: str) -> jax.Array:
    """Dense, activation, norm, as submodules of the caller: [..., D] -> [..., width]."""
    x = activation(act, _dense(spec, width, name, spec.use_bias)(x))
    return norm(spec, "norm", axes.EMBED_OUT)(x)


class TokenHead(nn.Module):
    """What stands before the output layers of tokens: [..., D] -> [..., D]."""

    spec: TransformerSpec

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return _transformed(self.spec, x, self.spec.hidden_size, "dense", self.spec.hidden_act)


class MaskedLanguageModel(nn.Module):
    """[B, P, D] -> logits [B, P, V], float32, by the token embeddings or a kernel of its own."""

    spec: TransformerSpec

    @nn.compact
    def __call__(self, x: jax.Array, token_embedding: jax.Array) -> jax.Array:
        """x: [B, P, D]; token_embedding: [V, E]."""
        spec, rows = self.spec, self.spec.padded_vocab_size
        if spec.lm_head == "transform":
            act = spec.lm_act or spec.hidden_act
            x = _transformed(spec, x, spec.embedding_width, "transform", act)
        table, bias = token_embedding, None
        if not spec.tied:
            init = nn.initializers.truncated_normal(spec.initializer_range)
            sides, shape = (axes.VOCAB, axes.EMBED), (rows, spec.hidden_size)
            table = parameter(self, "kernel", sides, shape, init, spec.precision.gathered_as)
        if spec.lm_head != "none":
            bias = parameter(self, "bias", (axes.VOCAB,), (rows,), nn.initializers.zeros)
        return decode(x, table, bias, vocab_size=spec.vocab_size, precision=spec.precision)


# ELMo, whose spec is no `TransformerSpec`, has none of these.


def pooler(spec: EncoderSpec, head_type: str) -> Pooler:
    """What makes one vector of a text, for a model of the kind."""
    assert isinstance(spec, TransformerSpec)
    row = family_of(spec).poolers[head_type]
    last = row.last or (spec.causal and head_type in head_types.OF_WHOLE_TEXTS)
    return Pooler(spec, row, last, name=row.part)


def token_head(spec: EncoderSpec) -> TokenHead | None:
    """What stands before the output layers of tokens; None: nothing."""
    assert isinstance(spec, TransformerSpec)
    return TokenHead(spec) if family_of(spec).token_head else None


def masked_lm(spec: EncoderSpec) -> MaskedLanguageModel:
    """The head of language models."""
    assert isinstance(spec, TransformerSpec)
    return MaskedLanguageModel(spec)
