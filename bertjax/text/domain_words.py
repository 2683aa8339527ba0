"""Puts whole words of a new domain into the [unusedN] places of a WordPiece vocabulary.

BERT's vocabularies keep these places free for this purpose (google-research/bert, README: "you can
just replace the [unusedX] tokens with your vocabulary"). No other piece changes its id, so weights
that were trained with the old vocabulary can be trained further with the new one.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

from bertjax.text.tokenizer import Tokenizer

MIN_OCCURRENCES = 3  # what is rarer becomes no piece
_UNUSED = re.compile(r"\[unused\d+\]")


def unused_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids of the [unusedN] pieces, ascending."""
    return [number for number, piece in enumerate(tokenizer.tokens) if _UNUSED.fullmatch(piece)]


def count_words(texts: Iterable[str], tokenizer: Tokenizer) -> Counter[str]:
    """Counts words as the tokenizer has them, with the space before them if it keeps spaces."""
    library = tokenizer.library
    # A newline or a space always ends a word. Each distinct string between them is split only once.
    strings = Counter[str]()
    for text in texts:
        strings.update(text.replace("\n", " ").split(" "))
    del strings[""]
    space = " " if tokenizer.keeps_spaces else ""
    words = Counter[str]()
    for string, count in strings.items():
        normalized = space + string
        if library.normalizer:
            normalized = library.normalizer.normalize_str(normalized)
        for _, (start, end) in library.pre_tokenizer.pre_tokenize_str(normalized):
            words[normalized[start:end]] += count
    return words


def choose_words(counts: Counter[str], tokenizer: Tokenizer, number: int) -> list[str]:
    """Chooses the words that save the most pieces if they become pieces themselves, best first.

    A word of k > 1 pieces saves k - 1 pieces at each occurrence; equal words are in alphabetical
    order. Only words of letters, with their marks, that occur at least three times are chosen, so
    there may be fewer than `number`.
    """
    words = [w for w, count in counts.items() if count >= MIN_OCCURRENCES and _is_letters(w)]
    saved = {
        word: counts[word] * (len(ids) - 1)
        for word, ids in zip(words, tokenizer.encode(words), strict=True)
        if len(ids) > 1
    }
    return sorted(saved, key=lambda word: (-saved[word], word))[:number]


def _is_letters(word: str) -> bool:
    return word[:1].isalpha() and all(unicodedata.category(each)[0] in "LM" for each in word)


def count_pieces(counts: Counter[str], tokenizer: Tokenizer) -> int:
    """The number of pieces of all counted words together."""
    encoded = tokenizer.encode(list(counts))
    return sum(n * len(ids) for n, ids in zip(counts.values(), encoded, strict=True))


def with_words(tokenizer: Tokenizer, words: list[str]) -> Tokenizer:
    """The tokenizer with `words` in its first [unusedN] places, which must be enough."""
    lines = tokenizer.vocabulary.split(b"\n")
    places = unused_ids(tokenizer)[: len(words)]
    for place, word in zip(places, words, strict=True):
        lines[place] = lines[place].replace(tokenizer.tokens[place].encode(), word.encode())
    return tokenizer.with_vocabulary(b"\n".join(lines))
