"""Rows of a stream that go on from batch to batch, for models with a memory."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.fields import TEXT, Field
from bertjax.data.corpus.store import SourceSpan, TokenStore
from bertjax.data.examples.layout import LaidOut, RowSpec
from bertjax.data.examples.stream_layout import Stream
from bertjax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class ContinuedStream:
    """Full rows of the stream, each with the special tokens of one text at its end.

    As in data_utils.py of zihangdai/xlnet (`create_tfrecords`), a row is text that is reused, then
    the text after it and the special tokens. In the next batch, the row begins after the reused
    text, which the model then remembers. Unlike there, the text after it is one text A, and not A
    and B: nothing is predicted of pairs.

    Attributes:
      reuse: the tokens by which a row moves on from batch to batch.
      memory: the tokens before a row that the model remembers.
    """

    reuse: int
    memory: int
    fields: ClassVar[Mapping[str, Field]] = TEXT
    has_short_rows: ClassVar[bool] = False
    has_fixed_rows: ClassVar[bool] = False

    def open(self, store: TokenStore, spec: RowSpec) -> "ContinuedRows":
        return ContinuedRows(self, store, spec)


class ContinuedRows:
    """The rows of a `ContinuedStream` over a store."""

    def __init__(self, layout: ContinuedStream, store: TokenStore, spec: RowSpec):
        tokenizer, length, template = spec.tokenizer, spec.length, spec.tokenizer.template
        self._room = length - template.specials(pair=False)
        _check(layout, tokenizer, length, self._room)
        self._tokenizer, self._length = tokenizer, length
        self._stretches = _Stretches(store, spec, self._room, layout.reuse)

    def __call__(self, index: np.ndarray) -> LaidOut:
        """The rows of examples `index`, int64 [R]."""
        room = np.full(len(index), self._room)
        ids = np.empty((len(index), self._length), np.int32)
        template = self._tokenizer.template
        places = template.write(ids.reshape(-1), np.arange(len(index)) * self._length, room)
        ids[:, : self._room] = self._stretches(index)
        lengths = np.full(len(index), self._length)
        assert (places.end == np.arange(1, len(index) + 1) * self._length).all()
        arrays = {
            "input_ids": ids,
            "input_mask": np.ones_like(ids),
            "token_type_ids": template.token_types(self._length, lengths, lengths),
        }
        return LaidOut(arrays, lengths)


class ContinuedTokens:
    """Full rows of the stream without special tokens, each from the last token of that before it.

    So each token of a row but the first is predicted once, as in `StreamLayout`.
    """

    fields: ClassVar[Mapping[str, Field]] = TEXT
    has_short_rows: ClassVar[bool] = False
    has_fixed_rows: ClassVar[bool] = False

    def open(self, store: TokenStore, spec: RowSpec) -> Callable[[np.ndarray], LaidOut]:
        stretches = _Stretches(store, spec, spec.length, spec.length - 1)

        def rows(index: np.ndarray) -> LaidOut:
            ids = stretches(index)
            arrays = {
                "input_ids": ids,
                "input_mask": np.ones_like(ids),
                "token_type_ids": np.zeros_like(ids),
            }
            return LaidOut(arrays, np.full(len(index), spec.length))

        return rows


CONTINUED_TOKENS = ContinuedTokens()


class _Stretches:
    """Stretches of the stream, each of which goes on in the same row of the next batch.

    The rows are dealt to the sources by `deal_rows`. At the end of a source, a row goes on at its
    beginning.
    """

    def __init__(self, store: TokenStore, spec: RowSpec, room: int, step: int):
        """`room` are the tokens of a stretch; the next one begins `step` tokens later."""
        self._stream = Stream(store, spec.tokenizer.end_id)
        self._room, self._step, sources = room, step, store.sources
        bounds = np.array([self._stream.bounds(number) for number in range(len(sources))])
        tokens = bounds[:, 1] - bounds[:, 0]
        for each, count in zip(sources, tokens, strict=True):
            if count < room:
                raise InputError(
                    f"source {each.name!r} has {count} tokens, less than the {room} of a "
                    "row: add text, raise --held_out if this is the held-out split, or take a "
                    "shorter length"
                )
        source, within = deal_rows(sources, spec.batch_size)
        self._begin = bounds[source, 0]
        self._count = (tokens[source] - room) // step + 1
        self._first = (within * self._count).astype(np.int64)

    def __call__(self, index: np.ndarray) -> np.ndarray:
        """The stretches of examples `index`, int64 [R]: int32 [R, room]."""
        batch, row = np.divmod(index, len(self._begin))
        number = (self._first[row] + batch) % self._count[row]
        begin = self._begin[row] + number * self._step
        room = np.full(len(index), self._room)
        return self._stream.read(begin, room).reshape(len(index), -1)


def deal_rows(sources: Sequence[SourceSpan], batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Deals the rows of a batch to the sources by their shares.

    Returns the source of each row, and where the row begins in it, from 0 to 1, at even distances.
    """
    shares = np.array([source.share for source in sources])
    ends = np.cumsum(shares)
    place = (np.arange(batch_size) + 0.5) / batch_size * ends[-1]
    source = np.minimum(np.searchsorted(ends, place), len(sources) - 1)
    if missing := set(range(len(sources))) - {*source.tolist()}:
        name = sources[min(missing)].name
        raise InputError(
            f"source {name!r}: its share is less than one of the {batch_size} rows of a batch, "
            "and each row reads one source: raise its weight or the batch_size"
        )
    return source, (place - (ends - shares)[source]) / shares[source]


def _check(layout: ContinuedStream, tokenizer: Tokenizer, length: int, room: int) -> None:
    if tokenizer.template.before:
        raise InputError(
            "this vocabulary puts special tokens before the text, and a row of a stream that goes "
            "on has them after it: learn one with --tokenizer=xlnet of launch/prepare_corpus.py"
        )
    if layout.memory > length:
        raise InputError(
            f"objective.memory={layout.memory}: must be at most the sequence length {length}, "
            "because no row before it has more tokens to remember"
        )
    if layout.reuse >= room:
        raise InputError(
            f"objective.reuse={layout.reuse}: must be less than {room}, the tokens of text in a "
            f"row of {length}: half of the length is usual"
        )
