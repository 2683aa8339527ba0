"""The smallest real run: an easy language, a corpus of it, a model that learns it in seconds."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from configs import pretrain_tiny

REPOSITORY = Path(__file__).resolve().parent.parent

# What an animal is decides every other word of its sentences.
ANIMALS = {
    "cat": ("meow", "fish", "house", "grey", "kitten"),
    "dog": ("woof", "meat", "kennel", "brown", "puppy"),
    "cow": ("moo", "grass", "barn", "white", "calf"),
    "duck": ("quack", "bread", "pond", "green", "duckling"),
    "horse": ("neigh", "hay", "stable", "black", "foal"),
    "sheep": ("baa", "clover", "meadow", "woolly", "lamb"),
}
SENTENCES = (
    "The {animal} says {0} to its friends.",
    "Every {animal} likes to eat {1} in the morning.",
    "You will find the {animal} in the {2} at night.",
    "The colour of this {animal} is {3}.",
    "A young {animal} is called a {4}.",
    "They gave the {animal} some {1} and it said {0}.",
)


def write_text(path: Path, documents: int = 120, seed: int = 0) -> None:
    """Documents of 8 to 20 sentences, each about one animal; a blank line ends a document."""
    rng = random.Random(seed)
    texts = []
    for _ in range(documents):
        animal, words = rng.choice(list(ANIMALS.items()))
        sentences = rng.choices(SENTENCES, k=rng.randint(8, 20))
        texts.append("\n".join(s.format(*words, animal=animal) for s in sentences))
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")


CHANGES = {
    "total_steps": 12,
    "phase_1": {"share": 0.75, "length": 32, "batch_size": 16},
    "phase_2": {"share": 0.25, "length": 64, "batch_size": 8},
    "model": {
        "num_hidden_layers": 1,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
    },
    "optimizer": {"learning_rate": 5e-3, "warmup_steps": 3},
    "intervals": {"log": 2, "evaluate": 5, "checkpoint": 4, "eval_batches": 2},
    "eval_batch_size": 8,
}


def _merge(tree: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return dict(tree) | {
        key: _merge(tree.get(key, {}), value) if isinstance(value, Mapping) else value
        for key, value in changes.items()
    }


def tiny_config(corpus: Path | str, **changes: Any) -> dict[str, Any]:
    """configs/pretrain_tiny.py over `corpus`, made tiny; `changes` as nested dicts."""
    config = pretrain_tiny.get_config().to_dict()
    return _merge(_merge(config, CHANGES | {"corpus": str(corpus)}), changes)


def flags_of(config: Mapping[str, Any], prefix: str = "--config.") -> list[str]:
    """A tiny config as overrides on the command line."""
    flags = []
    for key, value in config.items():
        if isinstance(value, Mapping):
            flags += flags_of(value, f"{prefix}{key}.")
        else:
            flags.append(f"{prefix}{key}={value}")
    return flags


def start(door: str, *arguments: str, devices: int = 1) -> subprocess.Popen:
    """Starts launch/DOOR.py with `devices` simulated devices; its errors are piped."""
    environment = os.environ | {
        "PYTHONPATH": str(REPOSITORY),
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    command = [sys.executable, str(REPOSITORY / "launch" / f"{door}.py"), *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


_TIMING = ("tokens_per_second", "host_wait", "mfu")


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, without what depends on the clock."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in _TIMING} for line in lines]
