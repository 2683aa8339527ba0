"""XLNet (arXiv 1906.08237) and Transformer-XL (arXiv 1901.02860) as families of encoders."""

from typing import Any

import jax.numpy as jnp

from bertjax.base.fields import SEGMENT_IDS, TEXT
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderFamily, PoolerSpec
from bertjax.models.encoders.presets import SCOPES
from bertjax.models.encoders.xlnet.encoder import Xlnet
from bertjax.models.encoders.xlnet.spec import TransformerXlSpec, XlnetSpec


def _empty_cache(spec: XlnetSpec, rows: int, length: int) -> dict[str, Any]:
    """A memory of as many tokens as there are before the last of T."""
    shape = rows, spec.num_hidden_layers, length - 1, spec.hidden_size
    return {spec.encoder: {"memory": jnp.zeros(shape, spec.compute_dtype)}}


XLNET = EncoderFamily(
    spec=XlnetSpec,
    module=Xlnet,
    inputs=tuple(TEXT | SEGMENT_IDS),
    heads={
        head_types.ENCODER: (),
        head_types.PERMUTATION_LM: ("masked_lm",),
        head_types.MASKED_LM: ("masked_lm",),
        head_types.CAUSAL_LM: ("masked_lm",),
        head_types.REPLACED_TOKENS: ("replaced_tokens",),
        head_types.SEQUENCE_CLASSIFICATION: ("pooler", "classifier"),
        head_types.MULTIPLE_CHOICE: ("pooler", "classifier"),
        head_types.TOKEN_CLASSIFICATION: ("classifier",),
        head_types.QUESTION_ANSWERING: ("span",),
    },
    poolers=dict.fromkeys(head_types.OF_WHOLE_TEXTS, PoolerSpec("pooler", "tanh", last=True)),
    scopes=((r"/attention/(query|key|value|distance|output)/", "attention projections"),)
    + SCOPES[1:],
    empty_cache=_empty_cache,
    reads_memory=True,
)
_KINDS = (head_types.ENCODER, head_types.CAUSAL_LM)
TRANSFORMER_XL = XLNET._replace(
    spec=TransformerXlSpec,
    inputs=("input_ids", "input_mask", *SEGMENT_IDS),
    heads={head_type: XLNET.heads[head_type] for head_type in _KINDS},
    poolers={},
)
