"""Builds a token store from sources and a tokenizer, with local processes or Apache Beam.

A plan cuts the sources into shards by their sizes alone. One function, `build_shard`, makes a
shard in bounded memory. Complete shards are kept, so an interrupted build resumes where it stopped.
"""

import dataclasses
import errno
import functools
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import read_json, size_in_words
from bertjax.base.validation import record
from bertjax.corpus.languages import is_parallel, split_language
from bertjax.corpus.manifest import FORMAT_VERSION, write_manifest
from bertjax.corpus.sampling import document_hash, is_held_out
from bertjax.corpus.shards import (
    HELDOUT,
    SPLITS,
    TRAIN,
    ShardWriter,
    shard_file,
    split_files,
    store_directory,
)
from bertjax.corpus.source import Document, Range
from bertjax.corpus.sources import open_source
from bertjax.corpus.workers import run_jobs, stopping
from bertjax.text.sentences import has_rules, split_sentences
from bertjax.text.tokenizer import Tokenizer

# A shard below 4 MiB of text is not worth a task of its own; one above 256 MiB takes too long to
# repeat after an interruption. Between these limits 16 shards keep one machine evenly busy.
_SHARDS = 16
_SMALLEST_SHARD, _LARGEST_SHARD = 4 << 20, 256 << 20
_BATCH_CHARACTERS = 1 << 19
_MANY_LINES = 3_000  # of a document; an article has some hundreds
_MANY_DOCUMENTS = 10_000

# The fields of a shard's description, and of the description of each of its splits.
_OF_SHARD = {
    **dict.fromkeys(("source", "dropped_documents", "skipped_documents"), int),
    "fingerprint": str,
    "peak_bytes": int | None,
}
_OF_SPLIT = dict.fromkeys(("documents", "sentences", "tokens", "words", "unknown", "max_id"), int)


# ------------------------------------------------------------------------------ the plan


@dataclasses.dataclass(frozen=True)
class PlannedShard:
    """The ranges of one shard. They all belong to `source`, an index into the plan's sources.

    Attributes:
      verdicts: the file that says which of its documents are removed (uint8 [documents], 0 if one
        is kept; see `bertjax.corpus.cleaning`); "" if none is.
    """

    source: int
    ranges: tuple[Range, ...]
    verdicts: str = ""

    @property
    def size(self) -> int:
        """The approximate number of raw bytes."""
        return sum(part.size for part in self.ranges)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a store: its sources, its shards and its settings.

    Attributes:
      sources: (spec, weight) of each source.
      shards: all shards, those of the first source first.
      installed_docs: the file with the text of the source installed-docs.
      held_out: the fraction of documents that go to the split "heldout".
      language: the language of the sentence splitter, for sources that name none with rules.
      skip_undecodable: whether documents that are not UTF-8 are skipped instead of raising.
      filters: identifies the filters of the documents; "" without any.
    """

    sources: tuple[tuple[str, float | None], ...]
    shards: tuple[PlannedShard, ...]
    installed_docs: Path
    held_out: float
    language: str
    skip_undecodable: bool
    filters: str = ""

    @property
    def size(self) -> int:
        """The approximate number of raw bytes."""
        return sum(shard.size for shard in self.shards)

    @property
    def identity(self) -> str:
        """A hash of all settings that a shard depends on: if it changes, no shard is reused.

        The mixing weights are not part of it.
        """
        specs = [spec for spec, _ in self.sources]
        parts = [
            (number, shard.source, Path(part.path).name, part.start, part.stop, part.size)
            + ((part.version,) if part.version else ())
            for number, shard in enumerate(self.shards)
            for part in shard.ranges
        ]
        settings = [self.held_out, self.language, self.skip_undecodable, FORMAT_VERSION]
        settings += [self.filters] if self.filters else []
        return hashlib.sha256(json.dumps([specs, parts, settings]).encode()).hexdigest()

    def splitter(self, source: int) -> str:
        """The language whose rules split the sentences of a source."""
        own, _ = split_language(self.sources[source][0])
        return own if has_rules(own) else self.language

    def has_pairs(self, source: int) -> bool:
        """Whether the documents of a source are pairs, whose two texts are not split."""
        return is_parallel(self.sources[source][0])

    def all_documents(self, shard: PlannedShard) -> Iterator[tuple[str, Document | None]]:
        """The documents of one shard, also removed ones, in order, each with its file.

        None stands for a skipped document.
        """
        source = open_source(self.sources[shard.source][0], self.installed_docs)
        for part in shard.ranges:
            for document in source.documents(part, skip_undecodable=self.skip_undecodable):
                yield part.path, document

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
    skip_undecodable: bool = False,
    filters: str = "",
) -> Plan:
    """Cuts the sources into shards.

    Args:
      sources: (spec, weight) of each, as `bertjax.corpus.sources.parse_sources` gives them.
      installed_docs: the file with the text of the source installed-docs, if that is used.
      held_out, language, skip_undecodable, filters: see `Plan`.

    Raises:
      InputError: a source is missing or empty.
    """
    installed_docs = Path(installed_docs)
    extents = [open_source(spec, installed_docs).extents() for spec, _ in sources]
    target = _shard_size(sum(extent.size for source in extents for extent in source))
    shards = [
        PlannedShard(number, ranges)
        for number, source in enumerate(extents)
        for ranges in _packed([part for extent in source for part in extent.cut(target)], target)
    ]
    return Plan(
        tuple(sources),
        tuple(shards),
        installed_docs,
        held_out,
        language,
        skip_undecodable,
        filters,
    )


def check_documents(plan: Plan) -> None:
    """Checks before all work that the sources have a document for each split.

    It reads until each split has one, but at most `_MANY_DOCUMENTS`; with so many it is content.

    Raises:
      InputError: the sources have too few documents; or a damaged one.
    """
    documents = dict.fromkeys(SPLITS, 0)
    for document in islice(chain.from_iterable(map(plan.documents, plan.shards)), _MANY_DOCUMENTS):
        if document:
            held_out = is_held_out(document_hash(document), plan.held_out)
            documents[HELDOUT if held_out else TRAIN] += 1
            if documents[TRAIN] and (documents[HELDOUT] or not plan.held_out):
                return
    if sum(documents.values()) < _MANY_DOCUMENTS:
        _check_splits(plan, documents)


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


def _check_splits(plan: Plan, documents: dict[str, int]) -> None:
    """Raises InputError if a split that is wanted has no document."""
    if documents[TRAIN] and (documents[HELDOUT] or not plan.held_out):
        return
    total = sum(documents.values())
    cure = "give more text, or a larger --held_out" if documents[TRAIN] else "give more text"
    split = "held-out" if documents[TRAIN] else "training"
    raise InputError(
        f"no {split} document: --held_out={plan.held_out} of {total} documents leaves none: "
        f"{cure}. In text:GLOB a blank line ends a document; if each line is one, write lines:GLOB."
    )


def _shard_size(total: int) -> int:
    """The intended size of a shard, in raw bytes, if all sources together have `total` bytes."""
    return min(max(total // _SHARDS, _SMALLEST_SHARD), _LARGEST_SHARD)


def _packed(ranges: Sequence[Range], target: int) -> Iterator[tuple[Range, ...]]:
    """Joins neighbouring ranges into groups of at most `target` bytes."""
    packed: list[Range] = []
    size = 0
    for part in ranges:
        if packed and size + part.size > target:
            yield tuple(packed)
            packed, size = [], 0
        packed.append(part)
        size += part.size
    yield tuple(packed)


# ------------------------------------------------------------------------------ one shard


@dataclasses.dataclass(frozen=True)
class ShardJob:
    """The input of `build_shard`, which can be sent to another process or machine.

    Attributes:
      directory: the corpus folder, which also holds the tokenizer.
      number: the shard's number.
      shard: the shard's ranges.
      plan: the whole plan without its shards.
      fingerprint: a hash of plan and tokenizer, which tells whether a finished shard can be kept.
    """

    directory: str
    number: int
    shard: PlannedShard
    plan: Plan
    fingerprint: str


_open_tokenizer = functools.lru_cache(maxsize=1)(Tokenizer.open)


def build_shard(job: ShardJob) -> dict[str, Any]:
    """Makes one shard and returns its description (see `bertjax.corpus.shards.ShardWriter`)."""
    start = time.monotonic()
    tokenizer = _open_tokenizer(job.directory)
    language, pairs = job.plan.splitter(job.shard.source), job.plan.has_pairs(job.shard.source)
    dropped = skipped = 0
    batch: list[tuple[str, int, list[str]]] = []  # split, words, sentences of each document
    characters = 0
    try:
        with ShardWriter(
            job.directory,
            job.number,
            vocabulary_size=tokenizer.vocabulary_size,
            unknown_id=tokenizer.unk_id,
        ) as writer:
            for document in job.plan.documents(job.shard):
                if document is None:
                    skipped += 1
                    continue
                held_out = is_held_out(document_hash(document), job.plan.held_out)
                sentences = document
                if not pairs:
                    sentences = _sentences(document, language, spaces=tokenizer.keeps_spaces)
                words = sum(len(paragraph.split()) for paragraph in document)
                batch.append((HELDOUT if held_out else TRAIN, words, sentences))
                characters += sum(map(len, document))
                if characters >= _BATCH_CHARACTERS:
                    dropped += _write(batch, tokenizer, writer, pairs)
                    batch, characters = [], 0
                    if stopping():
                        raise InterruptedError(f"shard {job.number}: stopped")
            dropped += _write(batch, tokenizer, writer, pairs)
            return writer.finish(
                source=job.shard.source,
                fingerprint=job.fingerprint,
                dropped_documents=dropped,
                skipped_documents=skipped,
                seconds=round(time.monotonic() - start, 3),
                peak_bytes=_peak_memory(),
            )
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"{store_directory(job.directory)}: no space left on the device for shard "
                f"{job.number}: free some space and run again (complete shards are kept)."
            ) from error
        raise


def _sentences(document: list[str], language: str, *, spaces: bool) -> list[str]:
    """The sentences of a document, whose paragraphs are given.

    With `spaces`, each sentence but the first begins with the character that separates it from the
    one before: a space in a paragraph, a line feed between paragraphs. Then the ids of all
    sentences, one after another, are those of the document's text.
    """
    sentences: list[str] = []
    for paragraph in document:
        separator = "\n"
        for sentence in split_sentences(paragraph, language):
            sentences.append(separator + sentence if spaces and sentences else sentence)
            separator = " "
    return sentences


def _write(
    batch: list[tuple[str, int, list[str]]],
    tokenizer: Tokenizer,
    writer: ShardWriter,
    pairs: bool,
) -> int:
    """Tokenizes and writes documents; returns how many were dropped because they are too short.

    With `pairs`, one with an empty text is too short.
    """
    ids = iter(tokenizer.encode([text for _, _, sentences in batch for text in sentences]))
    dropped = 0
    for split, words, sentences in batch:
        encoded = [sentence for sentence in (next(ids) for _ in sentences) if sentence]
        lengths = np.array([len(sentence) for sentence in encoded], np.int64)
        total = int(lengths.sum())
        if total < 2 or (pairs and len(encoded) < 2):
            dropped += 1
            continue
        tokens = np.fromiter(chain.from_iterable(encoded), np.uint32, total)
        writer.add(split, tokens, lengths, words)
    return dropped


def _peak_memory() -> int | None:
    """The largest resident memory of this process so far, in bytes; None except on Linux."""
    # getrusage is wrong here: after a spawn it still counts the parent's memory.
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


# ------------------------------------------------------------------------------ all shards


def build_store(directory: str | os.PathLike, plan: Plan, *, workers: int) -> bool:
    """Builds the token store of a corpus folder with local processes.

    Args:
      directory: the corpus folder; it holds the tokenizer (`Tokenizer.save`).
      plan: what to build.
      workers: the number of processes.

    Returns:
      False if every shard was complete before.

    Raises:
      InputError: bad text (raised in a worker), a full disk, an empty source or split.
    """
    jobs, done = _jobs(directory, plan)
    if jobs:
        _check_space(directory, jobs)
        _hint_at_splitting(plan, workers)
        run_jobs(
            build_shard,
            jobs,
            [job.shard.size for job in jobs],
            workers=workers,
            description="building the token store",
            done=done,
        )
    _finish(directory, plan)
    return bool(jobs)


def build_store_with_beam(
    directory: str | os.PathLike, plan: Plan, *, options: Sequence[str] = ()
) -> bool:
    """Builds the token store with Apache Beam, on the runner that `options` name.

    Otherwise it is like `build_store`. Every Beam worker must reach the corpus folder and the
    sources under the same paths.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise InputError("--runner=beam needs Apache Beam: pip install 'bertjax[beam]'.") from error
    jobs, _ = _jobs(directory, plan)
    if jobs:
        with beam.Pipeline(options=PipelineOptions(list(options))) as pipeline:
            shards = pipeline | beam.Create(jobs) | beam.Reshuffle()
            _ = shards | beam.Map(build_shard)
    _finish(directory, plan)
    return bool(jobs)


def _jobs(directory: str | os.PathLike, plan: Plan) -> tuple[list[ShardJob], int]:
    """The remaining jobs, and how many bytes of the sources are done."""
    tokenizer = Tokenizer.open(directory)
    fingerprint = f"{plan.identity} {tokenizer.identity}"
    store = store_directory(directory)
    store.mkdir(parents=True, exist_ok=True)
    for leftover in store.glob(".*.tmp"):
        leftover.unlink()
    without_shards = dataclasses.replace(plan, shards=())
    jobs = [
        ShardJob(os.fspath(directory), number, shard, without_shards, fingerprint)
        for number, shard in enumerate(plan.shards)
        if not _is_whole(directory, number, shard.source, fingerprint)
    ]
    return jobs, plan.size - sum(job.shard.size for job in jobs)


def _is_whole(directory: str | os.PathLike, number: int, source: int, fingerprint: str) -> bool:
    path = shard_file(directory, number)
    if not path.exists():
        return False
    shard = _read_description(directory, number)
    files = {
        path.with_name(name): shard["splits"][split]["files"][name]["bytes"]
        for split in SPLITS
        for name in split_files(split, number).values()
    }
    return (shard["fingerprint"], shard["source"]) == (fingerprint, source) and all(
        file.exists() and file.stat().st_size == size for file, size in files.items()
    )


def _check_space(directory: str | os.PathLike, jobs: Sequence[ShardJob]) -> None:
    # A token of two bytes stands for about five bytes of English text. A compressed source needs
    # more than this.
    needed = 0.3 * sum(job.shard.size for job in jobs)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise InputError(
            f"{directory}: {size_in_words(free)} free on this device, but the store needs at least "
            f"{size_in_words(needed)}: free some space or choose another --output."
        )


def _hint_at_splitting(plan: Plan, workers: int) -> None:
    """Prints a hint if processes stay idle because a large file cannot be cut into shards."""
    # `Extent.cut` rounds to the nearest number of pieces, so no piece exceeds 1.5 times its target.
    longest = 1.5 * _shard_size(plan.size)
    whole = [part for shard in plan.shards for part in shard.ranges if part.size > longest]
    if whole and len(plan.shards) < workers:
        print(
            f"{len(plan.shards)} shards for {workers} workers: {whole[0].path} cannot be cut (it "
            "is compressed, or one Parquet row group): split the file for parallel work.",
            flush=True,
        )


def read_shards(directory: str | os.PathLike, plan: Plan) -> list[dict[str, Any]]:
    """The descriptions of a built store's shards."""
    return [_read_description(directory, number) for number in range(len(plan.shards))]


def _read_description(directory: str | os.PathLike, number: int) -> dict[str, Any]:
    """Reads what `ShardWriter.finish` wrote."""
    splits = {}
    for split in SPLITS:
        names = split_files(split, number).values()
        files = record(**dict.fromkeys(names, record(bytes=int, sha256=str)))
        splits[split] = record(**_OF_SPLIT, files=files)
    return read_json(
        shard_file(directory, number),
        record(**_OF_SHARD, splits=record(**splits)),
        cure="remove it: the same command makes the shard again",
    )


def _finish(directory: str | os.PathLike, plan: Plan) -> None:
    """Writes the manifest, unless a source or a split is empty."""
    shards = read_shards(directory, plan)
    documents = dict.fromkeys(SPLITS, 0)
    by_source, dropped = ([0] * len(plan.sources) for _ in range(2))
    for shard in shards:
        dropped[shard["source"]] += shard["dropped_documents"]
        for split in SPLITS:
            count = shard["splits"][split]["documents"]
            documents[split] += count
            by_source[shard["source"]] += count
    for (spec, _), count, shorter in zip(plan.sources, by_source, dropped, strict=True):
        if not count:
            raise InputError(
                f"--source={spec}: no document with two tokens or more in it; {shorter:,} have "
                "fewer."
            )
    _check_splits(plan, documents)
    tokenizer = Tokenizer.open(directory)
    write_manifest(
        directory,
        sources=plan.sources,
        tokenizer_identity=tokenizer.identity,
        vocabulary_size=tokenizer.vocabulary_size,
        held_out=plan.held_out,
        shards=shards,
    )
