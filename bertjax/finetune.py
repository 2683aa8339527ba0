"""Fine-tuning (section 4): given weights and a task in; scores, predictions and a model out."""

import dataclasses
import json
import math
import shutil
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from bertjax.errors import InputError, NonFiniteLoss
from bertjax.files import atomic_write, exclusive, local_folder, write_json
from bertjax.fine_tuning.data import TaskData, read_split
from bertjax.fine_tuning.family import remembered
from bertjax.fine_tuning.recipe import TaskRecipe, Trial
from bertjax.fine_tuning.trials import Trials
from bertjax.interop.hugging_face import read_folder, write_folder
from bertjax.interop.pretrained import Pretrained
from bertjax.open_model import open_model
from bertjax.run_folder import (
    EXIT_STOPPED,
    MODEL_FOLDER,
    RESULTS_FILE,
    check_same_config,
    checkpoints_folder,
)
from bertjax.training.journal import METRICS_FILE, read_metrics

# What may differ when a run goes on: where it runs, where its data lies (its content may not), how
# often it looks, and how much is tried.
_FREE = ("data", "grid", "mesh", "layout", "intervals", "batch_tokens")


def run(config: Any, workdir: str) -> int:
    """Runs every trial of the config's grid that is not done, and keeps the best on dev.

    Args:
      config: as in `configs/finetune_*.py`.
      workdir: RUN: gets config.json; a folder under trials/ for each trial; the model, predictions
        and results.json of the best; and metrics.jsonl, of all.

    Returns:
      0 when all is done, `EXIT_STOPPED` when a signal stopped it.

    Raises:
      InputError: before anything is compiled, for whatever cannot work.
    """
    recipe = TaskRecipe.from_config(config)
    if jax.process_count() > 1:
        raise InputError("fine-tuning runs in one process: start it on one host, on its devices")
    if not workdir:
        raise InputError("--workdir is empty: say where the run shall lie")
    folder = local_folder(workdir)
    check_same_config(folder, recipe.plain, _FREE)
    given = open_model(recipe.init_from)
    print(given.summary(), flush=True)
    data = TaskData.read(recipe.task, given, recipe.max_length)
    trials = Trials(recipe, given, data)
    _announce(recipe, data, trials)
    with exclusive(folder):
        write_json(folder / "config.json", recipe.plain)
        return _Run(folder, recipe, given, data, trials).complete()


def _announce(recipe: TaskRecipe, data: TaskData, trials: Trials) -> None:
    """Says what will run, before the expensive part."""
    train, first = data.train, recipe.trials()[0]
    epochs, lengths = trials.epochs(first), train.lengths
    padding = 1 - lengths.sum() / (epochs.steps_per_epoch * first.batch_size * epochs.mean_length)
    full = f" ({(lengths == recipe.max_length).mean():.0%} fill or exceed config.max_length)"
    dev = ", ".join(f"{len(part.examples):,} {split}" for split, part in data.dev.items())
    print(
        f"{recipe.task.name}: {len(train):,} training sequences of {lengths.mean():.0f} tokens, "
        f"{lengths.max()} at most{full if lengths.max() == recipe.max_length else ''}; {dev}\n"
        f"{trials.parameters:,} parameters, new: {', '.join(trials.fresh)}; batches of "
        f"{', '.join(map(str, trials.buckets))} tokens, {padding:.0%} of them padding\n"
        f"{len(recipe.trials())} trials, the first of {epochs.steps:,} steps",
        flush=True,
    )


class _Run:
    """The folder of a run: what was tried, and what is left to try."""

    def __init__(
        self, folder: Path, recipe: TaskRecipe, given: Pretrained, data: TaskData, trials: Trials
    ):
        self._folder, self._recipe, self._task = folder, recipe, recipe.task
        self._given, self._data, self._trials = given, data, trials
        self._results = {trial: self._done(trial) for trial in recipe.trials()}

    def complete(self) -> int:
        """Runs what is left of it; see `run`."""
        results = self._results
        for number, trial in enumerate(results, start=1):
            if results[trial] is None:
                print(f"trial {number} of {len(results)}: {trial.name}", flush=True)
                if not self._try(trial):
                    return EXIT_STOPPED
        best = max(results, key=lambda trial: _value(results[trial]))
        if _value(results[best]) == -math.inf:
            raise InputError(
                f"no trial gave a {self._task.metric} ({results[best]['degenerate']}): lower "
                "config.grid.learning_rate"
            )
        if self._trial_of_model() != best.name:
            print(f"once more, for its model: {best.name}", flush=True)
            if not self._try(best):
                return EXIT_STOPPED
        self._finish(best)
        return 0

    # ------------------------------------------------------------------------ one trial

    def _own(self, trial: Trial) -> Path:
        return self._folder / "trials" / trial.name

    def _done(self, trial: Trial) -> dict[str, Any] | None:
        """What a trial gave, if it was run before.

        Raises:
          InputError: on other data, or from other weights, than there are now.
        """
        path = self._own(trial) / RESULTS_FILE
        if not path.exists():
            return None
        result = json.loads(path.read_text(encoding="utf-8"))
        for what, identity in self._data.identity.items():
            if result["data"][what] != identity:
                raise InputError(
                    f"{path.parent} was run with another {what} (its content differs): give it "
                    "what it was run with, or choose another --workdir"
                )
        return result

    def _try(self, trial: Trial) -> bool:
        """Trains and scores; keeps the model if none of the grid is better; False if stopped."""
        own = self._own(trial)
        own.mkdir(parents=True, exist_ok=True)
        begin, resumed = time.perf_counter(), checkpoints_folder(own).exists()
        result = {**dataclasses.asdict(trial), "data": self._data.identity}
        try:
            params, complete = self._trials.train(trial, own)
        except NonFiniteLoss as error:
            result |= {"dev": {}, "settings": {}, "value": None, "degenerate": f"diverged: {error}"}
        else:
            if not complete:
                print("stopped and saved; the same command goes on from there")
                return False
            # Of one that was stopped, the time before is not known.
            seconds = None if resumed else round(time.perf_counter() - begin, 1)
            result |= self._score(self._predict_dev(params)) | {"seconds": seconds}
            if all(_value(other) <= _value(result) for other in self._results.values() if other):
                about = remembered(self._task.family, self._recipe.max_length)
                about |= result["settings"] | {"name": self._task.name, "trial": trial.name}
                _replace_model(self._folder, self._trials.to_pretrained(params, str(own), about))
        write_json(own / RESULTS_FILE, result)
        shutil.rmtree(checkpoints_folder(own))
        self._results[trial] = result
        print(f"  {_told(result)}", flush=True)
        return True

    def _predict_dev(self, params: Any) -> dict[str, list[Any]]:
        return {
            name: self._trials.predict(params, split, f"predicting {name}")
            for name, split in self._data.dev.items()
        }

    def _score(self, predictions: Mapping[str, list[Any]]) -> dict[str, Any]:
        """The figures of every dev split, and what is decided on the first."""
        task, dev = self._task, self._data.dev
        first = task.dev_splits[0]
        settings = task.tune(dev[first].examples, predictions[first])
        scores = {
            name: task.score(split.examples, predictions[name], settings)
            for name, split in dev.items()
        }
        value = scores[first][task.metric]
        return {
            "dev": scores,
            "settings": settings,
            "value": value if math.isfinite(value) else None,
            "degenerate": task.family.degenerate(predictions[first]),
        }

    def _trial_of_model(self) -> str | None:
        folder = self._folder / MODEL_FOLDER
        return read_folder(folder, str(folder)).task["trial"] if folder.exists() else None

    # --------------------------------------------------------------------- of the best

    def _finish(self, best: Trial) -> None:
        """Predictions in official form, results.json, metrics.jsonl: with the model on disk."""
        folder, task = self._folder, self._task
        params = self._trials.placed(read_folder(folder / MODEL_FOLDER, str(folder)))
        predictions = self._predict_dev(params)
        scores = self._score(predictions)
        output = folder / "predictions"
        output.mkdir(exist_ok=True)
        for name, split in self._data.dev.items():
            task.write(output, name, split.examples, predictions[name], scores["settings"])
        for name in task.test_splits:
            split = read_split(task, name, self._given, self._recipe.max_length)
            found = self._trials.predict(params, split, f"predicting {name}")
            task.write(output, name, split.examples, found, scores["settings"])
        self._write_metrics()
        results = {
            "task": task.name,
            "metric": task.metric,
            "dev": scores["dev"],
            "settings": scores["settings"],
            "chosen": dataclasses.asdict(best),
            "init_from": self._recipe.init_from,
            "summary": _summary(self._results),
            "trials": [
                {key: value for key, value in result.items() if key != "data"}
                for result in self._results.values()
            ],
        }
        write_json(folder / RESULTS_FILE, results)
        _print_results(results, folder)

    def _write_metrics(self) -> None:
        """The lines of all trials in one file, and the dev figures behind those of each."""
        with atomic_write(self._folder / METRICS_FILE, "w") as file:
            for trial, result in self._results.items():
                rows = read_metrics(self._own(trial))
                last = rows[-1]["step"] if rows else 0
                dev = result["dev"].items()
                rows += [{"step": last, "split": split, **scores} for split, scores in dev]
                file.writelines(json.dumps({"trial": trial.name, **row}) + "\n" for row in rows)


def _value(result: dict[str, Any]) -> float:
    """What trials are compared by."""
    return -math.inf if result["value"] is None else result["value"]


def _replace_model(folder: Path, model: Pretrained) -> None:
    """RUN/model is whole, or absent for a moment."""
    temporary = folder / f".{MODEL_FOLDER}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    write_folder(model, temporary)
    shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
    temporary.rename(folder / MODEL_FOLDER)


def _summary(results: Mapping[Trial, dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over the seeds, for each combination of the grid."""
    groups: dict[Trial, list[dict[str, Any]]] = {}
    for trial, result in results.items():
        groups.setdefault(dataclasses.replace(trial, seed=0), []).append(result)
    rows = []
    for trial, members in groups.items():
        values = [each["value"] for each in members if each["value"] is not None]
        row = {key: value for key, value in dataclasses.asdict(trial).items() if key != "seed"}
        row |= {"mean": statistics.mean(values) if values else None, "restarts": len(members)}
        row["deviation"] = statistics.stdev(values) if len(values) > 1 else None
        row["degenerate"] = sum(bool(each["degenerate"]) for each in members)
        rows.append(row)
    return rows


def _told(result: Mapping[str, Any]) -> str:
    """A trial in a line."""
    dev = "; ".join(f"{split}: {_figures(scores)}" for split, scores in result["dev"].items())
    return dev + (f"  DEGENERATE: {result['degenerate']}" if result["degenerate"] else "")


def _figures(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in scores.items())


def _print_results(results: Mapping[str, Any], folder: Path) -> None:
    print(f"{results['task']}: {results['metric']} on dev, over the restarts")
    for row in results["summary"]:
        mean = "none" if row["mean"] is None else f"{row['mean']:.2f}"
        spread = "" if row["deviation"] is None else f" +- {row['deviation']:.2f}"
        flagged = f", {row['degenerate']} degenerate" if row["degenerate"] else ""
        print(
            f"  batch {row['batch_size']}, rate {row['learning_rate']:g}, epochs {row['epochs']}: "
            f"{mean}{spread} ({row['restarts']} trials{flagged})"
        )
    print(f"chosen: {_told({'degenerate': '', **results})}")
    print(f"{folder}: results.json, predictions/, {MODEL_FOLDER}/")
