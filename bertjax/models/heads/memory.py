"""The model that reads left to right and remembers earlier rows (Transformer-XL, 1901.02860)."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp

from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.pretraining import PreTrainingModel


def remembered(memory: jax.Array, states: Sequence[jax.Array], tokens: int) -> jax.Array:
    """What each layer has read of the last M tokens: [B, L, M, D], without a gradient.

    Args:
      memory: the same before the row.
      states: `hidden_states` of the row, of whose first `tokens` the next row remembers some.
    """
    read = jnp.stack([x[:, :tokens] for x in states[:-1]], axis=1)
    known = jnp.concatenate([memory, read], axis=2)[:, :, -memory.shape[2] :]
    return jax.lax.stop_gradient(known)


def memory_shapes(spec: EncoderSpec, memory: int) -> dict[str, jax.ShapeDtypeStruct]:
    """What each layer has read of the M tokens before a row, [L, M, D], and which there are."""
    shape = spec.num_hidden_layers, memory, spec.hidden_size
    return {
        "memory": jax.ShapeDtypeStruct(shape, spec.compute_dtype),
        "memory_mask": jax.ShapeDtypeStruct((memory,), "int32"),
    }


class MemoryModel(PreTrainingModel):
    """An encoder that reads a memory, with the head that predicts the next token."""

    next_sentence: bool = False

    def __call__(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> dict[str, jax.Array]:
        """Also "memory" [B, L, M, D] and "memory_mask" [B, M] after the row, if it has them before.

        The last token of a row is not remembered: the next row begins with it.
        """
        if "memory" not in inputs:
            return super().__call__(inputs, deterministic=deterministic)
        vectors, states = self.encoder.one_stream(inputs, deterministic=deterministic)
        memory, mask, tokens = inputs["memory"], inputs["memory_mask"], inputs["input_mask"][:, :-1]
        return self.predictions(vectors, inputs, deterministic) | {
            "memory": remembered(memory, states, tokens.shape[1]),
            "memory_mask": jnp.concatenate([mask, tokens], axis=1)[:, -mask.shape[1] :],
        }
