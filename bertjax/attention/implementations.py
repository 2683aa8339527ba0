"""Every implementation of attention, by its name in `config.model.attention`."""

from bertjax.attention.contract import Implementation
from bertjax.attention.einsum import einsum_attention
from bertjax.attention.fused import fused_attention

IMPLEMENTATIONS = {
    "einsum": Implementation(einsum_attention, dropout=True),
    "fused": Implementation(fused_attention, dropout=False),
}
