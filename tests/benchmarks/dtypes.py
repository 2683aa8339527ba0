"""Losses and scores of fine-tuning in float32 and in bfloat16, from the same weights and seeds.

  python tests/benchmarks/dtypes.py --data=DATA --weights=FOLDER --output=dtypes.json

DATA has sick/ and glue/STS-B/. Both dtypes have the same recipe and, in each seed, the same
batches and the same new parameters. Each task has one epoch of its first examples:

  SICK              pairs of sentences, as entailment, contradiction or neither: accuracy on its 500
                    pairs of development
  STS-B             how alike two sentences are: Spearman's correlation on GLUE's dev set
  vectors of STS-B  contrastive training by CoSENT, sentences of 32 tokens: the same on its test set

The loss is the mean over the second half of the updates. Results in the output are not computed
again: further seeds are added to it.
"""

import argparse
import json
import shutil
import statistics
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from report import started

from bertjax.base.files import write_json
from bertjax.config import finetune_config, similarity_config
from bertjax.programs.finetune import run
from bertjax.tasks import official_files
from bertjax.training.metrics_log import read_metrics

DTYPES = ("float32", "bfloat16")
VECTORS = "vectors of STS-B"
TRAIN = {"SICK": 1_200, "STS-B": 1_200, VECTORS: 800}  # examples to learn from
RECIPE = dict(batch_size=16, learning_rate=1e-4)

Result = dict[str, Any]  # "loss", and the scores by name


def sick(data: Path, folder: Path) -> Any:
    """The config, whose data is written into an empty folder."""
    for split, name in (("train", "SICK_train.txt"), ("dev", "SICK_trial.txt")):
        _copy(data / "sick", name, folder / f"{split}.tsv", TRAIN["SICK"])
    config = _fine_tuning(folder)
    texts = dict(text="sentence_A", text_b="sentence_B", label="entailment_judgment")
    config.task = dict(kind="table", problem="classification", **texts)
    return config


def sts(data: Path, folder: Path) -> Any:
    """The same."""
    (folder / "STS-B").mkdir()
    for split, most in (("train", TRAIN["STS-B"]), ("dev", None)):
        name = f"{split}.tsv"
        _copy(data / "glue" / "STS-B", name, folder / "STS-B" / name, most)
    config = _fine_tuning(folder)
    config.task = dict(kind="glue", name="STS-B")
    return config


def _copy(source: Path, name: str, target: Path, most: int | None) -> None:
    """Copies a table's heading and first rows."""
    lines = islice(official_files.lines(source, name), most and 1 + most)
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _fine_tuning(folder: Path) -> Any:
    config = finetune_config()
    config.data = str(folder)
    config.grid.update({name: (value,) for name, value in RECIPE.items()}, epochs=(1,))
    config.buckets = 3
    config.intervals.log = 1
    return config


def vectors(data: Path, folder: Path) -> Any:
    """The same of contrastive training."""
    lines = islice(official_files.lines(data / "glue" / "STS-B", "train.tsv"), 1, None)
    with open(folder / "train.jsonl", "w", encoding="utf-8") as file:
        for line in islice(lines, TRAIN[VECTORS]):
            *_, query, passage, score = line.split("\t")
            row = dict(query=query, passage=passage, score=float(score) / 5)
            file.write(f"{json.dumps(row)}\n")
    config = similarity_config("cosent")
    config.data = str(folder)
    config.dev = f"similarity:benchmark:{data}/glue/STS-B/sts-test.tsv.xz"
    config.batch_size = RECIPE["batch_size"]
    config.optimizer.learning_rate = RECIPE["learning_rate"]
    config.task.update(query_length=32, passage_length=32)
    config.fixed_lengths = True
    config.intervals = dict(log=1, evaluate=100_000, checkpoint=100_000)
    return config


# Of each task, what makes its config, and the score that counts.
WAYS = {"SICK": (sick, "accuracy"), "STS-B": (sts, "spearman"), VECTORS: (vectors, "spearman")}


def trained(task: str, dtype: str, seed: int, arguments: argparse.Namespace) -> Result:
    """Trains and scores in this process."""
    make, metric = WAYS[task]
    workdir = arguments.work / f"{task}-{dtype}-{seed}"
    shutil.rmtree(workdir, ignore_errors=True)
    (workdir / "data").mkdir(parents=True)
    config = make(arguments.data, workdir / "data")
    config.init_from = f"hf:{arguments.weights}"
    config.seed = seed
    config.model.compute_dtype = dtype
    workdir = workdir / "run"
    if code := run(config, str(workdir)):
        sys.exit(code)
    rows = read_metrics(workdir)
    losses = [row["loss"] for row in rows if row["split"] == "train"]
    (scores,) = json.loads((workdir / "results.json").read_text(encoding="utf-8"))["dev"].values()
    return {
        "updates": len(losses),
        "loss": statistics.mean(losses[len(losses) // 2 :]),
        metric: scores[metric],
    }


def table(tasks: dict[str, Any]) -> str:
    """A line for each task and dtype, with the figures of all seeds."""
    lines = []
    for task, results in tasks.items():
        for dtype, seeds in results.items():
            runs = list(seeds.values())
            figures = (
                f"{name} {', '.join(f'{run[name]:.4g}' for run in runs)}" for name in runs[0]
            )
            lines.append(f"{task:16} {dtype:9} {'; '.join(figures)}")
    return "\n".join(lines)


def main() -> None:
    """Runs what the flags say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", required=True, help="a folder of transformers")
    parser.add_argument("--tasks", default=",".join(WAYS), help="some of these: " + ", ".join(WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path("dtypes_work"))
    parser.add_argument("--output", type=Path, default=Path("dtypes.json"))
    arguments = parser.parse_args()
    arguments.data, arguments.work = arguments.data.resolve(), arguments.work.resolve()
    new = {"weights": Path(arguments.weights).name, "recipe": RECIPE, "train": TRAIN, "tasks": {}}
    report = started(arguments.output, ("jax", "flax", "optax"), **new)
    for task in arguments.tasks.split(","):
        results = report["tasks"].setdefault(task, {dtype: {} for dtype in DTYPES})
        for seed in map(str, range(arguments.seeds)):
            for dtype in DTYPES:
                if seed not in results[dtype]:
                    results[dtype][seed] = trained(task, dtype, int(seed), arguments)
                    write_json(arguments.output, report)
                    print(f"{task}, {dtype}, seed {seed}: {results[dtype][seed]}", flush=True)
    print(table(report["tasks"]))


if __name__ == "__main__":
    main()
