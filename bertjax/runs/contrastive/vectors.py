"""The vectors of new texts, scores of pairs, and exact search among vectors, on all devices."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.base.progress import Progress
from bertjax.inference.batcher import Batcher, up_to
from bertjax.inference.rows import Column, Columns
from bertjax.models.heads.embedding import LATE, Embedding
from bertjax.models.layers.similarity import SIMILARITIES, Vectors
from bertjax.tasks.buckets import fitting
from bertjax.tasks.similarity.batches import LENGTHS
from bertjax.text.pairs import joined
from bertjax.text.prompted import PromptedText, prompted
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.model import Model, Params
from bertjax.training.sharding.placement import Placement

_QUERIES = 256  # queries that are compared at once
_NUMBERS = 1 << 24  # of the vectors of documents that are compared at once


@dataclasses.dataclass(frozen=True)
class TextVectors:
    """The vectors of texts on the host.

    Attributes:
      values: float32 [N, D]; or of late interaction [T, D], the tokens of one text after another.
      starts: int64 [N + 1], where the tokens of each text begin; None: a text has one vector.
    """

    values: np.ndarray
    starts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values) if self.starts is None else len(self.starts) - 1

    def take(self, numbers: np.ndarray) -> Vectors:
        """The vectors of some texts, as numpy arrays, padded to the one with most tokens."""
        if self.starts is None:
            return Vectors(self.values[numbers])  # type: ignore[arg-type]
        first, count = self.starts[numbers], np.diff(self.starts)[numbers]
        column = np.arange(fitting(LENGTHS, int(count.max(initial=1))))
        is_piece = column < count[:, None]
        values = self.values[np.where(is_piece, first[:, None] + column, 0)]
        return Vectors(values, is_piece)  # type: ignore[arg-type]


class _OnDevices:
    """A model on the devices, for texts of at most `longest` tokens; `output` is what is wanted."""

    def __init__(
        self,
        model: Model,
        output: str,
        tokenizer: Tokenizer,
        longest: int,
        placement: Placement,
        batch_tokens: int | None,
    ):
        self.tokenizer, self.longest, self.placement = tokenizer, longest, placement
        self._batcher = Batcher(placement, batch_tokens)
        self._apply = jax.jit(
            lambda params, batch: model(params, batch)[output], out_shardings=placement.replicated
        )

    def outputs(
        self, params: Params, encoded: Sequence[PromptedText], most: int, what: str
    ) -> list[np.ndarray]:
        """The row of the output for each text of at most `most` tokens, in their order."""
        rows = Columns(
            {
                "input_ids": Column([text.ids for text in encoded], self.tokenizer.pad_id),
                "token_type_ids": Column([text.token_types for text in encoded]),
                "counted_mask": Column([text.counted for text in encoded]),
            }
        )
        apply, buckets = partial(self._apply, params), up_to(most, LENGTHS)
        found: list[np.ndarray] = [np.empty(0)] * len(encoded)
        with Progress(what, len(encoded), " texts") as progress:
            for numbers, outputs in self._batcher.predict(apply, rows, buckets, progress=progress):
                for number, row in zip(numbers, outputs, strict=True):
                    found[number] = row
        return found


class Vectorizer(_OnDevices):
    """Makes the vectors of texts with a `VectorModel`."""

    def __init__(self, model: Model, embedding: Embedding, *how: Any):
        super().__init__(model, "vectors", *how)
        self.embedding = embedding

    def vectors(
        self, params: Params, texts: Sequence[str], *, query: bool, what: str
    ) -> TextVectors:
        """The vectors of texts, in their order; `what` is the work, as the progress calls it."""
        embedding = self.embedding
        most = embedding.length(query, self.longest)
        encoded = prompted(
            texts,
            self.tokenizer,
            prompt=embedding.prompt(query),
            count_prompt=embedding.count_prompt,
            max_length=most,
        )
        found = self.outputs(params, encoded, most, what)
        if embedding.kind != LATE:
            return TextVectors(np.stack(found))
        counted = [
            row[np.flatnonzero(text.counted)] for row, text in zip(found, encoded, strict=True)
        ]
        starts = np.concatenate([[0], np.cumsum([len(tokens) for tokens in counted])])
        return TextVectors(np.concatenate(counted), starts)


class PairScorer(_OnDevices):
    """Scores pairs of texts with a reranker."""

    def __init__(self, model: Model, *how: Any):
        super().__init__(model, "logits", *how)

    def scores(self, params: Params, pairs: Sequence[tuple[str, str]], what: str) -> np.ndarray:
        """The score of each pair, float32 [N]."""
        sides = zip(*(self.tokenizer.encode([p[i] for p in pairs]) for i in (0, 1)), strict=True)
        sequences = [joined(self.tokenizer, a, b, self.longest) for a, b in sides]
        encoded = [
            PromptedText(*(np.array(each, np.int32) for each in (*sequence, sequence.ids)))
            for sequence in sequences
        ]
        return np.array(self.outputs(params, encoded, self.longest, what))[:, 0]


def paired_similarities(queries: TextVectors, passages: TextVectors, name: str) -> np.ndarray:
    """The similarity of query i and passage i, float32 [N]; `name` is a key of `SIMILARITIES`."""

    @jax.jit
    def own(query: Vectors, passage: Vectors) -> jax.Array:
        return SIMILARITIES[name].own(query, jax.tree.map(lambda x: x[:, None], passage))[:, 0]

    found = []
    for begin in range(0, len(queries), _QUERIES):
        numbers = np.arange(begin, min(begin + _QUERIES, len(queries)))
        found.append(np.asarray(own(queries.take(numbers), passages.take(numbers))))
    return np.concatenate(found)


def search(
    queries: TextVectors,
    documents: TextVectors,
    name: str,
    most: int,
    placement: Placement,
    what: str = "searching",
) -> tuple[np.ndarray, np.ndarray]:
    """The documents that are most alike, the best first, by comparing with all, but `most` at most.

    Of equal ones, the first comes first. Each device searches for some of the queries. `name` is a
    key of `SIMILARITIES`.

    Returns:
      The numbers of the documents, int64 [Q, most], and their similarities, float32 [Q, most].
    """
    every = SIMILARITIES[name].every
    assert every is not None
    most = min(most, len(documents))

    @partial(jax.jit, out_shardings=placement.replicated)
    def best_of(query: Vectors, block: Vectors, before: tuple[Any, Any], first: Any) -> Any:
        scores = every(query, block)
        numbers = jnp.broadcast_to(first + jnp.arange(scores.shape[1]), scores.shape)
        scores = jnp.concatenate([before[0], scores], 1)
        best, places = jax.lax.top_k(scores, most)
        return best, jnp.take_along_axis(jnp.concatenate([before[1], numbers], 1), places, 1)

    width = documents.values.shape[1]
    tokens = 1 if documents.starts is None else int(np.diff(documents.starts).max())
    block = max(64, _NUMBERS // (width * tokens))
    rows = placement.ways * -(-_QUERIES // placement.ways)
    found, scores = [], []
    with Progress(what, len(queries), " queries") as progress:
        for begin in range(0, len(queries), rows):
            padded_numbers = np.minimum(np.arange(begin, begin + rows), len(queries) - 1)
            query = jax.tree.map(partial(_split, placement), queries.take(padded_numbers))
            best = (
                np.full((rows, most), -np.inf, np.float32),
                np.full((rows, most), len(documents), np.int32),
            )
            for first in range(0, len(documents), block):
                numbers = np.arange(first, min(first + block, len(documents)))
                best = best_of(query, documents.take(numbers), best, first)
            kept = min(rows, len(queries) - begin)
            scores.append(np.asarray(best[0])[:kept])
            found.append(np.asarray(best[1])[:kept].astype(np.int64))
            progress.update(kept)
    return np.concatenate(found), np.concatenate(scores)


def _split(placement: Placement, array: np.ndarray) -> jax.Array:
    return placement.put(lambda held: {"": array[held]}, len(array))[""]
