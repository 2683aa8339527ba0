"""The plan of a token store: its sources, cut into shards by their sizes alone."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np

from bertjax.base.errors import InputError
from bertjax.data.corpus.languages import is_parallel, split_language
from bertjax.data.corpus.manifest import FORMAT_VERSION
from bertjax.data.corpus.sampling import document_hash, is_held_out
from bertjax.data.corpus.shards import HELDOUT, SPLITS, TRAIN
from bertjax.data.corpus.source import Document, Range, Skip
from bertjax.data.corpus.sources import open_source
from bertjax.text.sentences import has_rules

# A shard below 4 MiB of text is not worth a task; one above 256 MiB takes too long to repeat after
# an interruption. Between these limits, 16 shards keep one machine evenly busy.
_SHARDS = 16
_SMALLEST_SHARD, _LARGEST_SHARD = 4 << 20, 256 << 20
_MANY_LINES = 3_000  # of a document; an article has some hundreds
_MANY_DOCUMENTS = 10_000


@dataclasses.dataclass(frozen=True)
class PlannedShard:
    """The ranges of one shard, all of source number `source`; the file of its verdicts, or ""."""

    source: int
    ranges: tuple[Range, ...]
    verdicts: str = ""

    @property
    def size(self) -> int:
        """The approximate number of raw bytes."""
        return sum(range_.size for range_ in self.ranges)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a store: its sources, its shards and its settings.

    Attributes:
      sources: (spec, weight) of each source.
      shards: all shards, those of the first source first.
      installed_docs: the file with the text of the source installed-docs.
      held_out: the fraction of documents that go to the split "heldout".
      language: that of the sentence splitter, for sources that name none with rules.
      skip: the documents that are skipped instead of raising.
      filters: identifies the filters of the documents; "" without any.
    """

    sources: tuple[tuple[str, float | None], ...]
    shards: tuple[PlannedShard, ...]
    installed_docs: Path
    held_out: float
    language: str
    skip: Skip
    filters: str = ""

    @property
    def size(self) -> int:
        """The approximate number of raw bytes."""
        return sum(shard.size for shard in self.shards)

    @property
    def identity(self) -> str:
        """A hash of all settings that a shard depends on; the mixing weights are none of them."""
        specs = [spec for spec, _ in self.sources]
        ranges = [
            (number, shard.source, Path(range_.path).name, range_.start, range_.stop, range_.size)
            + ((range_.version,) if range_.version else ())
            for number, shard in enumerate(self.shards)
            for range_ in shard.ranges
        ]
        undecodable = Skip.UNDECODABLE in self.skip
        settings = [self.held_out, self.language, undecodable, FORMAT_VERSION]
        settings += [self.filters] if self.filters else []
        settings += ["nulls"] if Skip.NULLS in self.skip else []
        return hashlib.sha256(json.dumps([specs, ranges, settings]).encode()).hexdigest()

    def splitter(self, source: int) -> str:
        """The language whose rules split the sentences of a source."""
        own_language, _ = split_language(self.sources[source][0])
        return own_language if has_rules(own_language) else self.language

    def has_pairs(self, source: int) -> bool:
        """Whether the documents of a source are pairs, whose two texts are not split."""
        return is_parallel(self.sources[source][0])

    def all_documents(self, shard: PlannedShard) -> Iterator[tuple[str, Document | None]]:
        """The documents of one shard and their files, also removed ones; None: a skipped one."""
        source = open_source(self.sources[shard.source][0], self.installed_docs)
        for range_ in shard.ranges:
            for document in source.documents(range_, self.skip):
                yield range_.path, document

    def documents(self, shard: PlannedShard) -> Iterator[Document | None]:
        """The documents of one shard that are not removed, in order; None as above."""
        if not shard.verdicts:
            yield from (document for _, document in self.all_documents(shard))
            return
        verdicts = np.load(shard.verdicts)
        for (_, document), verdict in zip(self.all_documents(shard), verdicts, strict=True):
            if not verdict:
                yield document


def make_plan(
    sources: Sequence[tuple[str, float | None]],
    *,
    installed_docs: str | os.PathLike,
    held_out: float = 0.01,
    language: str = "en",
    skip: Skip = Skip.NOTHING,
    filters: str = "",
) -> Plan:
    """Cuts the sources, (spec, weight) each, into shards."""
    installed_docs = Path(installed_docs)
    extents = [open_source(spec, installed_docs).extents() for spec, _ in sources]
    target = shard_size(sum(extent.size for source in extents for extent in source))
    shards = [
        PlannedShard(number, ranges)
        for number, source in enumerate(extents)
        for ranges in _packed(
            [range_ for extent in source for range_ in extent.cut(target)], target
        )
    ]
    return Plan(
        tuple(sources),
        tuple(shards),
        installed_docs,
        held_out,
        language,
        skip,
        filters,
    )


def check_documents(plan: Plan) -> None:
    """Checks that each split has a document, by reading at most `_MANY_DOCUMENTS` of them."""
    documents, hashes = dict.fromkeys(SPLITS, 0), set()
    found = filter(None, chain.from_iterable(map(plan.documents, plan.shards)))
    for document in islice(found, _MANY_DOCUMENTS):
        hashes.add(number := document_hash(document))
        documents[HELDOUT if is_held_out(number, plan.held_out) else TRAIN] += 1
        if documents[TRAIN] and (documents[HELDOUT] or not plan.held_out):
            return
    total = sum(documents.values())
    if total == _MANY_DOCUMENTS:
        return
    if len(hashes) == 1 < total:
        raise InputError(
            f"no {'held-out' if documents[TRAIN] else 'training'} document: all {total:,} "
            "documents are equal, and equal ones are in one split: give other text, too"
        )
    check_splits(plan, documents)


def warn_of_missing_blank_lines(plan: Plan) -> None:
    """Prints a warning if the first document of a source text:GLOB has very many lines."""
    for number, (spec, _) in enumerate(plan.sources):
        if not split_language(spec)[1].startswith("text:"):
            continue
        shards = (shard for shard in plan.shards if shard.source == number)
        first = next((text for shard in shards for text in plan.documents(shard) if text), [])
        if len(first) >= _MANY_LINES:
            print(
                f"warning: {spec}: its first document has {len(first):,} lines, because no blank "
                f"line ends it. If each line is a text, write lines:{spec.partition('text:')[2]}; "
                "else put a blank line between documents",
                flush=True,
            )


def check_splits(plan: Plan, documents: dict[str, int]) -> None:
    """Raises InputError if a split that is wanted has no document."""
    if documents[TRAIN] and (documents[HELDOUT] or not plan.held_out):
        return
    total = sum(documents.values())
    hint = "give more text, or a larger --held_out" if documents[TRAIN] else "give more text"
    split = "held-out" if documents[TRAIN] else "training"
    raise InputError(
        f"no {split} document: --held_out={plan.held_out} of {total} documents leaves none: "
        f"{hint}. In text:GLOB a blank line ends a document; if each line is one, write lines:GLOB."
    )


def shard_size(total: int) -> int:
    """The intended size of a shard, in raw bytes, if all sources together have `total` bytes."""
    return min(max(total // _SHARDS, _SMALLEST_SHARD), _LARGEST_SHARD)


def _packed(ranges: Sequence[Range], target: int) -> Iterator[tuple[Range, ...]]:
    """Joins neighbouring ranges into groups of at most `target` bytes."""
    packed: list[Range] = []
    size = 0
    for range_ in ranges:
        if packed and size + range_.size > target:
            yield tuple(packed)
            packed, size = [], 0
        packed.append(range_)
        size += range_.size
    yield tuple(packed)
