"""DistilBERT's own head, that of whole texts; its other heads are BERT's."""

import jax
from flax import linen as nn

from bertjax.models.encoders.bert.heads import Pooler, square_dense
from bertjax.models.encoders.distilbert.spec import DistilBertSpec
from bertjax.models.layers.pooling import one_token


class PreClassifier(Pooler):
    """The vector of one token through a dense layer and ReLU: [B, S, D] -> [B, D]."""

    spec: DistilBertSpec

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        """states: [B, S, D]; mask: int [B, S]."""
        del deterministic
        x = one_token(states, mask, self.last)
        return jax.nn.relu(square_dense(self.spec, "dense")(x))


def readout(spec: DistilBertSpec, kind: str) -> PreClassifier:
    """A layer of the classifier, which is new in each task."""
    del kind
    return PreClassifier(spec, last=spec.causal, name="pre_classifier")
