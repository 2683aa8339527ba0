"""Which text an example shows: spans A and B, and whether B follows A (sections 3.1 and A.2).

A document of n tokens is cut into ceil(n / room) chunks of `room` tokens, at places that
move from epoch to epoch, so that an epoch shows every part of every document once. A chunk is
moved to the start of its first sentence and cut in two at the start of a random sentence. Half
the time A and B are these two pieces. Half the time one of them, either, is replaced by a piece
about as long from another document of the same source.

Both kinds of pairs look alike but for what they say: A and B begin with a sentence, A ends with
one, B goes on to where the chunk ends or to the end of a document.
"""

from typing import NamedTuple

import numpy as np

from bertjax.corpus.store import TokenStore
from bertjax.errors import InputError
from bertjax.examples.draws import Draws, permute
from bertjax.examples.mixture import Mixture


class Spans(NamedTuple):
    """Spans of R examples, as global token positions of the store; all int64 [R]."""

    a_start: np.ndarray
    a_length: np.ndarray  # at least 1
    b_start: np.ndarray
    b_length: np.ndarray  # at least 1; 0 where there are no pairs
    is_random: np.ndarray  # 1: B is from another document; 0: B follows A


class SpanSampler:
    """Spans for any example of one stream.

    Args:
      store: the tokens.
      room: tokens for A and B together: the sequence length less [CLS] and the [SEP]s.
      draws: the stream's random numbers.
      pairs: A and B, or one span A alone.
      short_probability: share of examples that aim at a random length in [2, room] instead
        of at `room` ("short_seq_prob" of the reference), to be used to shorter input.

    Raises:
      InputError: pairs from a source that has a single document.
    """

    def __init__(
        self, store: TokenStore, *, room: int, draws: Draws, pairs: bool, short_probability: float
    ):
        if room < 2:
            raise InputError(f"the sequence length leaves room for {room} tokens: at least 2")
        for source in store.sources:
            if pairs and source.last_document_exclusive - source.first_document < 2:
                raise InputError(
                    f"source {source.name!r} has a single document: next-sentence prediction "
                    "draws B from another one; add documents (in text files a blank line ends "
                    "a document), hold out more of them if it is the held-out part that has one "
                    '(--held_out), or train with objective="masked_lm"'
                )
        self._store, self._room, self._draws, self._pairs = store, room, draws, pairs
        self._short_probability = short_probability
        self._mixture = Mixture(np.array([s.share for s in store.sources]), draws)
        self._first_document = np.array([s.first_document for s in store.sources])
        self._end_document = np.array([s.last_document_exclusive for s in store.sources])
        chunks = -(-np.diff(store.document_starts) // room)
        self._chunk_starts = np.concatenate([[0], np.cumsum(chunks)])  # [documents + 1]

    def spans(self, index: np.ndarray) -> Spans:
        """The spans of examples `index`, int64 [R]."""
        source, rank = self._mixture.locate(index)
        document, start, end = self._chunk(source, rank)
        start, end, target = self._shorten(index, start, end)
        start, end, sentence = self._align(document, start, end, target)
        if not self._pairs:
            none = np.zeros_like(start)
            return Spans(start, end - start, none, none, none)
        return self._split(index, source, document, sentence, start, end, target)

    def _chunk(self, source, rank):
        """Each source's chunks in a new random order every epoch: document, start, end."""
        starts, documents = self._chunk_starts, self._store.document_starts
        first = starts[self._first_document[source]]
        count = starts[self._end_document[source]] - first
        epoch, turn = np.divmod(rank, count)
        chunk = first + permute(turn, count, self._draws.keys("order", source, epoch))
        document = np.searchsorted(starts, chunk, side="right") - 1
        begin, stop = documents[document], documents[document + 1]
        # The document's chunks cover a little more than the document. Where the surplus lies,
        # before it or after, moves every boundary.
        surplus = (starts[document + 1] - starts[document]) * self._room - (stop - begin)
        shift = self._draws.below(surplus + 1, "boundary", document, epoch)
        start = begin - shift + (chunk - starts[document]) * self._room
        return document, np.maximum(start, begin), np.minimum(start + self._room, stop)

    def _shorten(self, index, start, end):
        """Some examples aim at a random length, from a random place of their chunk."""
        draws, room = self._draws, self._room
        short = draws.uniform("short", index) < self._short_probability
        target = np.where(short, 2 + draws.below(room - 1, "short length", index), room)
        spare = np.maximum(end - start - target, 0)
        return start + draws.below(spare + 1, "short place", index), end, target

    def _align(self, document, start, end, target):
        """From a sentence's start, at least two tokens, at most `target`; and the sentence."""
        last = self._store.document_starts[document + 1] - 2
        start, sentence = self._sentence_start(np.minimum(start, last))
        return start, np.clip(end, start + 2, start + target), sentence

    def _sentence_start(self, position):
        """The start of the sentence; or `position`, deep inside one too long to be shown."""
        starts = self._store.sentence_starts
        sentence = np.searchsorted(starts, position, side="right") - 1
        start = starts[sentence]
        return np.where(position - start <= self._room // 2, start, position), sentence

    def _split(self, index, source, document, sentence, start, end, target):
        """Cuts [start, end) in two and replaces a piece half the time."""
        draws, sentences = self._draws, self._store.sentence_starts
        inner = sentence + 1
        count = np.searchsorted(sentences, end, side="left") - inner
        # A chunk of one sentence is cut inside it: "a 'sentence' can be an arbitrary span of
        # contiguous text" (section 3).
        cut = np.where(
            count > 0,
            sentences[inner + draws.below(np.maximum(count, 1), "cut", index)],
            start + 1 + draws.below(end - start - 1, "cut inside", index),
        )
        document_stop = self._store.document_starts[document + 1]
        # Tokens of the pair. A chunk at its document's end is short by chance.
        most = np.where(end == document_stop, target, end - start)
        is_random = draws.below(2, "is random", index)
        # Either piece may go, or the ends of chunks would be shown less often.
        goes_a = (is_random & draws.below(2, "piece", index)).astype(bool)
        goes_b = is_random.astype(bool) & ~goes_a
        wanted = np.where(goes_a, cut - start, end - cut)
        other_start, other_stop = start.copy(), end.copy()
        r = np.flatnonzero(is_random)
        other_start[r], other_stop[r] = self._elsewhere(
            index[r], source[r], document[r], wanted[r], most[r], goes_a[r]
        )
        a_start = np.where(goes_a, other_start, start)
        b_start = np.where(goes_b, other_start, cut)
        a_stop = np.where(goes_a, other_stop, cut)
        b_stop = np.where(goes_b, other_stop, np.where(goes_a, document_stop, end))
        a_length = np.minimum(a_stop - a_start, most - 1)
        b_length = np.minimum(b_stop - b_start, most - a_length)
        return Spans(a_start, a_length, b_start, b_length, is_random)

    def _elsewhere(self, index, source, document, wanted, most, for_a):
        """Whole sentences of another document of the source: start and stop.

        They have `wanted` tokens or just more. For A, which is not to be cut at its end, they
        have just less where that is nearer, or where just more is all of `most`.
        """
        documents, sentences = self._store.document_starts, self._store.sentence_starts
        first = documents[self._first_document[source]]
        total = documents[self._end_document[source]] - first
        own, own_end = documents[document], documents[document + 1]
        # Uniform over the tokens of the other documents.
        place = first + self._draws.below(total - (own_end - own), "elsewhere", index)
        place = np.where(place >= own, place + own_end - own, place)
        other = np.searchsorted(documents, place, side="right") - 1
        stop = documents[other + 1]
        place = np.maximum(np.minimum(place, stop - wanted), documents[other])
        start, _ = self._sentence_start(place)
        wanted_stop = np.minimum(start + wanted, stop)
        sentence = np.searchsorted(sentences, wanted_stop)
        before, stop = sentences[sentence - 1], sentences[sentence]
        less = (wanted_stop - before < stop - wanted_stop) | (stop - start >= most)
        return start, np.where(for_a & less & (before > start), before, stop)
