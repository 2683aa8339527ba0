"""Texts as vectors: an encoder, and one vector that is made of the vectors of its tokens, or many.

dense   one vector: the mean, the maximum, [CLS] or the last of the tokens
late    a vector for each token, through a product (ColBERT, arXiv 2004.12832)
sparse  a weight for each piece of the vocabulary: the maximum over the tokens of
        log(1 + relu(logit)) of the masked-LM head (SPLADE, arXiv 2107.05720, 2109.10086)
"""

import dataclasses
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base import axes
from bertjax.base.checks import check_range
from bertjax.base.errors import InputError
from bertjax.base.limits import CountOrNone, Width, check_limits
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import make_encoder
from bertjax.models.heads.output_heads import masked_lm
from bertjax.models.heads.vector_modules import NORMALIZE, AfterPooling, VectorModule, widths
from bertjax.models.layers.dense import Dense, parameter
from bertjax.models.layers.pooling import take_positions
from bertjax.models.layers.similarity import SIMILARITIES, Vectors, normalized

DENSE, LATE, SPARSE = KINDS = ("dense", "late", "sparse")
POOLINGS = ("mean", "max", "cls", "last")
# What a kind compares its vectors by, the usual one first.
_SIMILARITIES = {
    DENSE: ("cosine", "dot", "euclidean", "angle"),
    LATE: ("maxsim",),
    SPARSE: ("dot", "cosine", "euclidean"),
}
COUNTED = "counted_mask"  # int [B, S], 1 on the tokens of which the vectors are made
PROJECTION = "projection"  # the part of late interaction
MODULES = "modules"  # the part after the pooling
SCALE = "log_scale"  # the part of a learned scale


@dataclasses.dataclass(frozen=True, kw_only=True)
class Embedding:
    """How a model makes vectors of texts, and compares them.

    Attributes:
      kind: "dense", "late" or "sparse".
      pooling: of the tokens that count, for "dense": "mean", "max", "cls" (the first) or "last".
      modules: what follows the pooling of "dense". (): those of the weights that training starts
        from, or none.
      normalize: whether vectors have length 1 in the end; those of "late" always have.
      similarity: a key of `bertjax.models.layers.similarity.SIMILARITIES`; "": the usual one of the
        kind.
      width: the width of the vectors of "late".
      query_prompt, passage_prompt: what is put before a text.
      count_prompt: whether the prompt's tokens are pooled, too.
      query_length, passage_length: the most tokens of a text, with the prompt and special tokens;
        0: as many as the encoder takes.

    Raises:
      ValueError: a value is none of these.
    """

    kind: str = DENSE
    pooling: str = "mean"
    # An identity is made of the representation, in which there were no modules at first.
    modules: tuple[VectorModule, ...] = dataclasses.field(default=(), repr=False)
    normalize: bool = True
    similarity: str = ""
    width: Width = 128
    query_prompt: str = ""
    passage_prompt: str = ""
    count_prompt: bool = True
    query_length: CountOrNone = 0
    passage_length: CountOrNone = 0

    def __post_init__(self):
        check_limits(self, kind=KINDS, pooling=POOLINGS)
        check_limits(self, similarity=("", *_SIMILARITIES[self.kind]))
        if self.modules and self.kind != DENSE:
            raise ValueError(
                f"modules={self.modules}: only vectors of the kind {DENSE!r} have them"
            )

    @property
    def compared_by(self) -> str:
        """The name of the similarity."""
        return self.similarity or _SIMILARITIES[self.kind][0]

    @property
    def similarity_limits(self) -> tuple[float, float]:
        """The limits of the similarity."""
        of_length_1 = self.normalize and self.kind == DENSE
        return {
            "cosine": (-1, 1),
            "dot": (-1, 1) if of_length_1 else (-math.inf, math.inf),
            "euclidean": (-2 if of_length_1 else -math.inf, 0),
            "angle": (0, math.inf),
            "maxsim": (-math.inf, math.inf),
        }[self.compared_by]

    @property
    def in_words(self) -> str:
        """What vectors these are: "dense, mean, of length 1, compared by cosine"."""
        what = [self.kind]
        if self.kind == DENSE:
            what += [self.pooling, *(module.in_words for module in self.modules)]
            what += ["of length 1"] * self.normalize
        if self.kind == LATE:
            what.append(f"of width {self.width}")
        what.append(f"compared by {self.compared_by}")
        prompts = {"queries": self.query_prompt, "passages": self.passage_prompt}
        what += [f"{texts} after {prompt!r}" for texts, prompt in prompts.items() if prompt]
        return ", ".join(what)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of a model, besides its encoder and heads, that make its vectors."""
        if self.kind == LATE:
            return (PROJECTION,)
        return (MODULES,) * any(module.kind != NORMALIZE for module in self.modules)

    def dimensions(self, hidden_size: int) -> int:
        """The numbers of a dense vector, over an encoder of that size."""
        return widths(self.modules, hidden_size)[-1]

    def prompt(self, query: bool) -> str:
        """What is put before a query or a passage."""
        return self.query_prompt if query else self.passage_prompt

    def length(self, query: bool, longest: int) -> int:
        """The most tokens of a query or a passage, where the encoder takes `longest`."""
        return min((self.query_length if query else self.passage_length) or longest, longest)


assert {name for names in _SIMILARITIES.values() for name in names} == set(SIMILARITIES)


class VectorModel(nn.Module):
    """An encoder and the vectors of its texts."""

    spec: EncoderSpec
    embedding: Embedding
    scale: float = 0.0  # where a learned factor of all similarities begins; 0: there is none
    dimensions: int = 0  # dense vectors are cut to so many numbers, and made to length 1; 0: whole

    def setup(self) -> None:
        spec = self.spec
        self.encoder = make_encoder(spec)
        if self.embedding.kind == LATE:
            sides = {axes.EMBED: spec.hidden_size}, {axes.EMBED_OUT: self.embedding.width}
            init = nn.initializers.normal(spec.initializer_range)
            self.projection = Dense(*sides, init, spec.precision.exact, use_bias=False)
        if self.embedding.modules:
            self.modules = AfterPooling(self.embedding.modules, spec.initializer_range)
        if self.embedding.kind == SPARSE:
            self.masked_lm = masked_lm(spec)
        if self.scale:
            start = nn.initializers.constant(math.log(self.scale))
            self.log_scale = parameter(self, SCALE, (), (), start)

    def __call__(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> dict[str, jax.Array]:
        """Returns "vectors", float32 [B, D], or [B, S, D] of late interaction; perhaps "scale".

        The inputs may have "counted_mask", int [B, S]; without it, every token counts.
        """
        states = self.encoder(inputs, deterministic=deterministic)
        outputs = {"vectors": self._vectors(states, inputs.get(COUNTED, inputs["input_mask"]))}
        if self.scale:
            outputs["scale"] = jnp.exp(self.log_scale)
        return outputs

    def _vectors(self, states: jax.Array, mask: jax.Array) -> jax.Array:
        kind, pooling = self.embedding.kind, self.embedding.pooling
        if kind == LATE:
            return normalized(self.projection(states).astype(jnp.float32))
        if kind == SPARSE:
            logits = self.masked_lm(states, self.encoder.token_embedding)
            weights = jnp.log1p(jax.nn.relu(logits)) * mask[..., None]
            vectors = weights.max(1)[:, : self.spec.vocab_size]
        else:
            vectors = pooled(states.astype(jnp.float32), mask, pooling)
            if self.embedding.modules:
                vectors = self.modules(vectors)
        if self.dimensions:
            return normalized(vectors[:, : self.dimensions])
        return normalized(vectors) if self.embedding.normalize and kind == DENSE else vectors


class PooledModules(nn.Module):
    """One vector of the tokens of a text, and the modules after it."""

    embedding: Embedding
    initializer_range: float

    @nn.compact
    def __call__(self, states: jax.Array, mask: jax.Array, deterministic: bool) -> jax.Array:
        vectors = pooled(states.astype(jnp.float32), mask, self.embedding.pooling)
        after = AfterPooling(self.embedding.modules, self.initializer_range, name=MODULES)
        return after(vectors)


def check_dimensions(dimensions: int | None, kind: str, width: int) -> None:
    """Raises InputError if vectors of a kind and a width cannot be cut to `dimensions`."""
    if dimensions is None:
        return
    if kind != DENSE:
        raise InputError(
            f"--dimensions={dimensions}: only dense vectors of texts have numbers that can be left "
            f"out, and these are {kind}: leave it out"
        )
    check_range("--dimensions", dimensions, 1, width)


def pooled(states: jax.Array, mask: jax.Array, pooling: str) -> jax.Array:
    """One vector of the tokens that count: [B, S, D] and int [B, S] -> [B, D], float32."""
    if pooling == "cls":
        return take_positions(states, mask.argmax(-1, keepdims=True))[:, 0]
    if pooling == "last":
        last = (mask * jnp.arange(mask.shape[1])).max(-1, keepdims=True)
        return take_positions(states, last)[:, 0]
    if pooling == "max":
        return jnp.where(mask[..., None] > 0, states, -jnp.inf).max(1)
    weights = mask[..., None].astype(jnp.float32)
    return (states * weights).sum(1) / jnp.maximum(weights.sum(1), 1e-9)


def as_vectors(values: jax.Array, mask: jax.Array, embedding: Embedding) -> Vectors:
    """The outputs of a `VectorModel` with what says which of them count."""
    return Vectors(values, mask > 0 if embedding.kind == LATE else None)


def head_type_of(embedding: Embedding) -> str:
    """The kind of model, of `bertjax.models.encoders.head_types`, whose parameters it has."""
    return head_types.MASKED_LM if embedding.kind == SPARSE else head_types.ENCODER
