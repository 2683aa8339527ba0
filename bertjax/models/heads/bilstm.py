"""A BiLSTM over an encoder (section 5.1, Table 5), and the tagger over fixed features (Table 7).

An LSTM as in PyTorch and cuDNN: gates i, f, g, o; c = f c + i g; h = o tanh(c).
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.heads.crf import Crf
from bertjax.models.layers.dense import parameter
from bertjax.models.layers.dropout import Dropout, dropout, dropout_seed

Pull = Callable[[jax.Array], tuple[jax.Array]]  # the gradient of a result -> of its input

CONCAT, WEIGHTED_SUM, MIX, MIX_TWICE = COMBINE = ("concat", "weighted_sum", "mix", "mix_twice")


_MIXES = {MIX: 1, MIX_TWICE: 2}


class BiLstm(nn.Module):
    """Both directions: [B, W, D] -> [B, W, 2 H], forward next to backward, float32."""

    hidden: int  # H
    depth: int
    dropout: float  # of a layer's input

    @nn.compact
    def __call__(self, x: jax.Array, word_mask: jax.Array, *, deterministic: bool) -> jax.Array:
        """x: [B, W, D]; word_mask: [B, W], 1 on words, and 0 after them. There the result is 0."""
        x = x.astype(jnp.float32)
        for number in range(self.depth):
            x = self.drop(x, deterministic)
            x = BiLstmLayer(self.hidden, name=f"lstm_{number}")(x, word_mask)
        return x

    def drop(self, x: jax.Array, deterministic: bool) -> jax.Array:
        """Applies the dropout of a layer's input, also for a layer that reads the result."""
        if deterministic or not self.dropout:
            return x
        return dropout(x, dropout_seed(self), self.dropout)

    def flops_per_word(self, width: int) -> float:
        """For words of that width, as `EncoderSpec.flops_per_token`."""
        inputs = [width] + [2 * self.hidden] * (self.depth - 1)
        return 6.0 * sum(2 * 4 * self.hidden * (size + self.hidden) for size in inputs)


class BiLstmTagger(nn.Module):
    """A class for each word of the feature-based approach (section 5.3): "logits" [B, W, C].

    Attributes:
      combine: how the layers of the activations become one vector: "concat", side by side; or
        "weighted_sum", with learned weights: the softmax of one number for each layer (as in ELMo;
        the paper does not say how they are made); "mix", ELMo's `Mix` of them, as input of the
        BiLSTM; or "mix_twice", another one next to its output, too.
      dropout: that of `BiLstm`, and before the output layer.
      mix_dropout: the probability of dropping an element of a mix.
      crf: whether the tags depend on each other.
    """

    num_classes: int
    combine: str = CONCAT
    hidden: int = 768
    depth: int = 2
    dropout: float = 0.1
    mix_dropout: float = 0.0
    crf: bool = False

    @nn.compact
    def __call__(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> dict[str, jax.Array]:
        """Reads "activations" [B, W, K, D], of K layers, and "word_mask": see `BiLstm`.

        Returns "logits", or the outputs of `Crf`. With "label_ids" among the inputs, mixes also
        give "penalty" [B], everywhere the sum of the squares of their weights' logarithms.
        """
        layers, word_mask = inputs["activations"].astype(jnp.float32), inputs["word_mask"]
        mixes = [Mix(name=f"mix_{number}") for number in range(self.mixes)]
        dropped = Dropout(self.mix_dropout)
        if self.combine == WEIGHTED_SUM:
            scale = parameter(
                self, "scale", (axes.LAYERS,), layers.shape[2:3], nn.initializers.zeros
            )
            x = _weighted(layers, scale)
        elif mixes:
            x, penalty = mixes[0](layers)
            x = dropped(x, deterministic)
        else:
            x = layers.reshape(*layers.shape[:2], -1)
        bilstm = BiLstm(self.hidden, self.depth, self.dropout)
        nn.share_scope(self, bilstm)  # taggers on disk have its layers next to their output layer
        x = bilstm(x, word_mask, deterministic=deterministic)
        if self.combine == MIX_TWICE:
            second, more = mixes[1](layers)
            x = jnp.concatenate([x, dropped(second, deterministic)], -1)
            penalty += more
        x = bilstm.drop(x, deterministic)
        names, shape = (axes.EMBED, axes.CLASSES), (x.shape[-1], self.num_classes)
        kernel = parameter(self, "kernel", names, shape, nn.initializers.glorot_uniform())
        bias = parameter(self, "bias", names[1:], shape[1:], nn.initializers.zeros)
        logits = x @ kernel + bias
        outputs = {"logits": logits}
        if self.crf:
            outputs = Crf(self.num_classes, name="crf")(logits, inputs)
        if mixes and "label_ids" in inputs:
            outputs["penalty"] = jnp.full(len(logits), penalty)
        return outputs

    @property
    def mixes(self) -> int:
        """How many mixes of the layers it learns."""
        return _MIXES.get(self.combine, 0)

    def flops_per_word(self, layers: int, width: int) -> float:
        """Useful operations of a training step for each word: see `EncoderSpec.flops_per_token`."""
        first = width * (layers if self.combine == CONCAT else 1)
        last = 2 * self.hidden + width * (self.combine == MIX_TWICE)
        bilstm = BiLstm(self.hidden, self.depth, self.dropout, parent=None)
        return bilstm.flops_per_word(first) + 6.0 * last * self.num_classes


class Mix(nn.Module):
    """gamma * sum of softmax(s)_k times layer k (ELMo, arXiv 1802.05365, equation 1)."""

    @nn.compact
    def __call__(self, layers: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Layers [B, W, K, D] -> [B, W, D]; and the sum of the squares of s, which begins at 0."""
        names, init = (axes.LAYERS,), nn.initializers
        s = parameter(self, "s", names, layers.shape[2:3], init.zeros)
        gamma = parameter(self, "gamma", (), (), init.ones)
        return gamma * _weighted(layers, s), jnp.sum(s**2)


def _weighted(layers: jax.Array, logits: jax.Array) -> jax.Array:
    """The sum of the layers with weights softmax(logits) [K]: [B, W, K, D] -> [B, W, D]."""
    return jnp.einsum("bwkd,k->bwd", layers, jax.nn.softmax(logits))


class BiLstmLayer(nn.Module):
    """One layer in both directions: [B, W, D] -> [B, W, 2 H], forward next to backward."""

    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array, word_mask: jax.Array) -> jax.Array:
        x, mask = x.swapaxes(0, 1), word_mask.astype(x.dtype).T[..., None]  # [W, B, ...]
        forward = Lstm(self.hidden, name="forward")(x, mask)
        backward = Lstm(self.hidden, name="backward")(x[::-1], mask[::-1])[::-1]
        return jnp.concatenate([forward, backward], -1).swapaxes(0, 1)


class Lstm(nn.Module):
    """One layer in one direction: [W, B, D] and a mask [W, B, 1] -> [W, B, H]."""

    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        size, init = self.hidden, nn.initializers
        shape, names = (x.shape[-1], 4 * size), (axes.EMBED, axes.MLP)
        kernel = parameter(self, "kernel", names, shape, init.glorot_uniform())
        recurrent = parameter(self, "recurrent", names, (size, 4 * size), _orthogonal)
        bias = parameter(self, "bias", (axes.MLP,), (4 * size,), _forget_gate_open)
        # This product is of all steps at once; the scan has only what depends on the step before.
        return _recurrence(x @ kernel + bias, mask, recurrent)


def _orthogonal(key: jax.Array, shape: tuple[int, int], dtype: jax.typing.DTypeLike) -> jax.Array:
    init = nn.initializers.orthogonal()
    gates = [init(key, (shape[0], shape[0]), dtype) for key in jax.random.split(key, 4)]
    return jnp.concatenate(gates, -1)


def _forget_gate_open(key: jax.Array, shape: tuple[int], dtype: jax.typing.DTypeLike) -> jax.Array:
    """1 for the forget gate (Jozefowicz et al., 2015), else 0."""
    del key
    return jnp.repeat(jnp.array([0, 1, 0, 0], dtype), shape[0] // 4)


def _states(gates: jax.Array, mask: jax.Array, recurrent: jax.Array) -> jax.Array:
    """The states h, [W, B, H]; 0 where the mask is, so that padding before words says nothing."""

    def step(
        state: tuple[jax.Array, jax.Array], inputs: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        h, c = state
        gates, mask = inputs
        i, f, g, o = jnp.split(gates + h @ recurrent, 4, -1)
        c = mask * (jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g))
        h = mask * jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((gates.shape[1], recurrent.shape[0]), gates.dtype)
    return jax.lax.scan(step, (zeros, zeros), (gates, mask))[1]


def _forward(
    gates: jax.Array, mask: jax.Array, recurrent: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, Pull]]:
    h, pull = jax.vjp(lambda gates: _states(gates, mask, recurrent), gates)
    return h, (h, pull)


def _backward(
    residuals: tuple[jax.Array, Pull], gradient: jax.Array
) -> tuple[jax.Array, None, jax.Array]:
    """The gradient of `recurrent` is one product of all steps; autodiff would have one a step."""
    h, pull = residuals
    (dgates,) = pull(gradient)
    return dgates, None, jnp.einsum("wbh,wbg->hg", h[:-1], dgates[1:])


_recurrence = jax.custom_vjp(_states)
_recurrence.defvjp(_forward, _backward)
