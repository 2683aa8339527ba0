"""The text of a plan from which a vocabulary is learned, in bounded memory."""

import dataclasses
from collections.abc import Iterator
from itertools import cycle

from bertjax.base.progress import Progress
from bertjax.data.corpus.languages import language_shares, split_language, table
from bertjax.data.corpus.plan import Plan
from bertjax.data.corpus.sampling import sample_documents

# At most this multiple of the sample is read, to choose the sample from it.
_READ_PER_SAMPLED = 8


def vocabulary_sample(plan: Plan, most: int, alpha: float = 1.0) -> list[str]:
    """The sample of training text from which a vocabulary is learned, about `most` bytes.

    With alpha below 1 each language has its share of the bytes (`language_shares`); the documents
    of one that has not so much text are repeated.
    """
    if alpha == 1.0:
        return _sample(plan, most)
    languages = [split_language(spec)[0] for spec, _ in plan.sources]
    sizes = [0] * len(languages)
    for shard in plan.shards:
        sizes[shard.source] += shard.size
    shares = language_shares(languages, sizes, alpha)
    print(table(languages, sizes, shares), flush=True)
    texts: list[str] = []
    for language in dict.fromkeys(languages):
        of_language = [number for number, each in enumerate(languages) if each == language]
        shards = tuple(shard for shard in plan.shards if shard.source in of_language)
        language_plan = dataclasses.replace(plan, shards=shards)
        share = sum(shares[number] for number in of_language)
        bytes_left = round(share * min(most, plan.size))
        found = _sample(language_plan, bytes_left)
        for text in cycle(found):
            texts.append(text)
            bytes_left -= len(text.encode())
            if bytes_left <= 0:
                break
    return texts


def _sample(plan: Plan, most: int) -> list[str]:
    documents = spread_documents(plan, most * _READ_PER_SAMPLED)
    return sample_documents(documents, held_out=plan.held_out, max_bytes=most)


def spread_documents(plan: Plan, most: int) -> Iterator[list[str] | None]:
    """Yields documents of every n-th shard of each source, about `most` bytes of text together."""
    every = max(1, plan.size // most)
    of_source: dict[int, list] = {}
    for shard in plan.shards:
        of_source.setdefault(shard.source, []).append(shard)
    chosen = [shard for shards in of_source.values() for shard in shards[::every]]
    total = sum(shard.size for shard in chosen)
    with Progress("reading a sample for the vocabulary", total, "B", scale=True) as progress:
        for shard in chosen:
            # A compressed shard has more text than its size says, so it may not be read to its end.
            left = most * shard.size / total
            for document in plan.documents(shard):
                progress.update(0)  # a shard may have millions of documents
                yield document
                left -= sum(len(paragraph.encode()) for paragraph in document or ())
                if left <= 0:
                    break
            progress.update(shard.size)
