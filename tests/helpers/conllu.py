"""Writes sentences in the form of CoNLL-U."""

from collections.abc import Collection, Sequence


def conllu(
    words: Sequence[str], heads: Sequence[int | str], punctuation: Collection[int] = ()
) -> str:
    """One sentence; `heads` are numbers from 1, and `punctuation` places from 0."""
    rows = ["# sent_id = one"]
    for place, (word, head) in enumerate(zip(words, heads, strict=True)):
        kind = "PUNCT" if place in punctuation else "X"
        rows.append("\t".join([f"{place + 1}", word, word, kind, "_", "_", f"{head}", *"___"]))
    return "\n".join(rows) + "\n\n"
