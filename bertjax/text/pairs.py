"""One or two texts as a sequence of a limited length, in the tokenizer's template."""

from bertjax.text.template import TokenSequence
from bertjax.text.tokenizer import Tokenizer

SEPARATOR = " ||| "  # between two texts on a line, as in google-research/bert extract_features.py


def joined(
    tokenizer: Tokenizer, a: list[int], b: list[int] | None, max_length: int
) -> TokenSequence:
    """A sequence of at most `max_length` tokens, which has room for its special tokens."""
    return tokenizer.template.sequence(*fitting(tokenizer, a, b, max_length))


def fitting(
    tokenizer: Tokenizer, a: list[int], b: list[int] | None, max_length: int
) -> list[list[int]]:
    """The beginnings of one or two texts that are in their sequence: see `joined`."""
    halves = [a] if b is None else [a, b]
    room = max_length - tokenizer.template.specials(pair=b is not None)
    kept = kept_lengths([len(half) for half in halves], room)
    return [half[:count] for half, count in zip(halves, kept, strict=True)]


def kept_lengths(lengths: list[int], room: int) -> list[int]:
    """The tokens of each text that fit: the longer is cut first (BERT's `_truncate_seq_pair`)."""
    kept = list(lengths)
    while sum(kept) > room:
        longer = 0 if len(kept) == 1 or kept[0] > kept[1] else 1
        kept[longer] -= 1
    return kept
