"""The stochastic answer network for the class of a pair of texts (SAN, arXiv 1804.07888).

MT-DNN (arXiv 1901.11504, section 3, "Pairwise text classification output") has it over an encoder.
The first text is the premise, the second the hypothesis. A state of the hypothesis reads the
premise several times, and each time predicts the class.

The formulas are those of namisan/mt-dnn with the defaults of its train.py. The papers let step k
read the premise by the state of the step before; in that code each step classifies the state
together with what this state has read, and then updates it.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.layers.dense import Dense, Precision
from bertjax.models.layers.dropout import Dropout, dropout_seed, keep_mask, random_bits


class AnswerNetwork(nn.Module):
    """The logarithm of the mean of the probabilities that the steps predict: float32 [B, C].

    Attributes:
      steps: K, how often the premise is read (`SANClassifier` in module/san.py).
      step_dropout: the probability that a step is left out of the mean of an example in training;
        at least one stays (`generate_mask` in module/san.py).
      dropout: the probability of dropping an element of what a layer reads. Elements of tokens are
        dropped in all tokens of a text alike (module/dropout_wrapper.py).
      kernel_init: biases are 0. The initializers of the GRU are PyTorch's.
    """

    num_classes: int
    steps: int
    step_dropout: float
    dropout: float
    kernel_init: nn.initializers.Initializer
    precision: Precision = Precision()

    @nn.compact
    def __call__(
        self, states: jax.Array, text_numbers: jax.Array, *, deterministic: bool
    ) -> jax.Array:
        """Reads states [B, S, D], and `bertjax.base.fields.TEXT_NUMBERS`, int [B, S]."""
        states = states.astype(jnp.float32)
        rows, _, width = states.shape
        drop = Dropout(self.dropout)

        def dense(name: str, wide: int, outputs: dict[str, int], use_bias: bool = True) -> Dense:
            sides = {axes.EMBED: wide}, outputs
            return Dense(*sides, self.kernel_init, self.precision, use_bias, name=name)

        def in_all_tokens(states: jax.Array) -> jax.Array:
            return states * drop(jnp.ones((rows, 1, width)), deterministic)

        # `LinearSelfAttn` in module/similarity.py, whose bias has no effect.
        hypothesis = in_all_tokens(states)
        scores = dense("pooling", width, {axes.CLASSES: 1}, use_bias=False)(hypothesis)[..., 0]
        state = _attended(hypothesis, scores, text_numbers == 2)
        # `BilinearFlatSim` in module/similarity.py, and `Classifier` in module/san.py.
        bilinear = dense("bilinear", width, {axes.EMBED_OUT: width})
        classifier = dense("classifier", 4 * width, {axes.CLASSES: self.num_classes})
        gru, logits = Gru(self.precision, name="gru"), []
        for _ in range(self.steps):
            sought = bilinear(drop(state, deterministic))
            scores = jnp.einsum("bsd,bd->bs", in_all_tokens(states), sought)
            read = _attended(states, scores, text_numbers == 1)
            both = jnp.concatenate([read, state, jnp.abs(read - state), read * state], -1)
            logits.append(classifier(drop(both, deterministic)))
            state = gru(drop(state, deterministic), read)
        kept = self._kept(rows, deterministic).astype(jnp.float32)[..., None]
        of_steps = jax.nn.log_softmax(jnp.stack(logits, 1))  # [B, K, C]
        return jax.nn.logsumexp(of_steps, 1, b=kept) - jnp.log(kept.sum(1))

    def _kept(self, rows: int, deterministic: bool) -> jax.Array:
        """Which steps are in the mean: bool [B, K]."""
        shape = rows, self.steps
        if deterministic or not self.step_dropout:
            return jnp.ones(shape, bool)
        certain = random_bits(dropout_seed(self), (rows, 1)) % self.steps
        kept = keep_mask(dropout_seed(self), shape, self.step_dropout)
        return kept | (jnp.arange(self.steps) == certain)


def _attended(states: jax.Array, scores: jax.Array, mask: jax.Array) -> jax.Array:
    """The mean of states with weights softmax(scores) where the mask is: [B, D]; 0 without any."""
    weights = jax.nn.softmax(jnp.where(mask, scores, jnp.finfo(scores.dtype).min)) * mask
    return jnp.einsum("bs,bsd->bd", weights, states)


class Gru(nn.Module):
    """A step of a GRU as `torch.nn.GRUCell` computes it: state [B, D] and input [B, D] -> [B, D].

    Gates r, z, n; n = tanh(of the input + r of the state), and z is the share of the old state.
    """

    precision: Precision = Precision()

    @nn.compact
    def __call__(self, state: jax.Array, x: jax.Array) -> jax.Array:
        width = x.shape[-1]

        def uniform(key: jax.Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike):
            return jax.random.uniform(key, shape, dtype, -(width**-0.5), width**-0.5)

        def gates(name: str, x: jax.Array) -> list[jax.Array]:
            sides = {axes.EMBED: width}, {axes.MLP: 3 * width}
            layer = Dense(*sides, uniform, self.precision, bias_init=uniform, name=name)
            return jnp.split(layer(x), 3, -1)

        r_x, z_x, n_x = gates("input", x)
        r_h, z_h, n_h = gates("recurrent", state)
        z = jax.nn.sigmoid(z_x + z_h)
        n = jnp.tanh(n_x + jax.nn.sigmoid(r_x + r_h) * n_h)
        return (1 - z) * n + z * state
