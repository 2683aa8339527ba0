"""Scores and seconds of fine-tuning on a CPU in float32, next to transformers (PyTorch).

  python tests/benchmarks/finetune.py --data=GLUE --weights=FOLDER --tasks=MRPC,RTE,STS-B,CoLA \\
    --seeds=3 --epochs=2 --output=finetune.json

The tasks are those of GLUE; squad (1.1, scored on 800 questions); ner (each sentence alone); and,
without a counterpart in transformers, ner-context and ner-CHOICE, a BiLSTM over the activations of
a choice of layers (Table 7: ner-concat_last_four, ner-second_to_last, ...). `--train=N` trains on
the first N sentences or questions of ner and squad, `--layers=N` keeps the first N layers of the
model, and `--ways=bertjax` leaves transformers out. Results in the output are not computed again:
further tasks and seeds are added to it.

  bertjax       the whole program in this process; the time of the first seed includes compilation
  transformers  the model of transformers with the same weights and its own loss, in a new process
                for each seed, without the time for loading. It gets the features of bertjax in
                random batches, each padded to its longest example, and for dev in batches of
                similar lengths; bertjax decodes and scores its outputs

Both use AdamW, no decay of biases and LayerNorm, clipping at 1.0, linear warm-up over a tenth of
the steps and linear decay, and dropout 0.1. The seconds are for training, dev predictions and
scores.

It needs the extra `peers`.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import platform
import re
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.files import write_json
from bertjax.config import finetune_config
from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.tasks import official_files
from bertjax.tasks.encoded import IGNORED, Encoded
from bertjax.tasks.glue import SETS
from bertjax.tasks.task import Outputs

WAYS = ("bertjax", "transformers")
CONTEXT = "ner-context"
ONLY_OURS = "ner-"  # the prefix of tasks without a counterpart
SQUAD_TRAIN, SQUAD_DEV, SQUAD_QUESTIONS = "train-v1.1.partial.json", "dev-v1.1.json", 800
NER_TRAIN = "eng.train"
PREDICTED = 16  # sequences of a dev batch of transformers
AUTO_MODELS = {  # after "AutoModelFor"
    "sequence_classification": "SequenceClassification",
    "multi_label_classification": "SequenceClassification",
    "regression": "SequenceClassification",
    "token_classification": "TokenClassification",
    "question_answering": "QuestionAnswering",
}
# The names in transformers of a batch's fields and of outputs, if they differ from the names here.
ARGUMENTS = {
    **{name: name for name in ("input_ids", "start_positions", "end_positions")},
    **{"input_mask": "attention_mask", "token_type_ids": "token_type_ids"},
    **{"label_ids": "labels", "targets": "labels"},
}
OUTPUTS = {"logits": "logits", "start": "start_logits", "end": "end_logits"}

Result = dict[str, Any]  # a seed's "seconds" and "dev", its scores


def common_config(arguments: argparse.Namespace) -> Any:
    """The recipe of every task, for both ways."""
    config = finetune_config()
    is_run = (Path(arguments.weights) / "checkpoints").exists()
    config.init_from = arguments.weights if is_run else f"hf:{arguments.weights}"
    config.data = arguments.data
    config.grid.batch_size = (arguments.batch_size,)
    config.grid.learning_rate, config.grid.epochs = (arguments.rate,), (arguments.epochs,)
    config.grid.restarts = arguments.seeds
    config.model.compute_dtype = "float32"
    return config


def config_of(task: str, arguments: argparse.Namespace) -> Any:
    """The recipe of a task."""
    config = common_config(arguments)
    data, work = Path(arguments.data), arguments.work.resolve()
    if task in SETS:
        config.task = dict(kind="glue", name=task)
    elif task == "squad":
        write_dev_questions(data, work / SQUAD_DEV)
        write_first_questions(data, arguments.train, work / SQUAD_TRAIN)
        config.task = dict(kind="squad", train=str(work / SQUAD_TRAIN), dev=str(work / SQUAD_DEV))
        config.max_length = 384
    elif task == "ner":
        write_first_sentences(data, arguments.train, work / NER_TRAIN)
        config.task = dict(kind="ner", document_context=False, train=str(work / NER_TRAIN))
    elif (
        task == CONTEXT
    ):  # with windows of about 13 sentences, a batch has as many sentences as for ner
        config.task = dict(kind="ner", document_context=True)
        config.max_length, config.grid.batch_size = 512, (2,)
    elif task.startswith(ONLY_OURS):  # as in configs/finetune_ner.py
        config.task = dict(kind="ner", document_context=True)
        config.features = dict(choices=(task.removeprefix(ONLY_OURS),))
        config.max_length, config.grid.learning_rate = 512, (1e-3,)
        config.optimizer.weight_decay = 0.0
    else:
        sys.exit(f"--tasks: {task!r} is none of {', '.join((*SETS, 'squad', 'ner', CONTEXT))}")
    return config


def write_dev_questions(data: Path, output: Path) -> None:
    """Writes the dev questions whose ids have the smallest hashes, which are always the same."""
    _, text = official_files.text(data, SQUAD_DEV)
    content = json.loads(text)
    ids = [question["id"] for question in _questions(content)]
    chosen = sorted(ids, key=lambda i: hashlib.sha256(i.encode()).digest())[:SQUAD_QUESTIONS]
    _keep_questions(content, set(chosen))
    write_json(output, content)


def write_first_questions(data: Path, count: int | None, output: Path) -> None:
    """Writes the first questions of the training file; all of them for None."""
    _, text = official_files.text(data, SQUAD_TRAIN)
    content = json.loads(text)
    _keep_questions(content, {question["id"] for question in _questions(content)[:count]})
    write_json(output, content)


def _questions(content: Any) -> list[dict[str, Any]]:
    paragraphs = (each for article in content["data"] for each in article["paragraphs"])
    return [question for paragraph in paragraphs for question in paragraph["qas"]]


def _keep_questions(content: Any, ids: set[str]) -> None:
    for article in content["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [each for each in paragraph["qas"] if each["id"] in ids]


def write_first_sentences(data: Path, count: int | None, output: Path) -> None:
    """Writes the first sentences of CoNLL-2003's training file; all of them for None."""
    lines = list(official_files.lines(data, NER_TRAIN))
    starts = [i for i, line in enumerate(lines) if line and (i == 0 or not lines[i - 1])]
    starts = [i for i in starts if not lines[i].startswith("-DOCSTART-")]
    end = len(lines) if count is None else starts[count]
    output.write_text("".join(f"{line}\n" for line in lines[:end]), encoding="utf-8")


def write_first_layers(weights: Path, layers: int, output: Path) -> None:
    """Writes a BERT of the first layers of another one, in the form of transformers."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(weights, output, dirs_exist_ok=True)
    config = json.loads((weights / "config.json").read_text(encoding="utf-8"))
    write_json(output / "config.json", config | {"num_hidden_layers": layers})
    in_layer = re.compile(r"encoder\.layer\.([0-9]+)\.").search
    arrays = load_file(weights / "model.safetensors")
    kept = {
        name: a for name, a in arrays.items() if not (m := in_layer(name)) or int(m[1]) < layers
    }
    save_file(kept, output / "model.safetensors", metadata={"format": "pt"})


# ------------------------------------------------------------------------------- the two ways


def bertjax_seeds(config: Any, workdir: Path) -> dict[str, Result]:
    """The program's own results, by seed."""
    from bertjax.programs.finetune import run

    if code := run(config, str(workdir)):
        sys.exit(code)
    results = json.loads((workdir / "results.json").read_text(encoding="utf-8"))
    if "features" in config:
        (results,) = results.values()
    trials = results["trials"]
    return {str(t["seed"]): {"seconds": t.get("seconds"), "dev": t["dev"]} for t in trials}


def transformers_seed(config: Any, seed: int) -> Result:
    """Trains and scores in PyTorch."""
    import torch
    import transformers

    from bertjax.runs.fine_tuning.data import TaskData, encoder, read_examples
    from bertjax.runs.fine_tuning.recipe import TaskRecipe
    from bertjax.runs.source import open_model

    recipe = TaskRecipe.from_config(config)
    task, family = recipe.task, recipe.task.family
    pretrained = open_model(recipe.init_from)
    encode = encoder(family, pretrained, recipe.max_length)
    data = TaskData.of(task, read_examples(task), encode, pretrained.identity)
    trial = recipe.trials()[seed]
    steps = trial.epochs * -(-len(data.train) // trial.batch_size)
    adamw = recipe.optimizer

    torch.manual_seed(seed)
    switches = {name: recipe.model[name] for name in recipe.model if name.endswith("dropout_prob")}
    if TASK_LOSSES[family.objective].has_classes:
        switches["num_labels"] = len(family.classes) or 1
    if family.objective == "multi_label_classification":
        switches["problem_type"] = family.objective
    auto_model = getattr(transformers, f"AutoModelFor{AUTO_MODELS[family.objective]}")
    folder = recipe.init_from.removeprefix("hf:")
    model = auto_model.from_pretrained(folder, dtype=torch.float32, **switches)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1]},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    betas, warmup = (adamw.beta1, adamw.beta2), adamw.warmup_of(steps)
    optimizer = torch.optim.AdamW(
        groups, trial.learning_rate, betas, adamw.epsilon, adamw.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / max(warmup, 1), (steps - n) / (steps - warmup))
    )

    def inputs(encoded: Encoded, members: np.ndarray) -> dict[str, Any]:
        """Makes a batch that is padded to its longest example."""
        shape = len(members), int(encoded.lengths[members].max())
        arrays = encoded.batch(
            TASK_LOSSES[family.objective].fields, members, *shape, pretrained.tokenizer.pad_id
        )
        tensors = {ARGUMENTS[k]: torch.from_numpy(arrays[k]) for k in arrays if k in ARGUMENTS}
        tensors = {k: v if v.is_floating_point() else v.long() for k, v in tensors.items()}
        if family.objective == "token_classification" and "labels" in tensors:
            tensors["labels"][tensors["labels"] == IGNORED] = -100  # what its loss ignores
        return tensors

    def train() -> None:
        model.train()
        for _ in range(trial.epochs):
            for members in torch.randperm(len(data.train)).split(trial.batch_size):
                model(**inputs(data.train, members.numpy())).loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), adamw.clip_norm)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()

    @torch.inference_mode()
    def predict(encoded: Encoded) -> Outputs:
        model.eval()
        of_tokens = TASK_LOSSES[family.objective].of_tokens
        lengths = encoded.lengths
        order = np.argsort(-lengths, kind="stable")
        results = {name: [None] * len(order) for name in OUTPUTS}
        for members in np.split(order, range(PREDICTED, len(order), PREDICTED)):
            outputs = model(**inputs(encoded, members))
            for name, reference in OUTPUTS.items():
                for member, row in zip(members, outputs.get(reference, ()), strict=False):
                    results[name][member] = (row[: lengths[member]] if of_tokens else row).numpy()
        return results

    begin = time.perf_counter()
    train()
    training = time.perf_counter() - begin
    splits, first = data.dev, task.dev_splits[0]
    found = {n: family.decode(s.examples, s.encoded, predict(s.encoded)) for n, s in splits.items()}
    settings = task.tune(splits[first].examples, found[first])
    dev = {name: task.score(s.examples, found[name], settings) for name, s in splits.items()}
    return {"seconds": time.perf_counter() - begin, "of_these_training": training, "dev": dev}


# --------------------------------------------------------------------------------- the report


def table(results: dict[str, Any]) -> str:
    """A Markdown table of every metric of the first dev split: mean and deviation over seeds."""
    titles = ("task", "metric", "dev examples", *WAYS, *(f"{way} s/seed" for way in WAYS), "ratio")
    rows = [titles, ["---"] * len(titles)]
    for task, result in results.items():
        done = {way: result[way].values() for way in WAYS}
        dev = {way: [next(iter(each["dev"].values())) for each in done[way]] for way in WAYS}
        # The time of an interrupted seed is unknown.
        known = {way: [each["seconds"] for each in done[way] if each["seconds"]] for way in WAYS}
        seconds = [statistics.mean(known[way]) if known[way] else None for way in WAYS]
        ratio = seconds[0] / seconds[1] if all(seconds) else None
        times = [f"{value:.2f}" if value else "" for value in (*seconds, ratio)]
        for metric in dev["bertjax"][0]:
            figures = (spread([scores[metric] for scores in dev[way]]) for way in WAYS)
            rows.append((task, metric, f"{result['examples']:,}", *figures, *times))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def spread(values: list[float]) -> str:
    """The mean and the standard deviation, if there are enough values."""
    if len(values) < 2:
        return "".join(f"{value:.2f}" for value in values)
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"


def parsed(about: str, ways: Iterable[str]) -> argparse.Namespace:
    """The arguments of a benchmark, with `about` as its help and `ways` to compare."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="folder of the data")
    parser.add_argument(
        "--weights", required=True, help="in the form of transformers, or (bertjax alone) a run"
    )
    parser.add_argument("--tasks", required=True, type=lambda text: text.split(","))
    parser.add_argument("--ways", default=list(ways), type=lambda text: text.split(","))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--train", type=int, help="so many examples; default: all")
    parser.add_argument("--layers", type=int, help="the first layers of the model; default: all")
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    parser.add_argument("--work", type=Path, help="folder of the runs; default: next to the output")
    arguments = parser.parse_args()
    arguments.work = arguments.work or arguments.output.with_suffix("")
    arguments.work.mkdir(parents=True, exist_ok=True)
    os.environ["JAX_PLATFORMS"] = "cpu"
    arguments.origin = Path(arguments.weights).name
    if arguments.layers is not None:
        folder = arguments.work / f"first_{arguments.layers}_layers"
        write_first_layers(Path(arguments.weights), arguments.layers, folder)
        arguments.weights = str(folder.resolve())
    return arguments


def started(arguments: argparse.Namespace, packages: Iterable[str]) -> dict[str, Any]:
    """The report so far; ends the program if it was made in another way.

    Args:
      packages: those whose versions count.
    """
    facts = {
        "weights": arguments.origin,
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "versions": {name: version(name) for name in packages},
    }
    if not arguments.output.exists():
        return {**facts, "tasks": {}}
    report = json.loads(arguments.output.read_text(encoding="utf-8"))
    if changed := [key for key in facts if report[key] != facts[key]]:
        sys.exit(f"{arguments.output}: was made with other {', '.join(changed)}")
    return report


def main(about: str, config_of: Callable[[str, argparse.Namespace], Any]) -> None:
    """The program of a benchmark.

    Args:
      about: its docstring, which says what `--data`, `--tasks` and `--train` may be.
      config_of: (task, arguments) -> the recipe.
    """
    arguments = parsed(about, WAYS)
    from bertjax.runs.fine_tuning.recipe import TaskRecipe

    report = started(arguments, ("jax", "torch", "transformers"))
    for task in arguments.tasks:
        config = config_of(task, arguments)
        recipe = TaskRecipe.from_config(config)
        how = {key: recipe.config_dict[key] for key in ("max_length", "grid", "optimizer", "model")}
        del how["grid"]["restarts"]
        how |= {"layers": arguments.layers, "train": arguments.train}
        examples = len(recipe.task.read(recipe.task.dev_splits[0]))
        new = {"recipe": how, "examples": examples, **{way: {} for way in WAYS}}
        result = report["tasks"].setdefault(task, new)
        if result["recipe"] != how or result["examples"] != examples:
            sys.exit(f"{arguments.output}: {task} was run with another recipe or other data")
        seeds = [str(seed) for seed in range(arguments.seeds)]
        ways = arguments.ways if not task.startswith(ONLY_OURS) else WAYS[:1]
        if "bertjax" in ways and not result["bertjax"].keys() >= set(seeds):
            # All choices of layers share the stored activations.
            workdir = arguments.work / ("ner-features" if "features" in config else task)
            result["bertjax"] |= bertjax_seeds(config, workdir)
            write_json(arguments.output, report)
        for seed in seeds:
            if "transformers" in ways and seed not in result["transformers"]:
                # It runs in a separate process, so that thread pools do not disturb each other.
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                    call = pool.submit(transformers_seed, config.to_dict(), int(seed))
                    result["transformers"][seed] = call.result()
                write_json(arguments.output, report)
                print(f"transformers, seed {seed}: {result['transformers'][seed]}", flush=True)
        print(table(report["tasks"]), flush=True)


if __name__ == "__main__":
    main(__doc__, config_of)
