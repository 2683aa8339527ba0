"""Adds pieces of a new text after those of a vocabulary, whose ids stay as they are.

So weights of the old vocabulary can be trained further with the new one. What is added depends on
the kind of the vocabulary:

wordpiece  the frequent characters that it lacks, then the words that save the most pieces.
bpe        further merges, of the most frequent pair of pieces at a time, as BPE is learned.
unigram    the words that save the most pieces, each with the logarithm of its share of all pieces
           as its score, if it is then more probable than its old pieces together.
"""

import heapq
import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from bertjax.base.errors import InputError
from bertjax.text.byte_level import spelled
from bertjax.text.domain_words import MIN_OCCURRENCES, choose_words, count_pieces, unused_ids
from bertjax.text.tokenizer import (
    BPE,
    BYTE_FALLBACK_BPE,
    OF_WORDS,
    SENTENCEPIECE,
    WORDPIECE,
    Tokenizer,
)
from bertjax.text.unigram import WORD_MARK
from bertjax.text.vocabulary import missing_characters

# At most this share of the new pieces are characters, which have one piece or two.
_CHARACTERS = 0.25


def check_extensible(tokenizer: Tokenizer, origin: str) -> None:
    """Raises InputError if pieces cannot be added to a vocabulary of this kind."""
    if tokenizer.kind == SENTENCEPIECE:
        raise InputError(
            f"{origin} is a SentencePiece .model, to which no pieces can be added: take the "
            "tokenizer.json of its unigram model, or learn another vocabulary"
        )
    if tokenizer.added_tokens:
        raise InputError(
            f"{origin} is a WordPiece with added tokens, whose ids would change: learn another "
            "vocabulary"
        )
    if tokenizer.kind == BYTE_FALLBACK_BPE:
        raise InputError(
            f"{origin} is a BPE with byte fallback, to which no pieces can be added: learn another "
            "vocabulary"
        )
    if tokenizer.kind in OF_WORDS:
        raise InputError(
            f"{origin} is a vocabulary of words, or a BPE of words as GPT's, to which no pieces "
            "can be added: learn another vocabulary"
        )


def extended(
    tokenizer: Tokenizer, texts: Sequence[str], counts: Counter[str], number: int
) -> Tokenizer:
    """The tokenizer with at most `number` more pieces, from a text that has those `counts`."""
    if tokenizer.kind == WORDPIECE:
        limit = int(number * _CHARACTERS)
        characters = missing_characters(texts, tokenizer.library, tokenizer.tokens, limit)
        tokenizer = _with_lines(tokenizer, characters)
        return _with_lines(tokenizer, choose_words(counts, tokenizer, number - len(characters)))
    if tokenizer.kind == BPE:
        return _with_merges(tokenizer, counts, number)
    return _with_scores(tokenizer, counts, number)


def extends(new: Tokenizer, old: Tokenizer) -> bool:
    """Whether a vocabulary is an old one, perhaps with more pieces after those.

    Then an id of the old one means the same in both. Its [unusedN] places may have other pieces.
    """
    unused = set(unused_ids(old))
    return _meaning(new, old.vocabulary_size, unused) == _meaning(old, old.vocabulary_size, unused)


def _meaning(tokenizer: Tokenizer, size: int, unused: set[int]) -> tuple:
    """What decides the ids of a text, of a vocabulary's first pieces, whatever its file's form."""
    used = [None if i in unused else piece for i, piece in enumerate(tokenizer.tokens[:size])]
    same = (tokenizer.kind, tokenizer.cased, used, tokenizer.template)
    if tokenizer.kind == SENTENCEPIECE:
        return same
    description = tokenizer.description()
    model = description.pop("model")
    pieces, rest = model.pop("vocab"), []
    if isinstance(pieces, list):
        added = {token["content"] for token in description["added_tokens"]}
        rest = [score for piece, score in pieces[:size] if piece not in added]
    elif "merges" in model:  # those into later pieces come after all others
        rest = [merge for merge in model.pop("merges") if pieces["".join(merge)] < size]
    return *same, description, model, rest


def _with_lines(tokenizer: Tokenizer, pieces: Sequence[str]) -> Tokenizer:
    before = tokenizer.vocabulary.removesuffix(b"\n")
    lines = [before, *(piece.encode() for piece in pieces), b""]
    return tokenizer.with_vocabulary(b"\n".join(lines))


# --------------------------------------------------------------------------- byte-level BPE


def _with_merges(tokenizer: Tokenizer, counts: Counter[str], number: int) -> Tokenizer:
    description = tokenizer.description()
    model = description["model"]
    # Added tokens after the pieces would be moved by new pieces, if these had their ids.
    model["vocab"] = {piece: each for each, piece in enumerate(tokenizer.tokens)}
    for pair in _learn_merges(tokenizer, counts, number):
        model["merges"].append(list(pair))
        model["vocab"]["".join(pair)] = len(model["vocab"])
    return tokenizer.with_vocabulary(json.dumps(description).encode())


def _learn_merges(tokenizer: Tokenizer, counts: Counter[str], number: int) -> list[tuple[str, str]]:
    """The pairs of pieces that are joined, in this order; equally frequent ones by their names."""
    words = [(word, count) for word, count in counts.items() if count >= MIN_OCCURRENCES]
    split = [
        [token.value for token in tokenizer.library.model.tokenize(spelled(word.encode()))]
        for word, _ in words
    ]
    frequency: Counter[tuple[str, str]] = Counter()
    where: dict[tuple[str, str], set[int]] = {}  # the words in which a pair stood at some time
    for index, (pieces, (_, count)) in enumerate(zip(split, words, strict=True)):
        for pair in pairwise(pieces):
            frequency[pair] += count
            where.setdefault(pair, set()).add(index)
    queue = [(-count, pair) for pair, count in frequency.items()]
    heapq.heapify(queue)
    known = set(tokenizer.tokens)
    merges: list[tuple[str, str]] = []
    while queue and len(merges) < number:
        negative, pair = heapq.heappop(queue)
        if -negative != frequency[pair]:  # an entry from before a change
            continue
        if -negative < MIN_OCCURRENCES:
            break
        joined = "".join(pair)
        if joined in known:
            continue
        known.add(joined)
        merges.append(pair)
        changed = set()
        for index in where[pair]:
            _, count = words[index]
            for old in pairwise(split[index]):
                frequency[old] -= count
                changed.add(old)
            split[index] = _joined(split[index], pair)
            for new in pairwise(split[index]):
                frequency[new] += count
                changed.add(new)
                where.setdefault(new, set()).add(index)
        for each in changed:
            heapq.heappush(queue, (-frequency[each], each))
    return merges


def _joined(pieces: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """The pieces of a word with each occurrence of a pair as one piece, from left to right."""
    found: list[str] = []
    place = 0
    while place < len(pieces):
        is_pair = tuple(pieces[place : place + 2]) == pair
        found.append("".join(pair) if is_pair else pieces[place])
        place += 1 + is_pair
    return found


# ---------------------------------------------------------------------------------- unigram


def _with_scores(tokenizer: Tokenizer, counts: Counter[str], number: int) -> Tokenizer:
    description = tokenizer.description()
    pieces = description["model"]["vocab"]
    # Added tokens after the pieces would be moved by new pieces, if these had their ids.
    pieces += [[token, 0.0] for token in tokenizer.tokens[len(pieces) :]]
    total = count_pieces(counts, tokenizer)
    best = choose_words(counts, tokenizer, len(counts))
    chosen = []
    for word, ids in zip(best, tokenizer.encode(best), strict=True):
        score = math.log(counts[word] / total)
        if score > sum(pieces[each][1] for each in ids):
            chosen.append([WORD_MARK + word, score])
    pieces += chosen[:number]
    return tokenizer.with_vocabulary(json.dumps(description).encode())
