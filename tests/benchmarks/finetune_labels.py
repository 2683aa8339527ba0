"""Scores and seconds of fine-tuning on many labels, next to transformers (PyTorch).

  python tests/benchmarks/finetune_labels.py --data=DATA --weights=FOLDER \\
    --tasks=banking77,goemotions --seeds=3 --train=3000 --output=finetune_labels.json

DATA has two folders of tables:

  banking77/   train.csv, test.csv (text, category): one of 77 intents. It has no dev set; its test
               set is in the place of that
  goemotions/  train.tsv, dev.tsv (text, numbers of labels with commas between them, id; no header)
               and labels.txt: any of 28 emotions. Its thresholds are tuned on dev

The examples are shuffled, always in the same way, and `--train=N` trains on the first N. Examples
of dev with labels that are not among those are left out. For all else see `finetune.py`.

It needs the extra `peers`.
"""

import argparse
import json
import random
import sys
from pathlib import Path
from typing import Any

import finetune

from bertjax.tasks import official_files
from bertjax.tasks.rows import read_rows

Row = dict[str, Any]  # "text" and "label", a text or a list


def banking77(data: Path, split: str) -> list[Row]:
    """The rows of a split."""
    rows = read_rows(data / "banking77", {"train": "train.csv", "dev": "test.csv"}[split])
    return [{"text": row.text("text"), "label": row.text("category")} for row in rows]


def goemotions(data: Path, split: str) -> list[Row]:
    """The rows of a split."""
    folder = data / "goemotions"
    names = list(official_files.lines(folder, "labels.txt"))
    lines = (line.split("\t") for line in official_files.lines(folder, f"{split}.tsv"))
    return [{"text": a, "label": [names[int(i)] for i in ids.split(",")]} for a, ids, _ in lines]


TASKS = {
    "banking77": (banking77, "classification"),
    "goemotions": (goemotions, "multi_label"),
}


def config_of(task: str, arguments: argparse.Namespace) -> Any:
    """The recipe of a task, whose tables are written into the folder of the runs."""
    if task not in TASKS:
        sys.exit(f"--tasks: {task!r} is none of {', '.join(TASKS)}")
    read, problem = TASKS[task]
    train, dev = (read(Path(arguments.data), split) for split in ("train", "dev"))
    random.Random(0).shuffle(train)
    train = train[: arguments.train]
    known = set().union(*map(_labels, train))
    folder = arguments.work.resolve() / f"{task}-data"
    folder.mkdir(exist_ok=True)
    for split, rows in (("train", train), ("dev", [row for row in dev if _labels(row) <= known])):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    config = finetune.common_config(arguments)
    config.data, config.task = str(folder), dict(kind="table", problem=problem)
    return config


def _labels(row: Row) -> set[str]:
    return set(row["label"]) if isinstance(row["label"], list) else {row["label"]}


if __name__ == "__main__":
    finetune.main(__doc__, config_of)
