"""RoBERTa's own head, that of classification; its other heads are BERT's."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.models.encoders import kinds
from bertjax.models.encoders.bert.heads import Pooler, square_dense
from bertjax.models.encoders.bert.heads import readout as pooler
from bertjax.models.encoders.roberta.spec import RobertaSpec
from bertjax.models.layers.dropout import Dropout
from bertjax.models.layers.pooling import one_token


class ClassificationDense(Pooler):
    """The same as the pooler, with dropout before it: [B, S, D] -> [B, D]."""

    spec: RobertaSpec

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        """states: [B, S, D]; mask: int [B, S]."""
        x = one_token(states, mask, self.last)
        x = Dropout(self.spec.hidden_dropout_prob, name="dropout")(x, deterministic)
        return jnp.tanh(square_dense(self.spec, "dense")(x))


def readout(spec: RobertaSpec, kind: str) -> Pooler:
    """BERT's pooler; a classifier has a dense layer instead, which is new in each task."""
    if kind == kinds.SEQUENCE_CLASSIFICATION:
        return ClassificationDense(spec, last=spec.causal, name="classifier_dense")
    return pooler(spec, kind)
