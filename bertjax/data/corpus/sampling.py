"""Decides by a document's hash whether it is held out and whether the vocabulary sample has it.

The answer for a document is the same in every corpus, on every machine, in any order.
"""

import hashlib
import heapq
from collections.abc import Iterable

_WHOLE = 1 << 64


def document_hash(paragraphs: list[str]) -> int:
    """A uniform number in 0..2^64-1: the first 8 bytes of BLAKE2b over the document's text."""
    text = "\n".join(paragraphs).encode("utf-8")
    return int.from_bytes(hashlib.blake2b(text).digest()[:8], "big")


def is_held_out(number: int, fraction: float) -> bool:
    """Whether the document with hash `number` belongs to the held-out `fraction`."""
    return number < fraction * _WHOLE


def sample_documents(
    documents: Iterable[list[str] | None], *, held_out: float, max_bytes: int
) -> list[str]:
    """A uniform sample of the documents that are not held out, in bounded memory.

    It has the documents with the smallest hashes, in this order, as many as fit into `max_bytes` of
    UTF-8; each paragraph is a line.
    """
    kept: list[tuple[int, bytes]] = []  # a heap, largest hash first
    size = 0
    for paragraphs in documents:
        if not paragraphs:
            continue
        number = document_hash(paragraphs)
        if is_held_out(number, held_out) or (size >= max_bytes and number >= -kept[0][0]):
            continue
        text = "\n".join(paragraphs).encode("utf-8")
        heapq.heappush(kept, (-number, text))
        size += len(text)
        while size > max_bytes and len(kept) > 1:
            size -= len(heapq.heappop(kept)[1])
    return [text.decode("utf-8") for _, text in sorted(kept, reverse=True)]
