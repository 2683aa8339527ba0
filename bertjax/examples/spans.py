"""Which text an example shows: spans A and B, and whether B follows A (sections 3.1 and A.2).

A document of n tokens is cut into ceil(n / room) chunks of `room` tokens, at places that
move from epoch to epoch, so that an epoch shows every part of every document once. A chunk is
moved to the start of its first sentence and cut in two at the start of a random sentence. Half
the time A and B are these two pieces. Half the time one of them is replaced by as many tokens of
another document of the same source: B, but A in the last chunk of a document, and either where
that is the only one.

Both kinds of pairs look alike but for what they say. The other text is chosen for both of them,
and the piece that may be replaced is cut at its outer end to a length that both texts have, a token
or two less where one would end there with a sentence and the other would not. So no length tells
which of the two is shown, nor whether A and B begin and end with a sentence. Where A and B meet, a
sentence ends and another begins. A chunk of a single sentence is cut inside it ("a 'sentence' can
be an arbitrary span of contiguous text", section 3), and the other text is then part of one, too.
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
        return self._split(index, source, document, sentence, start, end)

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

    def _split(self, index, source, document, sentence, start, end):
        """Cuts [start, end) in two and replaces a piece half the time."""
        draws, documents = self._draws, self._store.document_starts
        # If B always went, the ends of documents would be shown less often.
        last, first = end == documents[document + 1], start == documents[document]
        a_goes = last & (~first | (draws.below(2, "piece", index) == 1))
        cut, inside = self._cut(index, sentence, start, end, a_goes)
        wanted = np.where(a_goes, cut - start, end - cut)
        place, there = self._elsewhere(index, source, document, wanted, a_goes, inside)
        length = self._alike(np.minimum(wanted, there), np.stack([cut, place]), a_goes)

        # Only here it is decided which text is shown.
        is_random = draws.below(2, "is random", index)
        shown = np.where(is_random == 1, place, cut)
        a_start = np.where(a_goes, shown - length, start)
        b_start = np.where(a_goes, cut, shown)
        a_length = np.where(a_goes, length, cut - start)
        b_length = np.where(a_goes, end - cut, length)
        return Spans(a_start, a_length, b_start, b_length, is_random)

    def _cut(self, index, sentence, start, end, a_goes):
        """Where A ends and B begins in [start, end), and whether that is inside a sentence.

        It is the first sentence's start after a random place, or the last before it if A may go:
        so what may go does not begin (or end) with a sentence that is longer than others.
        """
        sentences = self._store.sentence_starts
        count = np.searchsorted(sentences, end, side="left") - sentence - 1  # that begin inside
        inside = count == 0
        low = np.where(inside, start + 1, np.where(a_goes, sentences[sentence + 1], start))
        high = np.where(inside | a_goes, end, sentences[sentence + count])
        place = low + self._draws.below(high - low, "cut", index)
        following = np.searchsorted(sentences, place, side="right")
        return np.where(inside, place, sentences[following - a_goes]), inside

    def _elsewhere(self, index, source, document, wanted, for_a, inside):
        """A place in another document of the source: A is to end there, or B to begin.

        Returns it, and how many tokens there are: `wanted` or more, if the document (where the
        place is inside a sentence: the sentence) has so many.
        """
        documents, sentences = self._store.document_starts, self._store.sentence_starts
        first = documents[self._first_document[source]]
        total = documents[self._end_document[source]] - first
        own, own_end = documents[document], documents[document + 1]
        # Uniform over the tokens of the other documents.
        place = first + self._draws.below(total - (own_end - own), "elsewhere", index)
        place = np.where(place >= own, place + own_end - own, place)
        other = np.searchsorted(documents, place, side="right") - 1
        begin, stop = documents[other], documents[other + 1]
        low = np.where(for_a, np.minimum(begin + wanted, stop - 1), begin)
        high = np.where(for_a, stop - 1, np.maximum(stop - wanted, begin))
        place = np.where(inside, place, np.clip(place, low, high))
        sentence = np.searchsorted(sentences, place, side="right") - 1
        before, after = sentences[sentence], sentences[sentence + 1]
        # Of all sentences, a place is in a long one too often: its neighbour is shown, if it can.
        backwards = np.where(before - begin >= wanted, before, after)
        forwards = np.where(stop - after >= wanted, after, before)
        border = np.where(for_a, backwards, forwards)
        # Inside a sentence, A begins with it, or B ends with it. One of a token has no inside.
        within = inside & (after - before > 1)
        begin, stop = np.where(within, before, begin), np.where(within, after, stop)
        backwards = np.minimum(begin + wanted, stop - 1)
        forwards = np.maximum(stop - wanted, begin + 1)
        place = np.where(inside, np.where(for_a, backwards, forwards), border)
        return place, np.where(for_a, place - begin, stop - place)

    def _alike(self, length, places, for_a):
        """At most `length`, so that both texts end with a sentence, or neither (A: begin with one).

        places: int64 [2, R], where A ends, or B begins, in either text.
        """
        sentences = self._store.sentence_starts
        outer = np.where(for_a, places - length, places + length)
        following = np.searchsorted(sentences, outer, side="left")
        after, before = sentences[following], sentences[following - 1]
        # Tokens that may go until a sentence ends.
        gap = np.where(for_a | (after == outer), after - outer, outer - before)
        differ = (gap == 0).any(0) & (gap > 0).any(0)
        return np.maximum(length - differ * np.where(gap.max(0) == 1, 2, 1), 1)
