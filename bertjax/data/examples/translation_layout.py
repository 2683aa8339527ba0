"""Rows of a text and its translation (translation language modelling, arXiv 1901.07291, Figure 1).

Of a parallel source, a row has the two texts of a pair in the tokenizer's template, each cut so
that both fit. The positions of the second count from 0 again, from its first special token
(XLM, src/utils.py, `concat_batches`). Of any other source, a row has a span of a document. So one
run mixes both by the shares of its sources.
"""

import dataclasses
from typing import ClassVar

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.fields import LANGUAGE_IDS, POSITION_IDS, TEXT, Field
from bertjax.data.corpus.languages import languages_of
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.draws import Draws, permute
from bertjax.data.examples.layout import PAIRS, SINGLE_SPANS, LaidOut, RowSpec, SpanRows
from bertjax.data.examples.mixture import Mixture, mixture_of
from bertjax.data.examples.spans import TextSpans


@dataclasses.dataclass(frozen=True)
class TranslationLayout:
    """A pair of a text and its translation, or a span of text, and padding.

    Attributes:
      languages: the codes of the languages in the order of their ids; () without `language_ids`.
    """

    languages: tuple[str, ...] = ()
    has_short_rows: ClassVar[bool] = True  # of spans
    has_fixed_rows: ClassVar[bool] = False

    @property
    def fields(self) -> dict[str, Field]:
        return TEXT | POSITION_IDS | (LANGUAGE_IDS if self.languages else {})

    def open(self, store: TokenStore, spec: RowSpec) -> "TranslationRows":
        room = spec.length - spec.tokenizer.template.specials(pair=True)
        sampler = PairSampler(store, room, spec.draws)
        pairs = SpanRows(PAIRS, store, spec.tokenizer, spec.length, sampler)
        spans = SINGLE_SPANS.open(store, spec)
        return TranslationRows(self, store, spec.draws, spans, pairs)


class TranslationRows:
    """The rows of a `TranslationLayout`; `spans` and `pairs` make those of either kind."""

    def __init__(
        self,
        layout: TranslationLayout,
        store: TokenStore,
        draws: Draws,
        spans: SpanRows,
        pairs: SpanRows,
    ):
        self._spans, self._pairs = spans, pairs
        self._mixture = Mixture(np.array([s.share for s in store.sources]), draws)
        self._is_parallel = np.array([s.is_parallel for s in store.sources])
        self._ids = None  # of the languages of A and B in each source, [sources, 2]
        if layout.languages:
            self._ids = np.array([_language_ids(s.name, layout.languages) for s in store.sources])

    def __call__(self, index: np.ndarray) -> LaidOut:
        """The rows of examples `index`, int64 [R]."""
        source, _ = self._mixture.locate(index)
        parallel = self._is_parallel[source]
        length, template = self._spans.length, self._spans.tokenizer.template
        ids = np.empty((len(index), length), np.int32)
        second, lengths = np.empty((2, len(index)), np.int64)
        for chosen, rows in ((~parallel, self._spans), (parallel, self._pairs)):
            if chosen.any():
                made = rows.placed(rows.sampler.spans(index[chosen]))
                ids[chosen], second[chosen], lengths[chosen] = made
        column = np.arange(length, dtype=np.int32)
        # The first special token after A ends A; others before B belong to B.
        own = max(0, len(template.between) - 1)
        begin = np.where(parallel, second - own, length).astype(np.int32)[:, None]
        in_b = column >= begin
        arrays = {
            "input_ids": ids,
            "input_mask": (column < lengths[:, None]).astype(np.int32),
            "token_type_ids": template.token_types(length, second, lengths),
            "position_ids": column - begin * in_b,
        }
        if self._ids is not None:
            a, b = self._ids[source].astype(np.int32).T[:, :, None]
            arrays["language_ids"] = np.where(in_b, b, a)
        return LaidOut(arrays, lengths)


class PairSampler:
    """The two texts of any example of one stream whose source is parallel.

    Each epoch has its own random order of a source's pairs. Both texts together have `room` tokens.
    """

    def __init__(self, store: TokenStore, room: int, draws: Draws):
        self._store, self._room, self._draws = store, room, draws
        self._mixture = mixture_of(store, draws, room)
        self._first_document = np.array([s.first_document for s in store.sources])
        self._end_document = np.array([s.last_document_exclusive for s in store.sources])

    def spans(self, index: np.ndarray) -> TextSpans:
        """The texts of examples `index` [R]; each may have half of the room, or what is left."""
        source, rank = self._mixture.locate(index)
        first = self._first_document[source]
        count = self._end_document[source] - first
        epoch, turn = np.divmod(rank, count)
        pair = first + permute(turn, count, self._draws.keys("order of pairs", source, epoch))
        start, end = self._store.document_starts[pair], self._store.document_starts[pair + 1]
        sentences = self._store.sentence_starts
        middle = sentences[np.searchsorted(sentences, start, side="right")]
        a_length, b_length = middle - start, end - middle
        a_length = np.minimum(a_length, np.maximum(self._room - b_length, self._room // 2))
        b_length = np.minimum(b_length, self._room - a_length)
        return TextSpans(start, a_length, middle, b_length, np.zeros_like(start))


def _language_ids(source: str, languages: tuple[str, ...]) -> tuple[int, int]:
    """The ids of the languages of A and B; both are the only one of a source without pairs."""
    named = languages_of(source)
    if not named or not set(named) <= set(languages):
        raise InputError(
            f"source {source!r}: its language ({' and '.join(named) or 'none is named'}) is not "
            f"among objective.languages={','.join(languages)!r}: name it there"
        )
    return languages.index(named[0]), languages.index(named[-1])
