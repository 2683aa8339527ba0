"""How often each piece of the vocabulary and each frequent word stand in a corpus."""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from bertjax.corpus.store import TokenStore
from bertjax.text.tokenizer import WORD_MARK, Tokenizer

_MOST = 2**24  # tokens that are counted: enough for a third digit of the loss of guessing by them


def word_frequencies(store: TokenStore, special_ids: Iterable[int]) -> np.ndarray:
    """The share of each piece in the text, as examples show it: float64 [V], of sum 1.

    Each source counts by its share of the examples. Documents are taken at equal distances, until
    there are about 17 million tokens.

    Args:
      special_ids: pieces that do not count, as they are no text.
    """
    every = -(-store.token_count // _MOST)
    total = np.zeros(store.vocabulary_size)
    for source in store.sources:
        chosen = np.arange(source.first_document, source.last_document_exclusive, every)
        starts = store.document_starts[chosen]
        tokens = store.read_spans(starts, store.document_starts[chosen + 1] - starts)
        counts = np.bincount(tokens, minlength=store.vocabulary_size)
        counts[list(special_ids)] = 0
        total += source.share * counts / max(counts.sum(), 1)
    return total / total.sum()


def frequent_words(
    frequencies: np.ndarray, tokenizer: Tokenizer, count: int = 30
) -> dict[str, float]:
    """The most frequent words of a text, by which its language and domain are known.

    A word is a piece of letters that begins a word, in lower case and without the vocabulary's
    mark. Words that are split count by their first piece, so the shares depend little on the
    vocabulary's size and kind.

    Args:
      frequencies: of `word_frequencies`, [V].

    Returns:
      At most `count` words, the most frequent first, each with its share of all such pieces.
    """
    shares: Counter[str] = Counter()
    for number in np.flatnonzero(~tokenizer.continues_word & (frequencies > 0)):
        word = tokenizer.readable[number].lstrip(f"{WORD_MARK} ").lower()
        if word.isalpha():
            shares[word] += float(frequencies[number])
    whole = shares.total()
    return {word: round(share / whole, 5) for word, share in shares.most_common(count)}


def common_share(words: Mapping[str, float], others: Mapping[str, float]) -> float:
    """How much of a text's frequent words another text has as often, 0 to 1.

    Args:
      words, others: of `frequent_words`.
    """
    common = sum(min(share, others.get(word, 0.0)) for word, share in words.items())
    return common / sum(words.values())
