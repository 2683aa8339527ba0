"""A model of vectors, or a reranker, on the devices, wherever it comes from."""

from typing import NamedTuple

import jax

from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types
from bertjax.models.heads.embedding import COUNTED, Embedding, VectorModel, check_dimensions
from bertjax.models.heads.head_specs import text_inputs
from bertjax.runs.contrastive.evaluation import Comparer
from bertjax.runs.contrastive.evaluator import comparer_of
from bertjax.runs.source import Source, open_model
from bertjax.training.model import Model, Params
from bertjax.training.sharding.placement import Placement, data_parallel


class Opened(NamedTuple):
    """A model on the devices; without `embedding`, it is a reranker."""

    pretrained: Pretrained
    embedding: Embedding | None
    model: Model
    params: Params
    placement: Placement

    @property
    def comparer(self) -> Comparer:
        """The model as it says how alike texts are."""
        pretrained = self.pretrained
        longest = pretrained.spec.max_position_embeddings
        if self.embedding is None:
            longest = pretrained.task.get("max_length") or longest
        return comparer_of(
            self.embedding, self.model, pretrained.tokenizer, longest, self.placement
        )


def open_vectors(source: str | Source, dimensions: int | None = None) -> Opened:
    """Opens a model from any source of `open_model`.

    A classifier with one output is a reranker. An encoder that has not learned to make vectors
    gives the mean of its tokens. `dimensions` are the first numbers of dense vectors that are kept;
    None: as the model says.
    """
    pretrained = open_model(source)
    pretrained.check_reads_pieces()
    spec, embedding, placement = pretrained.spec, pretrained.embedding, data_parallel()
    print(pretrained.summary())
    inputs = text_inputs(spec, B=1, S=8)
    if pretrained.head_type == head_types.SEQUENCE_CLASSIFICATION and len(pretrained.classes) == 1:
        check_dimensions(dimensions, "scores of pairs", 0)
        module = pretrained.model()
    else:
        if embedding is None:
            embedding = Embedding()
            print("  its vectors: the mean of the tokens, because it has learned none")
        check_dimensions(dimensions, embedding.kind, embedding.dimensions(spec.hidden_size))
        module = VectorModel(spec, embedding, dimensions=dimensions or pretrained.dimensions)
        inputs |= {COUNTED: inputs["input_ids"]}
    model = Model.of(module, inputs)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    params = {name: pretrained.params[name] for name in shapes}
    params = jax.device_put(params, placement.replicated)
    return Opened(pretrained, embedding, model, params, placement)
