"""What a model keeps of the tokens that it has read, so that it goes on token by token.

It is the collection "cache" of a model that reads left to right. With it, the model takes
`input_ids` [B, 1], one token of each text, and `input_mask` [B, T], 1 on that token and on all
before it; T is the most tokens. A layer of the transformer has keys and values [B, T, K, H], which
change at the place of the token; the keys are rotated where positions are rotary. XLNet has its
memory, [B, L, T - 1, D], which ends with the token.
"""

from typing import Any

import jax.numpy as jnp

from bertjax.models.encoders.spec import TransformerSpec


def empty_cache(spec: TransformerSpec, rows: int, length: int) -> dict[str, Any]:
    """The cache of B rows and T tokens at the beginning, for layers that are not scanned."""
    shape = rows, length, spec.key_value_heads, spec.head_width

    def of_layer() -> dict[str, Any]:
        zeros = {name: jnp.zeros(shape, spec.compute_dtype) for name in ("keys", "values")}
        return {"attention": zeros}

    layers = {f"layer_{i}": of_layer() for i in range(spec.num_hidden_layers)}
    return {spec.encoder: {"encoder": layers}}
