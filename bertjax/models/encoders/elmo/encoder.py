"""ELMo (arXiv 1802.05365): a language model in each direction over vectors of words.

As bilm-tf computes it (bilm/model.py, bilm/training.py). The next text may go on from the states
after a text.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders.elmo.lstm import Lstm, read
from bertjax.models.encoders.elmo.spec import ElmoSpec
from bertjax.models.encoders.elmo.words import WordVectors
from bertjax.models.layers.dropout import Dropout

Both = tuple[jax.Array, jax.Array]  # of the forward and the backward direction


class Layer(nn.Module):
    """An LSTM in each direction; neither sees the other. `skips`: the inputs are added."""

    spec: ElmoSpec
    skips: bool

    @nn.compact
    def __call__(
        self, both: Both, mask: jax.Array, states: jax.Array, deterministic: bool
    ) -> tuple[Both, jax.Array]:
        """Reads the text in both orders; returns the outputs, and the states after the text.

        Args:
          both: the inputs of both directions, [S, B, P] each.
          mask: bool [S, B, 1].
          states: [B, 2, cells + P], of both directions.
        """
        drop = Dropout(self.spec.hidden_dropout_prob)
        forward, backward = (drop(x, deterministic) for x in both)
        # In the reverse, padding comes first, and changes nothing.
        steps = (
            Lstm(self.spec, name="forward")(forward, mask),
            Lstm(self.spec, name="backward")(backward[::-1], mask[::-1]),
        )
        cells = self.spec.cell_size
        before = tuple((states[:, way, :cells], states[:, way, cells:]) for way in (0, 1))
        (of_forward, of_backward), after = read(self.spec, steps, before)
        outputs = of_forward, of_backward[::-1]
        if self.skips:
            outputs = forward + outputs[0], backward + outputs[1]
        return outputs, jnp.stack([jnp.concatenate(state, -1) for state in after], 1)


class Layers(nn.Module):
    """The layers, each over the one before."""

    spec: ElmoSpec

    @nn.compact
    def __call__(
        self, both: Both, mask: jax.Array, states: jax.Array, deterministic: bool
    ) -> tuple[list[jax.Array], jax.Array]:
        """[B, S, P] twice, states [B, L, 2, cells + P] -> the layers' outputs, the states after."""
        both, is_token = (both[0].swapaxes(0, 1), both[1].swapaxes(0, 1)), (mask > 0).T[..., None]
        outputs, after = [], []
        for number in range(self.spec.num_hidden_layers):
            skips = self.spec.skip_connections and number > 0
            layer = Layer(self.spec, skips, name=f"layer_{number}")
            both, state = layer(both, is_token, states[:, number], deterministic)
            outputs.append(jnp.concatenate(both, -1).swapaxes(0, 1))
            after.append(state)
        return outputs, jnp.stack(after, 1)


class Elmo(nn.Module):
    """The encoder: see `bertjax.models.encoders.contract.EncoderFamily`."""

    spec: ElmoSpec

    def setup(self) -> None:
        self.embeddings = WordVectors(self.spec)
        self.encoder = Layers(self.spec)

    def __call__(self, inputs: Mapping[str, jax.Array], *, deterministic: bool) -> jax.Array:
        """The output of the last layer, [B, S, D]."""
        return self.read(inputs, deterministic=deterministic)[0][-1]

    def hidden_states(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> list[jax.Array]:
        """The vectors of the words, twice side by side, then the outputs of the layers."""
        return self.read(inputs, deterministic=deterministic)[0]

    def read(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> tuple[list[jax.Array], jax.Array]:
        """The result of `hidden_states`, and the states after the text.

        It goes on from the "states" of the inputs; without them, the text is a beginning. With
        "backward_characters", the backward direction reads these, from the last to the first.
        """
        characters, mask = inputs["characters"], inputs["input_mask"]
        zeros = (len(characters), *states_shape(self.spec))
        states = inputs.get("states", jnp.zeros(zeros, jnp.float32))
        forward = backward = self._words(characters)
        if "backward_characters" in inputs:
            backward = self._words(inputs["backward_characters"])
        layers, states = self.encoder((forward, backward), mask, states, deterministic)
        embeddings = jnp.concatenate([forward, backward], -1)
        return [each.astype(self.spec.compute_dtype) for each in (embeddings, *layers)], states

    def _words(self, characters: jax.Array) -> jax.Array:
        names = axes.BATCH, axes.LENGTH, axes.ACTIVATION_EMBED
        return nn.with_logical_constraint(self.embeddings(characters), names)


def states_shape(spec: ElmoSpec) -> tuple[int, ...]:
    """The shape of a row's states: c and h of each direction of each layer."""
    return spec.num_hidden_layers, 2, spec.cell_size + spec.projection_size
