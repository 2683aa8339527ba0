"""Rows of a stream of sentences for a language model in each direction (ELMo, arXiv 1802.05365).

As in bilm/data.py of bilm-tf (`_get_batch`, `BidirectionalLMDataset`): each word of a sentence and
its end are predicted from the begin of the sentence and the words before. The backward direction
does the same with the mirrored sentence. Row r of a batch goes on where row r of the batch before
has ended. Unlike there, sentences stay in the order of their text.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.fields import BACKWARD_CHARACTERS, CHARACTERS, NEXT_WORDS, TEXT, Field
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.continued_layout import deal_rows
from bertjax.data.examples.layout import LaidOut, RowSpec
from bertjax.text.characters import characters_of
from bertjax.text.tokenizer import WORDS


@dataclasses.dataclass(frozen=True)
class TwoWayStream:
    """Full rows of the stream <S> w1 .. wn <S> .., and of </S> wn .. w1 </S> .. for the way back.

    An encoder reads the backward direction from the end of a row, so its words are in that order.
    A word that is read stands at the place of the word that is predicted from it.
    """

    fields: ClassVar[Mapping[str, Field]] = {
        **CHARACTERS,
        **BACKWARD_CHARACTERS,
        "input_mask": TEXT["input_mask"],
        **NEXT_WORDS,
    }
    has_short_rows: ClassVar[bool] = False
    has_fixed_rows: ClassVar[bool] = False

    def open(self, store: TokenStore, spec: RowSpec) -> "TwoWayRows":
        return TwoWayRows(store, spec)


class TwoWayRows:
    """The rows of a `TwoWayStream` over a store.

    The rows are dealt to the sources by `deal_rows`. At the end of a source, a row goes on at its
    beginning. A sentence of n words has n + 1 places.
    """

    def __init__(self, store: TokenStore, spec: RowSpec):
        tokenizer = spec.tokenizer
        if tokenizer.kind != WORDS:
            raise InputError(
                f"this vocabulary is a {tokenizer.kind} one, and whole words are predicted here: "
                "learn one with --tokenizer=words of launch/prepare_corpus.py"
            )
        self._store, self._length = store, spec.length
        self._begin_id, self._end_id = tokenizer.roles["bos"], tokenizer.roles["eos"]
        self._characters = characters_of(tokenizer)
        self._words = store.sentence_starts
        self._places = self._words + np.arange(len(self._words))
        documents = [(s.first_document, s.last_document_exclusive) for s in store.sources]
        sentences = np.searchsorted(self._words, store.document_starts[documents])
        begin, end = self._places[sentences].T
        source, within = deal_rows(store.sources, spec.batch_size)
        self._begin, self._size = begin[source], (end - begin)[source]
        self._first = (within * self._size).astype(np.int64)

    def __call__(self, index: np.ndarray) -> LaidOut:
        """The rows of examples `index`, int64 [R]."""
        step, row = np.divmod(index, len(self._begin))
        column = np.arange(self._length)
        place = (self._first[row] + step * self._length)[:, None] + column
        place = self._begin[row, None] + place % self._size[row, None]
        sentence = np.searchsorted(self._places, place, side="right") - 1
        done = place - self._places[sentence]  # words before it in the sentence, in its direction
        left = self._words[sentence + 1] - self._words[sentence] - done
        read, forward = self._ids(sentence, done - 1), self._ids(sentence, done)
        read_back, backward = self._ids(sentence, left), self._ids(sentence, left - 1)
        arrays = {
            "characters": self._characters[read],
            "backward_characters": self._characters[read_back[:, ::-1]],
            "forward_ids": forward,
            "backward_ids": backward[:, ::-1],
        }
        arrays = {name: each.astype(np.int32) for name, each in arrays.items()}
        arrays["input_mask"] = np.ones_like(arrays["forward_ids"])
        return LaidOut(arrays, np.full(len(index), self._length))

    def _ids(self, sentence: np.ndarray, number: np.ndarray) -> np.ndarray:
        """The ids of words of sentences by their numbers in these; -1 is the begin, n the end."""
        place = self._words[sentence] + number
        is_word = (number >= 0) & (place < self._words[sentence + 1])
        ids = np.where(number < 0, self._begin_id, self._end_id)
        places = place[is_word]
        ids[is_word] = self._store.read_spans(places, np.ones_like(places))
        return ids


TWO_WAY = TwoWayStream()
