"""Writes the vectors of all texts of a file, in shards that an interrupted program goes on with."""

import dataclasses
import hashlib
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.progress import Progress
from bertjax.inference.features.compute import Extractor
from bertjax.inference.features.result import Shards
from bertjax.inference.features.texts import POOLED, read_texts, unit_of
from bertjax.text.pairs import SEPARATOR

# The approximate numbers of tokens and of floats of the result in a shard.
_SHARD_TOKENS, _SHARD_FLOATS = 1 << 18, 1 << 26


def extract(extractor: Extractor, source: str, output: Path) -> None:
    """Does the same as `run`, with a model that is already on the devices."""
    survey = _survey(source, extractor)
    print(f"{source}: {survey}")
    total, pooled = len(survey.lengths), extractor.options.features in POOLED
    streams = extractor.options.streams
    shards = _shard_sizes(survey.lengths, extractor.width, pooled, streams)
    plan = {"input": survey.digest, "model": extractor.identity}
    plan |= dataclasses.asdict(extractor.options)
    with (
        Shards.open(output, len(shards), plan) as folder,
        Progress(
            "Features",
            total,
            " texts",
            initial=sum(
                count for number, count in enumerate(shards) if number in folder and not streams
            ),
        ) as progress,
    ):
        texts, pairs = read_texts(source), _has_pairs(source)
        for number, count in enumerate(shards):
            mine = islice(texts, count)
            if number in folder and not streams:
                deque(mine, maxlen=0)  # skips them
                continue
            encoded = list(extractor.encoder.encode(mine, pairs=pairs))
            vectors = extractor.vectors(encoded, progress)
            if number in folder:  # it was needed for the states after it
                continue
            tokens = [text.tokens for text in encoded if text.tokens is not None]
            folder.write(number, vectors, None if pooled else tokens)
        folder.join()
    print(
        f"{output}: {total:,} texts, vectors of {extractor.width}; "
        f"{extractor.padding:.1%} of the computed tokens were padding"
    )


# ------------------------------------------------------------------------- the survey


class _Survey(NamedTuple):
    """The results of a first pass over the texts."""

    digest: str  # of all texts
    lengths: np.ndarray  # int32 [N], the tokens of each text after the cut
    pairs: int  # the texts "A ||| B" that are pairs
    cut: int  # the texts that are cut
    empty_words: int  # the words without any piece, which get a zero vector

    def __str__(self) -> str:
        text = f"{len(self.lengths):,} texts, {self.lengths.sum():,} tokens"
        if self.pairs:
            text += f"; {self.pairs:,} texts are pairs (A{SEPARATOR}B)"
        if self.cut:
            text += f"; {self.cut:,} texts cut off at the end"
        if self.empty_words:
            text += f"; {self.empty_words:,} words without any piece, whose vectors are zero"
        return text


def _survey(source: str, extractor: Extractor) -> _Survey:
    """Reads and encodes all texts once, so that errors are found before the computation."""
    digest, pairs = hashlib.sha256(), 0

    def hashed() -> Iterator[str]:
        nonlocal pairs
        for text in read_texts(source):
            pairs += has_pairs and SEPARATOR in text
            digest.update(f"{len(text)} {text}".encode())
            yield text

    lengths, cut, empty_words, unit = [], 0, 0, unit_of(source)
    has_pairs = _has_pairs(source)
    with Progress("Reading", None, " texts") as progress:
        encoded = extractor.encoder.encode(hashed(), pairs=has_pairs)
        for number, text in enumerate(encoded, start=1):
            extractor.check(text, f"{source} {unit} {number}")
            lengths.append(len(text.ids))
            cut += text.length > len(text.ids)
            empty_words += text.vectors - len(text.places)
            progress.update()
    if not lengths:
        raise InputError(f"--input={source}: no text in it")
    return _Survey(digest.hexdigest(), np.array(lengths, np.int32), pairs, cut, empty_words)


def _has_pairs(source: str) -> bool:
    """Whether "A ||| B" is a pair: a line is written for this program, a record is a text."""
    return unit_of(source) == "line"


def _shard_sizes(lengths: np.ndarray, width: int, pooled: bool, streams: int) -> list[int]:
    """The number of texts of each shard; a batch of streams is in one shard."""
    limit = _SHARD_TOKENS if pooled else min(_SHARD_TOKENS, _SHARD_FLOATS // width)
    shard = (np.cumsum(lengths, dtype=np.int64) - lengths) // limit
    number = np.arange(len(lengths))
    shard = shard[number - number % max(streams, 1)]
    return np.unique(shard, return_counts=True)[1].tolist()
