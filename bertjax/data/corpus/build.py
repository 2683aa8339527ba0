"""Builds a token store from sources and a tokenizer, with local processes or Apache Beam.

One function, `build_shard`, makes a shard of the plan in bounded memory. Complete shards are kept,
so an interrupted build resumes where it stopped.
"""

import dataclasses
import errno
import functools
import os
import shutil
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.extras import install
from bertjax.base.files import named, read_json, size_in_words
from bertjax.base.validation import record
from bertjax.data.corpus.manifest import write_manifest
from bertjax.data.corpus.plan import Plan, PlannedShard, check_splits, shard_size
from bertjax.data.corpus.sampling import document_hash, is_held_out
from bertjax.data.corpus.shards import (
    HELDOUT,
    SPLITS,
    TRAIN,
    ShardWriter,
    shard_file,
    split_files,
    store_directory,
)
from bertjax.data.corpus.workers import run_jobs, stopping
from bertjax.text.sentences import split_sentences
from bertjax.text.tokenizer import Tokenizer

_BATCH_CHARACTERS = 1 << 19

# The fields of a shard's description, and of the description of each of its splits.
_OF_SHARD = {
    **dict.fromkeys(("source", "dropped_documents", "skipped_documents"), int),
    "fingerprint": str,
    "peak_bytes": int | None,
}
_OF_SPLIT = dict.fromkeys(("documents", "sentences", "tokens", "words", "unknown", "max_id"), int)


# ------------------------------------------------------------------------------ one shard


@dataclasses.dataclass(frozen=True)
class ShardJob:
    """The input of `build_shard`, which can be sent to another process or machine.

    Attributes:
      directory: the corpus folder, which also holds the tokenizer.
      plan: the whole plan without its shards.
      fingerprint: a hash of plan and tokenizer; a finished shard with the same is kept.
    """

    directory: str
    number: int
    shard: PlannedShard
    plan: Plan
    fingerprint: str


_open_tokenizer = functools.lru_cache(maxsize=1)(Tokenizer.open)


def build_shard(job: ShardJob) -> dict[str, Any]:
    """Makes one shard; returns its description: see `bertjax.data.corpus.shards.ShardWriter`."""
    start = time.monotonic()
    tokenizer = _open_tokenizer(job.directory)
    language, pairs = job.plan.splitter(job.shard.source), job.plan.has_pairs(job.shard.source)
    dropped = skipped = 0
    batch: list[tuple[str, int, list[str]]] = []  # split, words, sentences of each document
    characters = 0
    try:
        with (
            named(store_directory(job.directory)),
            ShardWriter(
                job.directory,
                job.number,
                vocabulary_size=tokenizer.vocabulary_size,
                unknown_id=tokenizer.roles.get("unk", -1),
            ) as writer,
        ):
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
    """The sentences of a document; with `spaces`, each but the first begins with its separator."""
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
    """Tokenizes and writes documents; returns how many were dropped because they are too short."""
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
    """Builds the token store of a corpus folder, which holds the tokenizer, with local processes.

    Returns False if every shard was complete before.

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

    Every Beam worker must reach the corpus folder and the sources under the same paths.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise InputError(f"--runner=beam needs Apache Beam: {install('beam')}.") from error
    jobs, _ = _jobs(directory, plan)
    if jobs:
        with beam.Pipeline(options=PipelineOptions(list(options))) as pipeline:
            shards = pipeline | beam.Create(jobs) | beam.Reshuffle()
            _ = shards | beam.Map(build_shard)
    _finish(directory, plan)
    return bool(jobs)


def _jobs(directory: str | os.PathLike, plan: Plan) -> tuple[list[ShardJob], int]:
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
    # A token of two bytes is about five bytes of English text. A compressed source needs more.
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
    longest = 1.5 * shard_size(plan.size)
    uncut = [range_ for shard in plan.shards for range_ in shard.ranges if range_.size > longest]
    if uncut and len(plan.shards) < workers:
        print(
            f"{len(plan.shards)} shards for {workers} workers: {uncut[0].path} cannot be cut (it "
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
        hint="remove it: the same command makes the shard again",
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
    check_splits(plan, documents)
    tokenizer = Tokenizer.open(directory)
    write_manifest(
        directory,
        sources=plan.sources,
        tokenizer_identity=tokenizer.identity,
        vocabulary_size=tokenizer.vocabulary_size,
        held_out=plan.held_out,
        shards=shards,
    )
