"""An LSTM with projected states (arXiv 1402.1128), in both directions of a text.

As TensorFlow's LSTMCell, which bilm-tf uses: gates i, g, f, o; c = sigmoid(f + 1) c + sigmoid(i)
tanh(g), clipped; h = sigmoid(o) tanh(c), projected and clipped if the cells are wider.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.models.encoders.elmo.spec import ElmoSpec
from bertjax.models.layers.dense import parameter, product

State = tuple[jax.Array, jax.Array]  # c [B, cells] and h [B, P], float32


class Steps(NamedTuple):
    """The arrays that the steps of a direction need."""

    gate_inputs: jax.Array  # float32 [S, B, 4 cells], what the inputs give to the gates
    mask: jax.Array  # bool [S, B, 1]; where it is False, the state stays as it was
    recurrent: jax.Array  # [P, 4 cells], of the state before
    projection: jax.Array | None  # [cells, P], if the states are projected


class Lstm(nn.Module):
    """The parameters of one direction, with its inputs: [S, B, P] and a mask [S, B, 1]."""

    spec: ElmoSpec

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> Steps:
        spec = self.spec
        inputs, out, cells = x.shape[-1], spec.projection_size, spec.cell_size
        init = nn.initializers.glorot_uniform()
        names, shape = (axes.EMBED, axes.MLP), (inputs + out, 4 * cells)
        kernel = parameter(self, "kernel", names, shape, init)
        bias = parameter(self, "bias", names[1:], shape[1:], nn.initializers.zeros)
        # This product is of all steps at once; the scan has only what depends on the step before.
        gate_inputs = product("abi,io->abo", x, kernel[:inputs], spec.precision, "float32") + bias
        recurrent, projection = kernel[inputs:].astype(spec.compute_dtype), None
        if spec.projects:
            projection = parameter(self, "projection", names[::-1], (cells, out), init)
            projection = projection.astype(spec.compute_dtype)
        return Steps(gate_inputs, mask, recurrent, projection)


def read(
    spec: ElmoSpec, both: tuple[Steps, ...], states: tuple[State, ...]
) -> tuple[tuple[jax.Array, ...], tuple[State, ...]]:
    """Reads two directions in one loop: the states h, [S, B, P] each, and the last states."""

    def advance(steps: Steps, state: State, gate_inputs: jax.Array, is_token: jax.Array) -> State:
        c, h = state
        i, g, f, o = jnp.split(gate_inputs + _times(h, steps.recurrent), 4, -1)
        new_c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        new_c = _clipped(new_c, spec.cell_clip)
        new_h = jax.nn.sigmoid(o) * jnp.tanh(new_c)
        if steps.projection is not None:
            new_h = _clipped(_times(new_h, steps.projection), spec.projection_clip)
        return jnp.where(is_token, new_c, c), jnp.where(is_token, new_h, h)

    def step(
        states: tuple[State, ...], now: tuple[tuple[jax.Array, jax.Array], ...]
    ) -> tuple[tuple[State, ...], tuple[jax.Array, ...]]:
        each = zip(both, states, now, strict=True)
        states = tuple(advance(steps, state, *inputs) for steps, state, inputs in each)
        return states, tuple(h for _, h in states)

    inputs = tuple((steps.gate_inputs, steps.mask) for steps in both)
    states, outputs = jax.lax.scan(step, states, inputs)
    return outputs, states


def _times(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jnp.matmul(x.astype(kernel.dtype), kernel, preferred_element_type="float32")


def _clipped(x: jax.Array, bound: float) -> jax.Array:
    return jnp.clip(x, -bound, bound) if bound else x
