"""Batches of texts that belong together: batch n of a run is a function of (seed, n).

The texts are in memory as ids, once each. In every epoch of a source, each of its examples comes
once, in a random order.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bertjax.data.examples.draws import Draws, permute
from bertjax.data.examples.mixture import Mixture
from bertjax.tasks.buckets import fitting
from bertjax.tasks.similarity.examples import NONE, Examples
from bertjax.text.pairs import joined
from bertjax.text.prompted import PromptedText
from bertjax.text.tokenizer import Tokenizer

HostArrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """The texts of B queries and of their passages.

    Attributes:
      query: int64 [B].
      passage: int64 [B, K]; -1 for none.
      scores: float32 [B, K].
      query_key, passage_key: int32 [B], [B, K]: equal where texts count as equal.
    """

    query: np.ndarray
    passage: np.ndarray
    scores: np.ndarray
    query_key: np.ndarray
    passage_key: np.ndarray

    def rows(self, rows: slice) -> "Chosen":
        """Some of the rows."""
        return Chosen(*(array[rows] for array in vars(self).values()))


class Mixed:
    """Chooses the examples of every batch.

    Args:
      shares: the share of each source in the batches; they sum to 1.
      texts: the number of all texts.
      apart: whether each batch is of one source; otherwise its rows are mixed.
    """

    def __init__(
        self,
        sources: Sequence[Examples],
        shares: Sequence[float],
        texts: int,
        *,
        batch_size: int,
        seed: int,
        apart: bool,
    ):
        self._sources, self._batch_size, self._apart = sources, batch_size, apart
        self._draws = Draws(seed, "pairs")
        self._mixture = Mixture(np.asarray(shares), self._draws)
        self.width = max(source.width for source in sources)
        # The labels of each source have keys after those of all texts.
        labels = [0 if s.labels is None else int(s.labels.max()) + 1 for s in sources]
        self._first_label = texts + np.concatenate([[0], np.cumsum(labels)[:-1]])
        self._members = [_members(source) for source in sources]

    def batch(self, number: int, rows: slice) -> Chosen:
        """Rows of batch `number`."""
        row = np.arange(rows.start, rows.stop)
        if self._apart:
            source, rank = self._mixture.locate(np.array([number]))
            source, rank = np.repeat(source, len(row)), rank * self._batch_size + row
        else:
            source, rank = self._mixture.locate(number * self._batch_size + row)
        shape = (len(row), self.width)
        query, passage = np.zeros(len(row), np.int64), np.full(shape, NONE, np.int64)
        query_key, passage_key = query.copy(), passage.copy()
        scores = np.zeros(shape, np.float32)
        for which in np.unique(source):
            here = np.flatnonzero(source == which)
            examples = self._sources[which]
            size = np.full(len(here), len(examples))
            epoch, place = np.divmod(rank[here], len(examples))
            order = self._draws.keys("order", np.full(len(here), which), epoch)
            chosen = permute(place, size, order)
            query[here] = query_key[here] = examples.query[chosen]
            if examples.labels is None:
                width = examples.width
                passage[here, :width] = passage_key[here, :width] = examples.passage[chosen]
            else:
                other = self._partners(int(which), chosen, epoch)
                passage[here, 0] = examples.query[other]
                key = self._first_label[which] + examples.labels[chosen]
                query_key[here], passage_key[here, 0] = key, key
            if examples.scores is not None:
                scores[here, : examples.width] = examples.scores[chosen]
        keys = query_key.astype(np.int32), passage_key.astype(np.int32)
        return Chosen(query, passage, scores, *keys)

    def all_rows(self, number: int) -> Chosen:
        """All rows of batch `number`."""
        return self.batch(number, slice(0, self._batch_size))

    def _partners(self, source: int, chosen: np.ndarray, epoch: np.ndarray) -> np.ndarray:
        """For each example another one with the same label, in each epoch another."""
        order, place, start, count = self._members[source]
        label = self._sources[source].labels[chosen]  # type: ignore[index]
        draw = self._draws.below(count[label] - 1, f"other {source}", epoch, chosen)
        other = (place[chosen] + 1 + draw) % count[label]
        return order[start[label] + other]


def _members(examples: Examples) -> tuple[np.ndarray, ...]:
    """The examples by label, each one's place in its label, and each label's first and count."""
    if examples.labels is None:
        return ()
    order = np.argsort(examples.labels, kind="stable")
    count = np.bincount(examples.labels)
    start = np.concatenate([[0], np.cumsum(count)[:-1]])
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - np.repeat(start, count)
    return order, place, start, count


class Tokens:
    """The tokens of texts, by their numbers; a text that is not among them is `empty`.

    `texts` is encoded by `bertjax.text.prompted`, and `numbers` has the number of each.
    """

    def __init__(self, texts: Sequence[PromptedText], numbers: Sequence[int], empty: PromptedText):
        self._row = np.zeros(max(numbers, default=0) + 2, np.int64)
        self._row[np.asarray(numbers, np.int64)] = np.arange(1, len(numbers) + 1)
        with_empty = [empty, *texts]
        self.lengths = np.array([len(text.ids) for text in with_empty])
        self._starts = np.concatenate([[0], np.cumsum(self.lengths)])
        self._ids = np.concatenate([np.asarray(text.ids, np.int32) for text in with_empty])
        self._types = np.concatenate([np.asarray(text.token_types, np.int8) for text in with_empty])
        self._counted = np.concatenate([np.asarray(text.counted, np.int8) for text in with_empty])

    def longest(self, numbers: np.ndarray) -> int:
        """The tokens of the longest of these texts."""
        return int(self.lengths[self._rows(numbers)].max())

    def _rows(self, numbers: np.ndarray) -> np.ndarray:
        return np.where(numbers < 0, 0, self._row[numbers])

    def arrays(self, numbers: np.ndarray, length: int, pad_id: int) -> HostArrays:
        """The tokens of texts [...], int32 [..., S]."""
        rows, column = self._rows(numbers)[..., None], np.arange(length)
        is_token = column < self.lengths[rows]
        place = np.where(is_token, self._starts[rows] + column, 0)

        def filled(values: np.ndarray, empty: int = 0) -> np.ndarray:
            return np.where(is_token, values[place], empty).astype(np.int32)

        return {
            "input_ids": filled(self._ids, pad_id),
            "input_mask": is_token.astype(np.int32),
            "token_type_ids": filled(self._types),
            "counted_mask": filled(self._counted),
        }


# The lengths of batches of texts, in training and in inference: 16, 24, 32, 48, 64, ...
LENGTHS = tuple(length for n in range(4, 16) for length in (1 << n, 3 << (n - 1)))


def _fitting(length: int, most: int) -> int:
    """The least of `LENGTHS` that holds so many tokens, but at most `most`."""
    return min(fitting(LENGTHS, length), most)


class Batches:
    """The arrays of every batch, for queries and passages that are encoded apart.

    Args:
      lengths: the most tokens of a query, and of a passage.
      pad_to_longest: whether a batch is only as long as its longest text needs, of a few lengths,
        for each of which a program is compiled. Otherwise all batches have `lengths`.
    """

    def __init__(
        self,
        mixed: Mixed,
        queries: Tokens,
        passages: Tokens,
        *,
        lengths: tuple[int, int],
        pad_id: int,
        pad_to_longest: bool,
    ):
        self._mixed, self._sides = mixed, (queries, passages)
        self._most, self._pad_id, self._pads_to_longest = lengths, pad_id, pad_to_longest

    def lengths(self, batch_rows: Chosen) -> tuple[int, int]:
        """The lengths of queries and of passages in a batch."""
        if not self._pads_to_longest:
            return self._most
        texts = batch_rows.query, batch_rows.passage
        longest = (side.longest(each) for side, each in zip(self._sides, texts, strict=True))
        return tuple(map(_fitting, longest, self._most))  # type: ignore[return-value]

    def batch(self, number: int, rows: slice) -> HostArrays:
        """Rows of batch `number`; see `bertjax.objectives.similarity` for its arrays."""
        batch_rows = self._mixed.all_rows(number)
        chosen = batch_rows.rows(rows)
        texts, result = (chosen.query, chosen.passage), _keys(chosen)
        lengths = self.lengths(batch_rows)
        names = ("query_", "passage_")
        for begin, side, numbers, length in zip(names, self._sides, texts, lengths, strict=True):
            arrays = side.arrays(numbers, length, self._pad_id)
            result |= {begin + name: array for name, array in arrays.items()}
        return result

    def tokens(self, number: int) -> int:
        """The positions of batch `number`, padding included."""
        batch_rows = self._mixed.all_rows(number)
        query, passage = self.lengths(batch_rows)
        return len(batch_rows.query) * query + batch_rows.passage.size * passage


class JoinedBatches:
    """The same for rerankers, which read a query and a passage as one sequence."""

    def __init__(
        self,
        mixed: Mixed,
        ids: Sequence[list[int]],
        tokenizer: Tokenizer,
        *,
        length: int,
        pad_to_longest: bool,
    ):
        self._mixed, self._ids, self._tokenizer = mixed, ids, tokenizer
        self._most, self._pads_to_longest = length, pad_to_longest
        self._lengths = np.array([len(each) for each in ids])

    def _length(self, batch_rows: Chosen) -> int:
        if not self._pads_to_longest:
            return self._most
        is_passage = batch_rows.passage >= 0
        pairs = (
            self._lengths[batch_rows.query][:, None]
            + self._lengths[np.maximum(batch_rows.passage, 0)]
        )
        longest = np.where(is_passage, pairs, 0).max() + self._tokenizer.template.specials(
            pair=True
        )
        return _fitting(min(int(longest), self._most), self._most)

    def batch(self, number: int, rows: slice) -> HostArrays:
        """Rows of batch `number`; see `bertjax.objectives.similarity` for its arrays."""
        batch_rows = self._mixed.all_rows(number)
        chosen, length = batch_rows.rows(rows), self._length(batch_rows)
        shape = (*chosen.passage.shape, length)
        ids, mask, types = (np.full(shape, x, np.int32) for x in (self._tokenizer.pad_id, 0, 0))
        for place, passage in np.ndenumerate(chosen.passage):
            a = self._ids[int(chosen.query[place[0]])]
            b = [] if passage < 0 else self._ids[int(passage)]
            sequence = joined(self._tokenizer, a, b, length)
            size = len(sequence.ids)
            ids[place][:size], mask[place][:size] = sequence.ids, 1
            types[place][:size] = sequence.token_types
        return {**_keys(chosen), "input_ids": ids, "input_mask": mask, "token_type_ids": types}

    def tokens(self, number: int) -> int:
        """The positions of batch `number`, padding included."""
        batch_rows = self._mixed.all_rows(number)
        return batch_rows.passage.size * self._length(batch_rows)


def _keys(chosen: Chosen) -> HostArrays:
    return {
        "is_real_example": np.ones(len(chosen.query), np.float32),
        "query_key": chosen.query_key,
        "passage_key": chosen.passage_key,
        "scores": chosen.scores,
    }
