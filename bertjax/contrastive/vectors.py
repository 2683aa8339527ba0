"""The vectors of new texts, scores of pairs, and exact search among vectors, on all devices."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.base.progress import Progress
from bertjax.heads.embedding import LATE, Embedding
from bertjax.inference.batcher import Batcher
from bertjax.layers.similarity import SIMILARITIES, Vectors
from bertjax.sharding.placement import HostBatch, Placement
from bertjax.tasks.buckets import fitting
from bertjax.text.pairs import joined
from bertjax.text.prompted import prompted
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.model import Model, Params

_LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)
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
        """The vectors of some texts, padded to the one with most tokens."""
        if self.starts is None:
            return Vectors(jnp.asarray(self.values[numbers]))
        first, count = self.starts[numbers], np.diff(self.starts)[numbers]
        column = np.arange(fitting(_LENGTHS, int(count.max(initial=1))))
        there = column < count[:, None]
        values = self.values[np.where(there, first[:, None] + column, 0)]
        return Vectors(jnp.asarray(values), jnp.asarray(there))


class Vectorizer:
    """Makes the vectors of texts with a `VectorModel`.

    Args:
      longest: the longest sequence of the encoder.
      placement: the devices.
      batch_tokens: see `bertjax.sharding.placement.inference_tokens`.
    """

    def __init__(
        self,
        model: Model,
        embedding: Embedding,
        tokenizer: Tokenizer,
        longest: int,
        placement: Placement,
        batch_tokens: int | None,
    ):
        self.embedding, self.placement = embedding, placement
        self._model, self._tokenizer, self._longest = model, tokenizer, longest
        self._batcher = Batcher(placement, batch_tokens)
        self._apply = jax.jit(
            lambda params, batch: model(params, batch)["vectors"],
            out_shardings=placement.replicated,
        )

    def vectors(
        self, params: Params, texts: Sequence[str], *, query: bool, what: str
    ) -> TextVectors:
        """The vectors of texts, in their order.

        Args:
          params: on the devices.
          query: whether they are queries, or passages.
          what: the work, as the progress calls it.
        """
        most = self.embedding.length(query, self._longest)
        encoded = prompted(
            texts,
            self._tokenizer,
            prompt=self.embedding.prompt(query),
            count_prompt=self.embedding.count_prompt,
            max_length=most,
        )
        lengths = np.array([len(text.ids) for text in encoded], np.int64)
        buckets = (*(length for length in _LENGTHS if length < most), most)

        def make(numbers: np.ndarray, rows: int, bucket: int) -> HostBatch:
            batch = _empty(
                ("input_ids", "input_mask", "token_type_ids", "counted_mask"), rows, bucket
            )
            batch["input_ids"][:] = self._tokenizer.pad_id
            batch["input_mask"][len(numbers) :, 0] = 1  # a row of padding alone means nothing
            for row, number in enumerate(numbers):
                text, size = encoded[number], lengths[number]
                batch["input_ids"][row, :size] = text.ids
                batch["input_mask"][row, :size] = 1
                batch["token_type_ids"][row, :size] = text.token_types
                batch["counted_mask"][row, :size] = text.counted
            return batch

        found: list[np.ndarray] = [np.empty(0)] * len(texts)
        batches = self._batcher.run(
            lengths,
            buckets,
            rows=lambda bucket: self._batcher.rows(bucket, len(texts)),
            make=make,
            compute=lambda batch: self._apply(params, batch),
        )
        late = self.embedding.kind == LATE
        with Progress(what, len(texts), " texts") as progress:
            for numbers, outputs in batches:
                for number, row in zip(numbers, outputs, strict=False):
                    counted = np.flatnonzero(encoded[number].counted) if late else ...
                    found[number] = row[counted]
                progress.update(len(numbers))
        if not late:
            return TextVectors(np.stack(found))
        starts = np.concatenate([[0], np.cumsum([len(each) for each in found])])
        return TextVectors(np.concatenate(found), starts)


class PairScorer:
    """Scores pairs of texts with a reranker.

    Args:
      length: the most tokens of a sequence.
      placement, batch_tokens: see `Vectorizer`.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        length: int,
        placement: Placement,
        batch_tokens: int | None,
    ):
        self._model, self._tokenizer, self._length = model, tokenizer, length
        self._batcher = Batcher(placement, batch_tokens)
        self._apply = jax.jit(
            lambda params, batch: model(params, batch)["logits"][:, 0],
            out_shardings=placement.replicated,
        )

    def scores(self, params: Params, pairs: Sequence[tuple[str, str]], what: str) -> np.ndarray:
        """The score of each pair, float32 [N]."""
        sides = [self._tokenizer.encode([pair[side] for pair in pairs]) for side in range(2)]
        encoded = [joined(self._tokenizer, a, b, self._length) for a, b in zip(*sides, strict=True)]
        lengths = np.array([len(each.ids) for each in encoded], np.int64)
        buckets = (*(length for length in _LENGTHS if length < self._length), self._length)

        def make(numbers: np.ndarray, rows: int, bucket: int) -> HostBatch:
            batch = _empty(("input_ids", "input_mask", "token_type_ids"), rows, bucket)
            batch["input_ids"][:] = self._tokenizer.pad_id
            batch["input_mask"][len(numbers) :, 0] = 1
            for row, number in enumerate(numbers):
                size = lengths[number]
                batch["input_ids"][row, :size] = encoded[number].ids
                batch["input_mask"][row, :size] = 1
                batch["token_type_ids"][row, :size] = encoded[number].token_types
            return batch

        result = np.zeros(len(pairs), np.float32)
        batches = self._batcher.run(
            lengths,
            buckets,
            rows=lambda bucket: self._batcher.rows(bucket, len(pairs)),
            make=make,
            compute=lambda batch: self._apply(params, batch),
        )
        with Progress(what, len(pairs), " pairs") as progress:
            for numbers, scores in batches:
                result[numbers] = scores[: len(numbers)]
                progress.update(len(numbers))
        return result


def _empty(names: Sequence[str], rows: int, length: int) -> dict[str, np.ndarray]:
    return {name: np.zeros((rows, length), np.int32) for name in names}


def own_similarities(queries: TextVectors, passages: TextVectors, name: str) -> np.ndarray:
    """The similarity of query i and passage i, float32 [N].

    Args:
      name: a key of `SIMILARITIES`.
    """

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
    """The documents that are most alike, the best first, by comparing with all.

    Of equal ones, the first comes first.

    Args:
      name: a key of `SIMILARITIES`.
      most: how many to return; at most all.
      placement: the devices, each of which searches for some of the queries.

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
            asked = np.minimum(np.arange(begin, begin + rows), len(queries) - 1)
            query = jax.tree.map(partial(_split, placement), queries.take(asked))
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
    """The rows of an array over the devices."""
    return placement.put(lambda held: {"": array[held]}, len(array))[""]
