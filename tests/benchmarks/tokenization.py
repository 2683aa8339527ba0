"""Megabytes of text a second, file in, ids out, all cores: a corpus build next to `tokenizers`.

  python tests/benchmarks/tokenization.py --text=FILE.txt.xz --vocabulary=vocab.txt [--output=JSON]

The first way is `bertjax.data.corpus.build.build_store`: it starts its processes, reads the file,
splits sentences, tokenizes, and writes a token store with checksums. The second way is the library
alone: it reads the file, encodes the lines on the library's threads, and puts the ids into one
array. So the first way does more, and the ids are the same. The rounds of both are interleaved.
"""

import argparse
import json
import lzma
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as Library

from bertjax.data.corpus.build import build_store, read_shards
from bertjax.data.corpus.plan import make_plan
from bertjax.text.tokenizer import WORDPIECE, Tokenizer
from bertjax.text.wordpiece import bert_wordpiece

# The library gets this many lines at once, which is its best: with 10,000 or all it is slower.
_LINES = 1000


def with_build(text: Path, tokenizer: Tokenizer, folder: Path, workers: int) -> int:
    """Builds a token store; returns its tokens."""
    tokenizer.save(folder)
    plan = make_plan([(f"text:{text}", None)], installed_docs=folder)
    build_store(folder, plan, workers=workers)
    return sum(
        split["tokens"] for shard in read_shards(folder, plan) for split in shard["splits"].values()
    )


def with_library(text: Path, library: Library) -> int:
    """Encodes the lines of a file; returns the number of ids."""
    lines = text.read_bytes().decode().split("\n")
    arrays = []
    for start in range(0, len(lines), _LINES):
        encodings = library.encode_batch_fast(
            lines[start : start + _LINES], add_special_tokens=False
        )
        ids = chain.from_iterable(encoding.ids for encoding in encodings)
        arrays.append(np.fromiter(ids, np.uint32))
    return len(np.concatenate(arrays))


def processor_seconds() -> float:
    """The processor seconds of this process and of its ended children."""
    uses = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def timed(run: Callable[[], int]) -> tuple[float, float, int]:
    """Measures wall seconds and processor seconds, and counts the tokens."""
    wall, processor = time.perf_counter(), processor_seconds()
    tokens = run()
    return time.perf_counter() - wall, processor_seconds() - processor, tokens


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, required=True, help="a text file, perhaps .xz")
    parser.add_argument("--vocabulary", type=Path, required=True, help="a vocab.txt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    arguments = parser.parse_args()

    tokenizer = Tokenizer.open(arguments.vocabulary)
    assert tokenizer.kind == WORDPIECE
    ids = {piece: number for number, piece in enumerate(tokenizer.tokens)}
    library = bert_wordpiece(ids, cased=tokenizer.cased)
    times: dict[str, list[tuple[float, float, int]]] = {"corpus build": [], "tokenizers": []}
    with tempfile.TemporaryDirectory() as folder:
        text = arguments.text
        if text.suffix == ".xz":
            text = Path(folder) / text.stem
            text.write_bytes(lzma.decompress(arguments.text.read_bytes()))
        size = text.stat().st_size
        for number in range(arguments.rounds + 1):
            corpus = Path(folder) / f"corpus{number}"
            corpus.mkdir()
            result = timed(lambda f=corpus: with_build(text, tokenizer, f, arguments.workers))
            reference = timed(lambda: with_library(text, library))
            if number:  # in the first round, all files come from the disk
                times["corpus build"].append(result)
                times["tokenizers"].append(reference)

    load = os.getloadavg()[0]
    print(
        f"{size / 1e6:.1f} MB of {arguments.text.name}, {arguments.workers} processes or threads, "
        f"{arguments.rounds} rounds; load {load:.1f}\n\n"
        "way             tokens  MB/s: median    min    max  processor seconds"
    )
    results = []
    for way, rounds in times.items():
        walls, processors, tokens = zip(*rounds, strict=True)
        speeds = sorted(size / wall / 1e6 for wall in walls)
        results.append(
            {
                "way": way,
                "tokens": tokens[0],
                "megabytes_per_second": statistics.median(speeds),
                "minimum": speeds[0],
                "maximum": speeds[-1],
                "processor_seconds": statistics.median(processors),
            }
        )
        figures = f"{statistics.median(speeds):14.2f} {speeds[0]:6.2f} {speeds[-1]:6.2f}"
        print(f"{way:12} {tokens[0]:9,} {figures} {statistics.median(processors):18.1f}")
    ratio = results[0]["megabytes_per_second"] / results[1]["megabytes_per_second"]
    print(f"\nours is {ratio:.2f} times as fast")
    if arguments.output:
        facts = {
            "text_bytes": size,
            "workers": arguments.workers,
            "rounds": arguments.rounds,
            "load": load,
            "ratio": ratio,
        }
        arguments.output.write_text(json.dumps(facts | {"results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
