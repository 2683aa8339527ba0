"""Joins one or two texts to one sequence: [CLS] A [SEP] or [CLS] A [SEP] B [SEP] (section 3)."""

from bertjax.text.tokenizer import Tokenizer

SEPARATOR = " ||| "  # between two texts on a line, as in google-research/bert extract_features.py


def joined(
    tokenizer: Tokenizer, a: list[int], b: list[int] | None, max_length: int
) -> tuple[list[int], int]:
    """The ids of a sequence of at most `max_length`, and how many of them are in segment 0."""
    halves = [a] if b is None else [a, b]
    kept = kept_lengths([len(half) for half in halves], max_length - 1 - len(halves))
    ids = [tokenizer.cls_id]
    for half, count in zip(halves, kept, strict=True):
        ids += [*half[:count], tokenizer.sep_id]
    return ids, 2 + kept[0]


def kept_lengths(lengths: list[int], room: int) -> list[int]:
    """How many tokens of one or two texts fit, if the longer text is cut at its end first.

    It follows `_truncate_seq_pair` in google-research/bert `run_classifier.py`.
    """
    kept = list(lengths)
    while sum(kept) > room:
        longer = 0 if len(kept) == 1 or kept[0] > kept[1] else 1
        kept[longer] -= 1
    return kept
