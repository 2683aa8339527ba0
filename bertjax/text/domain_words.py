"""Puts whole words of a new domain into the [unusedN] places of a WordPiece vocabulary.

BERT's vocabularies keep these places free for this purpose (google-research/bert, README: "you can
just replace the [unusedX] tokens with your vocabulary"). No other piece changes its id, so weights
that were trained with the old vocabulary can be trained further with the new one.
"""

import re
from collections import Counter
from collections.abc import Iterable

from bertjax.text.tokenizer import Tokenizer, bert_wordpiece

_UNUSED = re.compile(r"\[unused\d+\]")

_MIN_OCCURRENCES = 3


def unused_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids of the [unusedN] pieces, ascending."""
    return [number for number, piece in enumerate(tokenizer.tokens) if _UNUSED.fullmatch(piece)]


def count_words(texts: Iterable[str], tokenizer: Tokenizer) -> Counter[str]:
    """Counts the words of `texts`, which are normalized and split as WordPiece does it."""
    library = bert_wordpiece(
        None,
        cased=tokenizer.cased,
        strip_accents=tokenizer.strip_accents,
        tokenize_chinese_chars=tokenizer.tokenize_chinese_chars,
    )
    # A newline or a space always ends a word. Each distinct string between them is split only once.
    strings = Counter[str]()
    for text in texts:
        strings.update(text.replace("\n", " ").split(" "))
    words = Counter[str]()
    for string, count in strings.items():
        normalized = library.normalizer.normalize_str(string)
        for word, _ in library.pre_tokenizer.pre_tokenize_str(normalized):
            words[word] += count
    return words


def choose_words(counts: Counter[str], tokenizer: Tokenizer, number: int) -> list[str]:
    """Chooses the words that save the most pieces if they become pieces themselves, best first.

    A word of k > 1 pieces saves k - 1 pieces at each occurrence; equal words are in alphabetical
    order. It chooses only words that consist of letters and occur at least three times, so the
    result may be shorter than `number`.
    """
    words = [w for w, count in counts.items() if count >= _MIN_OCCURRENCES and w.isalpha()]
    saved = {
        word: counts[word] * (len(ids) - 1)
        for word, ids in zip(words, tokenizer.encode(words), strict=True)
        if len(ids) > 1
    }
    return sorted(saved, key=lambda word: (-saved[word], word))[:number]


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
    return Tokenizer(
        tokenizer.kind,
        b"\n".join(lines),
        "the vocabulary with domain words",
        cased=tokenizer.cased,
        strip_accents=tokenizer.strip_accents,
        tokenize_chinese_chars=tokenizer.tokenize_chinese_chars,
    )
