"""Contrastive training: vectors of texts, or scores of pairs, that say what belongs together.

The loss is that of the whole batch, over all devices: passages are gathered, and each device
compares its queries with all of them. A batch whose activations do not fit is encoded in chunks.
Only the vectors of a chunk are kept, and its activations are computed again, with the same dropout,
for its gradient (gradient caching, arXiv 2101.06983), which is that of the whole batch.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.base.fields import TEXT, Field
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.embedding import COUNTED, Embedding, VectorModel, as_vectors
from bertjax.models.heads.head_specs import text_inputs
from bertjax.models.heads.tasks import SequenceClassifier
from bertjax.models.layers.similarity import SIMILARITIES, Vectors, normalized
from bertjax.objectives.similarity_losses import SimilarityLoss
from bertjax.objectives.task_losses import IS_REAL
from bertjax.training.model import Arrays, Model, Params
from bertjax.training.objective import LossWeights, Objective, Rngs
from bertjax.training.step import join_rows, split_rows

QUERY, PASSAGE = "query_", "passage_"  # how the names of their arrays begin
_TOKENS = {**{name: field.dtype for name, field in TEXT.items()}, COUNTED: "int32"}
# What every batch has besides its tokens.
_KEYS = {
    **IS_REAL,
    "query_key": Field("B", "int32"),
    "passage_key": Field("BC", "int32"),
    "scores": Field("BC", "float32"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimilarityObjective(Objective):
    """Vectors of queries and of passages, compared by a loss.

    Attributes:
      embedding: what the vectors are.
      loss: how alike they shall be.
      chunks: in how many chunks a batch is encoded.
      dimensions: the loss is the sum of those of the vectors' first so many numbers, made to length
        1 (Matryoshka, arXiv 2205.13147); (): of the whole vectors.
      sparsity: the weights of the FLOPS regularizer for queries and for passages, for "sparse"
        (arXiv 2004.05665).
    """

    needs_full_batch = True
    fields = {
        **_KEYS,
        **{QUERY + name: Field("BQ", dtype) for name, dtype in _TOKENS.items()},
        **{PASSAGE + name: Field("BCS", dtype) for name, dtype in _TOKENS.items()},
    }

    embedding: Embedding
    loss: SimilarityLoss
    chunks: int = 1
    dimensions: tuple[int, ...] = ()
    sparsity: tuple[float, float] = (0.0, 0.0)

    @property
    def loss_weights(self) -> Mapping[str, float]:  # type: ignore[override]
        """The task's loss, and the regularizers."""
        named = dict(zip(_REGULARIZERS, self.sparsity, strict=True))
        return {"task_loss": 1.0, **{name: weight for name, weight in named.items() if weight}}

    def model(self, spec: EncoderSpec) -> Model:
        """The model to train."""
        learned = getattr(self.loss, "learned_scale", False)
        module = VectorModel(spec, self.embedding, self.loss.factor if learned else 0.0)
        inputs = text_inputs(spec, B=1, S=8)
        return Model.of(module, {**inputs, COUNTED: jax.ShapeDtypeStruct((1, 8), "int32")})

    def outputs(self, model: Model, params: Params, batch: Arrays, rngs: Rngs) -> Arrays:
        """The vectors "query" [B, D] and "passage" [B, K, D], and "scale" if it is learned."""
        found: dict[str, jax.Array] = {}
        shape = batch["passage_key"].shape
        for call, begin in enumerate((QUERY, PASSAGE)):
            inputs = {name: batch[begin + name] for name in _TOKENS}
            if begin == PASSAGE:
                inputs = {name: x.reshape(-1, x.shape[-1]) for name, x in inputs.items()}
            outputs = _encoded(model, params, inputs, rngs.dropout(call), self.chunks)
            vectors = outputs.pop("vectors")
            found |= {begin: vectors, **outputs}
        found[PASSAGE] = found[PASSAGE].reshape(*shape, *found[PASSAGE].shape[1:])
        return found

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """See `SimilarityLoss.values`; with `dimensions`, also the loss of each."""
        factor = outputs.get("scale", self.loss.factor)
        query, passage = (
            as_vectors(outputs[begin], batch[begin + COUNTED], self.embedding)
            for begin in (QUERY, PASSAGE)
        )
        compare = partial(self._compared, batch=batch, factor=factor)
        if self.dimensions:
            found = self._of_dimensions(compare, query, passage)
        else:
            found = compare(query, passage)
        if "scale" in outputs:
            found["scale"] = jnp.broadcast_to(outputs["scale"], jnp.shape(found["task_loss"]))
        flops = {
            name: {name: _flops(outputs[begin], batch)}
            for name, begin in zip(_REGULARIZERS, (QUERY, PASSAGE), strict=True)
            if name in self.loss_weights
        }
        return {"task_loss": found, **flops}

    def _of_dimensions(
        self,
        compare: Callable[[Vectors, Vectors], dict[str, jax.Array]],
        query: Vectors,
        passage: Vectors,
    ) -> dict[str, jax.Array]:
        each = {
            size: compare(*(Vectors(normalized(x.values[..., :size])) for x in (query, passage)))
            for size in self.dimensions
        }
        found = each[max(each)]
        total = sum((each[size]["task_loss"] for size in each), jnp.zeros(()))
        losses = {f"loss_{size}": each[size]["task_loss"] for size in each}
        return {**found, **losses, "task_loss": total}

    def _compared(
        self, query: Vectors, passage: Vectors, *, batch: Arrays, factor: jax.Array | float
    ) -> dict[str, jax.Array]:
        similarity = SIMILARITIES[self.embedding.compared_by]
        paired = similarity.own(query, passage)
        if self.loss.pairs_only or similarity.every is None:
            return self.loss.values(paired, None, batch, factor)

        def every() -> jax.Array:
            flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), passage)
            # Gathered: each device compares its queries with the passages of all.
            gathered = jax.tree.map(lambda x: nn.with_logical_constraint(x, (None,) * x.ndim), flat)
            assert similarity.every is not None
            return nn.with_logical_constraint(similarity.every(query, gathered), (axes.BATCH, None))

        return self.loss.values(paired, every, batch, factor)

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Those of the loss; 1 for the regularizers, which are of the batch as a whole."""
        whole: dict[str, LossWeights] = dict.fromkeys(self.loss_weights, 1)
        return whole | {"task_loss": self.loss.weights(batch)}


_REGULARIZERS = ("query_flops", "passage_flops")


def _flops(vectors: jax.Array, batch: Arrays) -> jax.Array:
    """The sum over the vocabulary of the squared mean weight of a piece."""
    real = batch["is_real_example"] > 0
    if vectors.ndim == 3:
        real = real[:, None] & (batch["passage_key"] >= 0)
    weights = jnp.where(real[..., None], vectors, 0).sum(tuple(range(real.ndim)))
    return jnp.square(weights / jnp.maximum(real.sum(), 1)).sum()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RerankingObjective(Objective):
    """Scores of pairs, each read as one sequence; a loss compares them, as with similarities."""

    needs_full_batch = True
    loss_weights = {"task_loss": 1.0}
    fields = {**_KEYS, **{name: Field("BCS", field.dtype) for name, field in TEXT.items()}}

    loss: SimilarityLoss
    chunks: int = 1
    scoring: Embedding | None = None

    def model(self, spec: EncoderSpec) -> Model:
        """The model to train: a classifier with one output."""
        module = SequenceClassifier(spec, 1, scoring=self.scoring)
        return Model.of(module, text_inputs(spec, B=1, S=8))

    def outputs(self, model: Model, params: Params, batch: Arrays, rngs: Rngs) -> Arrays:
        """The scores "logits" [B, K]."""
        inputs = {name: batch[name].reshape(-1, batch[name].shape[-1]) for name in TEXT}
        scores = _encoded(model, params, inputs, rngs.dropout(), self.chunks)["logits"]
        return {"logits": scores.reshape(batch["passage_key"].shape)}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        return {"task_loss": self.loss.values(outputs["logits"], None, batch, self.loss.factor)}

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Those of the loss."""
        return {"task_loss": self.loss.weights(batch)}


def _encoded(
    model: Model, params: Params, inputs: Arrays, dropout: jax.Array | None, chunks: int
) -> dict[str, jax.Array]:
    """The model's outputs for R rows, of which it computes R / chunks at once."""
    if chunks == 1:
        return model(params, inputs, dropout)

    @jax.checkpoint
    def of_chunk(numbered: tuple[jax.Array, Arrays]) -> dict[str, jax.Array]:
        number, chunk = numbered
        key = None if dropout is None else jax.random.fold_in(dropout, number)
        return model(params, chunk, key)

    row_chunks = {name: split_rows(x, chunks) for name, x in inputs.items()}
    outputs = jax.lax.map(of_chunk, (jnp.arange(chunks), row_chunks))
    # A scalar, the learned scale, is the same in all chunks.
    return {name: x.mean() if x.ndim == 1 else join_rows(x) for name, x in outputs.items()}
