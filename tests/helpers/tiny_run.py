"""The smallest real run: an easy language, its corpus, and a model that learns it in seconds."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs import pretrain_tiny
from tests.helpers.built_once import built_once
from tests.helpers.checkout import REPOSITORY
from tests.helpers.xla_flags import xla_flags

SOUNDS = "baa buzz caw cluck coo growl hiss howl meow moo neigh oink quack roar tweet woof".split()


def write_text(path: Path, documents: int = 160, seed: int = 0) -> None:
    """Writes documents that each repeat one word; a blank line ends a document."""
    rng = random.Random(seed)
    texts = []
    for number in range(documents):
        word = SOUNDS[number % len(SOUNDS)]
        sentences = [" ".join([word] * rng.randint(3, 9)) for _ in range(rng.randint(5, 20))]
        texts.append("\n".join(f"{sentence.capitalize()}." for sentence in sentences))
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def corpus_once(name: str, **options: Any) -> Path:
    """A prepared corpus of that text, built once; do not write into it.

    Args:
      name: names it among what is built once.
      options: those of `prepare.run`.
    """
    from bertjax.programs import prepare

    def build(folder: Path) -> None:
        write_text(folder / "text.txt")
        prepare.run(
            [f"text:{folder / 'text.txt'}"], folder / "corpus", held_out=0.1, workers=1, **options
        )

    return built_once(name, build) / "corpus"


def prepared(folder: Path, text: str, **options: Any) -> Path:
    """A corpus of a text, in a folder `corpus`; `options` are those of `prepare.run`."""
    from bertjax.programs import prepare

    folder.mkdir(exist_ok=True)
    (folder / "text.txt").write_text(text, encoding="utf-8")
    asked = {} if "vocabulary" in options else {"learn_vocabulary": 300}
    options = asked | dict(held_out=0.1, workers=1) | options
    prepare.run([f"text:{folder / 'text.txt'}"], folder / "corpus", **options)
    return folder / "corpus"


_TINY = {
    "total_steps": 12,
    "phase_1": {"share": 0.75, "length": 32, "batch_size": 16},
    "phase_2": {"share": 0.25, "length": 64, "batch_size": 8},
    "model": {
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
        # With the paper's 0.02, so narrow a model needs hundreds of steps until its weights grow.
        "initializer_range": 0.15,
    },
    "optimizer": {"learning_rate": 1e-2, "warmup_steps": 3},
    "intervals": {"log": 2, "evaluate": 6, "checkpoint": 5, "eval_batches": 2},
    "eval_batch_size": 8,
}

# Each length is a step and an evaluation to compile.
ONE_LENGTH = {"phase_1": {"share": 1.0}, "phase_2": {"share": 0.0}}


def _merge(tree: Any, changes: Any) -> Any:
    if not isinstance(changes, Mapping):
        return changes
    tree = tree if isinstance(tree, Mapping) else {}  # an objective may be a name, or a section
    return {**tree, **{key: _merge(tree.get(key), value) for key, value in changes.items()}}


def tiny_config(corpus: Path | str, **changes: Any) -> dict[str, Any]:
    """configs/pretrain_tiny.py for `corpus`, made tiny; `changes` are nested dicts."""
    config = pretrain_tiny.get_config().to_dict()
    return _merge(_merge(config, _TINY | {"corpus": str(corpus)}), changes)


def start_pretraining(
    folder: Path,
    config: dict[str, Any],
    run: Path,
    *flags: str,
    devices: int = 1,
    largest_file: int | None = None,
) -> subprocess.Popen:
    """Starts launch/pretrain.py with its output piped.

    Args:
      folder: the folder of the config file.
      devices: the number of simulated devices.
      largest_file: the size in kilobytes above which a write fails.
    """
    file = folder / f"{run.name}_config.py"
    file.write_text(
        f"import ml_collections\n\n\ndef get_config():\n"
        f"    return ml_collections.ConfigDict({config!r})\n"
    )
    limit = largest_file or "unlimited"
    return subprocess.Popen(
        [
            *("bash", "-c", f'ulimit -S -f {limit} && exec "$0" "$@"'),
            *(sys.executable, REPOSITORY / "launch" / "pretrain.py"),
            *(f"--config={file}", f"--workdir={run}", *flags),
        ],
        env=os.environ | {"XLA_FLAGS": xla_flags(devices)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


_TIMING = ("tokens_per_second", "host_wait", "mfu")


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without the values that depend on the clock."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in _TIMING} for line in lines]


def rows_of(run: Path, split: str) -> list[dict[str, Any]]:
    """Those of `metrics_of` that are of "train" or of "heldout"."""
    return [row for row in metrics_of(run) if row["split"] == split]
