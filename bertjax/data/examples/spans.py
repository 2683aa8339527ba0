"""The text of an example: spans A and B, and whether B follows A (sections 3.1 and A.2).

A document of n tokens is cut into ceil(n / room) chunks of `room` tokens, at positions that change
from epoch to epoch, so all text of every document is used once in an epoch. A chunk is moved to
the start of its first sentence, and cut in two at the start of a random sentence. In half of the
examples, A and B are these two pieces. In the other half, one piece is replaced by a text of the
same length from another document of the same source. Usually that is B. It is A in the last chunk
of a document, and either of them if the document has only one chunk.

Neither the lengths nor the sentence borders of A and B show whether B follows A. For this, the
replacement is chosen for all examples, and the piece that may be replaced is cut at its outer end
to a length that both texts have. If only one of the texts would then end with a sentence, the
piece loses another token or two. A always ends, and B always begins, at a sentence border. A chunk
of a single sentence is cut inside it ("a 'sentence' can be an arbitrary span of contiguous text",
section 3); then the replacement is cut inside a sentence, too.
"""

from typing import NamedTuple

import numpy as np

from bertjax.base.errors import InputError
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.draws import Draws, permute
from bertjax.data.examples.mixture import mixture_of


class TextSpans(NamedTuple):
    """The spans of R examples, as token positions in the store; all arrays are int64 [R]."""

    a_start: np.ndarray
    a_length: np.ndarray  # at least 1
    b_start: np.ndarray
    b_length: np.ndarray  # at least 1; always 0 without pairs
    is_random: np.ndarray  # 1: B is from another document; 0: B follows A


class SpanSampler:
    """Makes the spans of any example of one stream.

    Args:
      room: the tokens of A and B together: the sequence length without [CLS] and the [SEP]s.
      pairs: whether examples have spans A and B, or only a span A.
      short_probability: the share of examples whose intended length is random in [2, room] instead
        of `room` ("short_seq_prob" of the reference), so that the model also sees short input.
    """

    def __init__(
        self, store: TokenStore, *, room: int, draws: Draws, pairs: bool, short_probability: float
    ):
        self._mixture = mixture_of(store, draws, room)
        for source in store.sources:
            if pairs and source.last_document_exclusive - source.first_document < 2:
                raise InputError(
                    f"source {source.name!r} has a single document, but next-sentence prediction "
                    "takes B from another document: add documents (in text files a blank line "
                    "ends a document), raise --held_out if this is the held-out split, or train "
                    'with objective="masked_lm"'
                )
        self._store, self._room, self._draws, self._pairs = store, room, draws, pairs
        self._short_probability = short_probability
        self._first_document = np.array([s.first_document for s in store.sources])
        self._end_document = np.array([s.last_document_exclusive for s in store.sources])
        chunks = -(-np.diff(store.document_starts) // room)
        self._chunk_starts = np.concatenate([[0], np.cumsum(chunks)])  # [documents + 1]

    def spans(self, index: np.ndarray) -> TextSpans:
        """The spans of examples `index`, int64 [R]."""
        source, rank = self._mixture.locate(index)
        document, start, end = self._chunk(source, rank)
        start, end, target = self._shorten(index, start, end)
        start, end, sentence = self._align(document, start, end, target)
        if not self._pairs:
            none = np.zeros_like(start)
            return TextSpans(start, end - start, none, none, none)
        return self._split(index, source, document, sentence, start, end)

    def _chunk(
        self, source: np.ndarray, rank: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The document, start and end of a chunk; each epoch has its own random order of chunks."""
        starts, documents = self._chunk_starts, self._store.document_starts
        first = starts[self._first_document[source]]
        count = starts[self._end_document[source]] - first
        epoch, turn = np.divmod(rank, count)
        chunk = first + permute(turn, count, self._draws.keys("order", source, epoch))
        document = np.searchsorted(starts, chunk, side="right") - 1
        begin, stop = documents[document], documents[document + 1]
        # The chunks of a document cover a little more than it. A random share of this surplus is
        # before the document, which moves all borders between chunks.
        surplus = (starts[document + 1] - starts[document]) * self._room - (stop - begin)
        shift = self._draws.below(surplus + 1, "boundary", document, epoch)
        start = begin - shift + (chunk - starts[document]) * self._room
        return document, np.maximum(start, begin), np.minimum(start + self._room, stop)

    def _shorten(
        self, index: np.ndarray, start: np.ndarray, end: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Gives a share of the examples a random length, at a random position in their chunk."""
        draws, room = self._draws, self._room
        short = draws.uniform("short", index) < self._short_probability
        target = np.where(short, 2 + draws.below(room - 1, "short length", index), room)
        spare = np.maximum(end - start - target, 0)
        return start + draws.below(spare + 1, "short place", index), end, target

    def _align(
        self, document: np.ndarray, start: np.ndarray, end: np.ndarray, target: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Moves spans of 2 to `target` tokens to the start of a sentence; gives its number, too."""
        last = self._store.document_starts[document + 1] - 2
        start, sentence = self._sentence_start(np.minimum(start, last))
        return start, np.clip(end, start + 2, start + target), sentence

    def _sentence_start(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The start of the sentence; or `position` itself if the sentence is too long."""
        starts = self._store.sentence_starts
        sentence = np.searchsorted(starts, position, side="right") - 1
        start = starts[sentence]
        return np.where(position - start <= self._room // 2, start, position), sentence

    def _split(
        self,
        index: np.ndarray,
        source: np.ndarray,
        document: np.ndarray,
        sentence: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
    ) -> TextSpans:
        """Cuts [start, end) in two, and replaces one piece in half of the examples."""
        draws, documents = self._draws, self._store.document_starts
        # If always B were replaced, the ends of documents would be used less often.
        last, first = end == documents[document + 1], start == documents[document]
        replaces_a = last & (~first | (draws.below(2, "piece", index) == 1))
        cut, inside = self._cut(index, sentence, start, end, replaces_a)
        needed = np.where(replaces_a, cut - start, end - cut)
        place, available = self._other_document(index, source, document, needed, replaces_a, inside)
        length = self._aligned_length(
            np.minimum(needed, available), np.stack([cut, place]), replaces_a
        )

        # Only this draw decides whether the replacement is used.
        is_random = draws.below(2, "is random", index)
        shown = np.where(is_random == 1, place, cut)
        a_start = np.where(replaces_a, shown - length, start)
        b_start = np.where(replaces_a, cut, shown)
        a_length = np.where(replaces_a, length, cut - start)
        b_length = np.where(replaces_a, end - cut, length)
        return TextSpans(a_start, a_length, b_start, b_length, is_random)

    def _cut(
        self,
        index: np.ndarray,
        sentence: np.ndarray,
        start: np.ndarray,
        end: np.ndarray,
        replaces_a: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The place where A ends and B begins, and whether it is inside a sentence."""
        sentences = self._store.sentence_starts
        # The number of sentences that begin inside the span.
        count = np.searchsorted(sentences, end, side="left") - sentence - 1
        inside = count == 0
        low = np.where(inside, start + 1, np.where(replaces_a, sentences[sentence + 1], start))
        high = np.where(inside | replaces_a, end, sentences[sentence + count])
        place = low + self._draws.below(high - low, "cut", index)
        # The cut is at the first start of a sentence after the place, or at the last one before it
        # if A may be replaced. So the sentence of the replaceable piece at this border is not
        # longer than others on average.
        following = np.searchsorted(sentences, place, side="right")
        return np.where(inside, place, sentences[following - replaces_a]), inside

    def _other_document(
        self,
        index: np.ndarray,
        source: np.ndarray,
        document: np.ndarray,
        length: np.ndarray,
        for_a: np.ndarray,
        inside: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """A place in another document where A shall end, or B begin, and its tokens."""
        documents, sentences = self._store.document_starts, self._store.sentence_starts
        first = documents[self._first_document[source]]
        total = documents[self._end_document[source]] - first
        own, own_end = documents[document], documents[document + 1]
        # The position is uniform over the tokens of the other documents.
        place = first + self._draws.below(total - (own_end - own), "elsewhere", index)
        place = np.where(place >= own, place + own_end - own, place)
        other = np.searchsorted(documents, place, side="right") - 1
        begin, stop = documents[other], documents[other + 1]
        low = np.where(for_a, np.minimum(begin + length, stop - 1), begin)
        high = np.where(for_a, stop - 1, np.maximum(stop - length, begin))
        place = np.where(inside, place, np.clip(place, low, high))
        sentence = np.searchsorted(sentences, place, side="right") - 1
        before, after = sentences[sentence], sentences[sentence + 1]
        # A random position is more often in a long sentence, so the neighbouring sentence is used
        # if it has enough tokens.
        backwards = np.where(before - begin >= length, before, after)
        forwards = np.where(stop - after >= length, after, before)
        border = np.where(for_a, backwards, forwards)
        # Inside a sentence, A begins with the sentence, or B ends with it. A sentence of one token
        # has no inside.
        within = inside & (after - before > 1)
        begin, stop = np.where(within, before, begin), np.where(within, after, stop)
        backwards = np.minimum(begin + length, stop - 1)
        forwards = np.maximum(stop - length, begin + 1)
        place = np.where(inside, np.where(for_a, backwards, forwards), border)
        return place, np.where(for_a, place - begin, stop - place)

    def _aligned_length(
        self, length: np.ndarray, places: np.ndarray, for_a: np.ndarray
    ) -> np.ndarray:
        """A length <= `length` at which both texts, or neither, end (A: begin) with a sentence."""
        sentences = self._store.sentence_starts
        outer = np.where(for_a, places - length, places + length)
        following = np.searchsorted(sentences, outer, side="left")
        after, before = sentences[following], sentences[following - 1]
        # The number of tokens from the outer end to the next sentence border.
        gap = np.where(for_a | (after == outer), after - outer, outer - before)
        differ = (gap == 0).any(0) & (gap > 0).any(0)
        return np.maximum(length - differ * np.where(gap.max(0) == 1, 2, 1), 1)
