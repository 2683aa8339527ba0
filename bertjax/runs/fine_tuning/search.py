"""Runs the trials of a grid one after another; skips finished ones, and keeps the best model.

All hosts train and predict. The first one alone decodes, scores, decides, reads and writes: what it
finds goes to the others by `from_first`, so that all do the same next.
"""

import dataclasses
import json
import math
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertjax.base.errors import InputError, NonFiniteLoss
from bertjax.base.files import atomic_write, write_json
from bertjax.runs.fine_tuning.best_model import BestModel
from bertjax.runs.fine_tuning.data import Split, TaskData, identity_of, name_in
from bertjax.runs.fine_tuning.recipe import TaskRecipe, Trial
from bertjax.runs.fine_tuning.resampling import write_resampled
from bertjax.runs.fine_tuning.scores import by_type, digests, in_a_line, mean_of, scored
from bertjax.runs.fine_tuning.trials import Trials
from bertjax.runs.run_folder import (
    PREDICTIONS_FOLDER,
    RESULTS_FILE,
    checkpoints_folder,
    read_results,
    read_trial,
    trial_folder,
)
from bertjax.tasks.task import Outputs
from bertjax.training.metrics_log import METRICS_FILE, read_metrics
from bertjax.training.model import Params
from bertjax.training.sharding.hosts import from_first, say

# The outputs of a model: the name of a task -> a split -> those for its examples.
SplitOutputs = Mapping[str, Mapping[str, Outputs]]


class NothingScored(InputError):
    """No trial of a search has a score, because all diverged."""


class Search:
    """The search in a run folder: the finished trials, and those that remain."""

    def __init__(
        self,
        folder: Path,
        recipe: TaskRecipe,
        data: Mapping[str, TaskData],
        trials: Trials,
        best: BestModel,
    ):
        self._folder, self._recipe, self._tasks = folder, recipe, recipe.tasks
        self._data, self._trials, self._best_model = data, trials, best
        self._identity = identity_of(data)
        self._others = {
            name_in(name, split): digest
            for name, each in data.items()
            for split, digest in each.others.items()
        }
        self._grid = list(dict.fromkeys(recipe.trials()))
        found = from_first(lambda: list(map(self._read, self._grid)))
        self._finished = {t: result for t, result in zip(self._grid, found, strict=True) if result}
        # What the stored model gives for dev, if it was trained by this process.
        self._best_outputs: SplitOutputs | None = None

    @property
    def _results(self) -> dict[Trial, dict[str, Any]]:
        return {trial: self._finished[trial] for trial in self._grid if trial in self._finished}

    def announce(self) -> None:
        """Prints what will run, before the training begins."""
        trials, first = self._trials, self._grid[0]
        together = trials.together(first)
        tokens = padded = 0.0  # of an epoch
        for name, data in self._data.items():
            train, epochs, drawn = data.train, trials.epochs(first, name), together.drawn[name]
            tokens += drawn * len(train.ids) / epochs.steps_per_epoch
            padded += drawn * train.choices * epochs.tokens
            lengths = train.lengths
            full = (lengths == self._recipe.max_length).mean()
            full = f"; {full:.0%} of them as long as config.max_length" if full else ""
            share = f"; {drawn / together.steps_per_epoch:.0%} of the batches" if name else ""
            dev = ", ".join(f"{len(rows.examples):,} {split}" for split, rows in data.dev.items())
            say(
                f"{name or self._tasks[name].name}: {len(train):,} training sequences of "
                f"{lengths.mean():.0f} tokens, {lengths.max()} at most{full}{share}; "
                f"to score: {dev}"
            )
        say(
            f"{sum(trials.parameters.values()):,} parameters; microbatches of {epochs.rows} x "
            f"{', '.join(map(str, trials.buckets))} tokens, "
            f"{1 - tokens / padded:.0%} of them padding\n"
            f"{len(self._grid)} trials, the first of "
            f"{first.epochs * together.steps_per_epoch:,} steps"
        )
        stored = self._best_model.trial()
        if stored is not None and stored not in {trial.name for trial in self._grid}:
            say(
                f"warning: the model in {self._folder} is of {stored}, which is not in the grid: "
                "the best model of this grid will replace it. To keep it, use another --workdir"
            )

    def complete(self) -> dict[str, Any] | None:
        """Runs the remaining trials; raises `NothingScored` if every trial diverged.

        Returns:
          The content of results.json; None if a signal stopped the search.
        """
        for number, trial in enumerate(self._grid, start=1):
            if trial not in self._finished:
                say(f"trial {number} of {len(self._grid)}: {trial.name}")
                if not self._run_trial(trial):
                    return None
        results = self._results
        stored = self._best_model.trial()
        best = max(results, key=lambda trial: (_value(results[trial]), trial.name == stored))
        if _value(results[best]) == -math.inf:
            raise NothingScored(
                f"no trial gave a {self._metric} ({results[best]['degenerate']}): lower "
                "config.grid.learning_rate"
            )
        if best.name != stored:
            # The stored model is of another trial: the grid was larger before, or the run was
            # killed before it stored the model.
            say(f"once more, for its model: {best.name}")
            if not self._run_trial(best, keep=True):
                return None
            if self._best_model.trial() != best.name:
                raise InputError(
                    f"{self._folder_of(best)}: gave {_value(results[best]):.2f} before, and "
                    "diverged now: remove the folder, and start again"
                )
        return from_first(lambda: self._run_before(best)) or self._finish(best)

    # ------------------------------------------------------------------------ one trial

    @property
    def _metric(self) -> str:
        return self._tasks[""].metric if "" in self._tasks else "mean"

    def _folder_of(self, trial: Trial, name: str = "") -> Path:
        return trial_folder(self._folder / name, trial.name)

    def _result_of_task(self, result: Mapping[str, Any], name: str) -> dict[str, Any]:
        """The result of a trial for one task, in the form that a run of that task alone has."""
        if not name:
            return dict(result)
        common = {key: value for key, value in result.items() if key != "tasks"}
        data = self._data[name].identity | self._data[name].others
        return common | result.get("tasks", {}).get(name, {}) | {"data": data}

    def _read(self, trial: Trial) -> dict[str, Any] | None:
        """The results of a trial with the same data and weights; None if it is not finished."""
        folder = self._folder_of(trial)
        if not (folder / RESULTS_FILE).exists():
            return None
        result = read_trial(folder)
        for what, identity in self._identity.items():
            if result["data"].get(what) != identity:
                raise InputError(
                    f"{folder} was run with another {what} (its content differs): use the "
                    "same as before, or choose another --workdir"
                )
        return result

    def _run_trial(self, trial: Trial, keep: bool = False) -> bool:
        """Trains and scores a trial, stores the best model; False if a signal stopped it."""
        folder = self._folder_of(trial)
        begin, resumed = time.perf_counter(), from_first(lambda: self._open(trial))
        data = self._identity | self._others
        result = {**dataclasses.asdict(trial), "data": data, "seconds": None}
        try:
            params, complete = self._trials.train(trial, folder)
        except NonFiniteLoss as error:
            result |= {"dev": {}, "settings": {}, "value": None, "degenerate": f"diverged: {error}"}
        else:
            if not complete:
                say("stopped and saved; the same command goes on from there")
                return False
            outputs = self._dev_outputs(params)
            result |= from_first(lambda: self._scores_of(trial, outputs))
            if not resumed:  # otherwise the earlier time is unknown
                result["seconds"] = round(time.perf_counter() - begin, 1)
            if keep or all(_value(other) < _value(result) for other in self._finished.values()):
                settings = {
                    name: self._result_of_task(result, name)["settings"] for name in self._tasks
                }
                self._best_model.save(params, trial.name, settings)
                self._best_outputs = outputs
        result = from_first(lambda: self._close(trial, result))
        self._finished.setdefault(trial, result)  # a repeated trial keeps its first results
        say(f"  {in_a_line(result)}")
        return True

    def _open(self, trial: Trial) -> bool:
        """Prepares the folders of a trial; returns whether it goes on from a checkpoint."""
        for name in self._recipe.names:
            self._folder_of(trial, name).mkdir(parents=True, exist_ok=True)
            (self._folder / name / RESULTS_FILE).unlink(missing_ok=True)  # it is out of date
        return checkpoints_folder(self._folder_of(trial)).exists()

    def _close(self, trial: Trial, result: dict[str, Any]) -> dict[str, Any]:
        if trial not in self._finished:
            for name in self._recipe.names:
                write_json(
                    self._folder_of(trial, name) / RESULTS_FILE, self._result_of_task(result, name)
                )
        self._remove_checkpoints(trial)
        return result

    def _remove_checkpoints(self, trial: Trial) -> None:
        shutil.rmtree(checkpoints_folder(self._folder_of(trial)), ignore_errors=True)

    def _scores_of(self, trial: Trial, outputs: SplitOutputs) -> dict[str, Any]:
        """The scores of a trial by its outputs for dev; writes those of resampled examples."""
        predictions = self._dev_predictions(outputs)
        scores = self._score(predictions)
        for name, task in self._tasks.items():
            settings = self._result_of_task(scores, name)["settings"]
            arguments = self._dev_examples(name), predictions[name], settings
            write_resampled(self._folder_of(trial, name), task, *arguments)
        return scores

    def _dev_outputs(self, params: Params) -> SplitOutputs:
        return {name: self._outputs(params, name, data.dev) for name, data in self._data.items()}

    def _outputs(
        self, params: Params, name: str, splits: Mapping[str, Split]
    ) -> dict[str, Outputs]:
        return {
            split: self._trials.outputs(params, rows, f"predicting {name_in(name, split)}", name)
            for split, rows in splits.items()
        }

    def _dev_predictions(self, outputs: SplitOutputs) -> dict[str, dict[str, list[Any]]]:
        return {
            name: self._decoded(name, data.dev, outputs[name]) for name, data in self._data.items()
        }

    def _decoded(
        self, name: str, splits: Mapping[str, Split], outputs: Mapping[str, Outputs]
    ) -> dict[str, list[Any]]:
        decode = self._tasks[name].family.decode
        return {
            split: decode(rows.examples, rows.encoded, outputs[split])
            for split, rows in splits.items()
        }

    def _dev_examples(self, name: str) -> dict[str, list[Any]]:
        return {split: rows.examples for split, rows in self._data[name].dev.items()}

    def _score(self, predictions: Mapping[str, Mapping[str, list[Any]]]) -> dict[str, Any]:
        """The scores of each task or, with several, also their mean."""
        scores = {
            name: scored(task, self._dev_examples(name), predictions[name])
            for name, task in self._tasks.items()
        }
        return scores[""] if "" in scores else mean_of(scores)

    # ------------------------------------------------------------------- the best trial

    def _finish(self, best: Trial) -> dict[str, Any]:
        """Writes predictions in official form, results.json and metrics.jsonl of the best model."""
        params = self._best_model.load()
        dev = self._best_outputs or self._dev_outputs(params)
        test = {name: self._outputs(params, name, data.test) for name, data in self._data.items()}
        return from_first(lambda: self._write(best, dev, test))

    def _write(self, best: Trial, dev: SplitOutputs, test: SplitOutputs) -> dict[str, Any]:
        predictions = self._dev_predictions(dev)
        scores = self._score(predictions)
        for name, task in self._tasks.items():
            output = self._folder / name / PREDICTIONS_FOLDER
            output.mkdir(exist_ok=True)
            data, settings = self._data[name], self._result_of_task(scores, name)["settings"]
            found = predictions[name] | self._decoded(name, data.test, test[name])
            for split, rows in (data.dev | data.test).items():
                task.write(output, split, rows.examples, found[split], settings)
        self._write_metrics()
        results = self._run_results(best, scores)
        for name, each in results.items():
            write_json(self._folder / name / RESULTS_FILE, each)
            _print_results(name, each)
        return results[""]

    def _run_before(self, best: Trial) -> dict[str, Any] | None:
        """The results.json of an earlier run, if still valid; removes checkpoints of its trials."""
        for trial in self._results:
            self._remove_checkpoints(trial)
        expected = self._run_results(best, self._finished[best])
        for name, each in expected.items():
            folder = self._folder / name
            if not (folder / RESULTS_FILE).exists() or read_results(folder) != each:
                return None
        self._write_metrics()  # it contains times, so results.json has no digest of it
        for name, each in expected.items():
            _print_results(name, each)
        return expected[""]

    def _run_results(self, best: Trial, scores: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The content of each results.json, by name: scores, and digests of the predictions."""
        return {name: self._results_of(name, best, scores) for name in self._recipe.names}

    def _results_of(self, name: str, best: Trial, scores: Mapping[str, Any]) -> dict[str, Any]:
        trials = {
            trial: self._result_of_task(result, name) for trial, result in self._results.items()
        }
        found = self._result_of_task(scores, name)
        task = self._tasks.get(name)
        results = {
            "task": task.name if task else ", ".join(self._tasks),
            "metric": task.metric if task else self._metric,
            **{key: found[key] for key in ("dev", "settings", "degenerate")},
            "chosen": dataclasses.asdict(best),
            "init_from": self._recipe.init_from,
            **({"together": list(self._tasks)} if name else {}),
            "summary": _summary(trials),
            "trials": [
                {key: value for key, value in each.items() if key != "data"}
                for each in trials.values()
            ],
            "data": self._data[name].others if task else self._others,
            "predictions": digests(self._folder / name / PREDICTIONS_FOLDER),
        }
        return json.loads(json.dumps(results))

    def _write_metrics(self) -> None:
        """Writes the metrics of all trials to one file, each followed by its dev scores."""
        with atomic_write(self._folder / METRICS_FILE, "w") as file:
            for trial, result in self._results.items():
                rows = read_metrics(self._folder_of(trial))
                last = rows[-1]["step"] if rows else 0
                dev = result["dev"].items()
                rows += [{"step": last, "split": split, **scores} for split, scores in dev]
                file.writelines(json.dumps({"trial": trial.name, **row}) + "\n" for row in rows)


def _value(result: dict[str, Any]) -> float:
    return -math.inf if result["value"] is None else result["value"]


def _summary(results: Mapping[Trial, dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[Trial, list[dict[str, Any]]] = {}
    for trial, result in results.items():
        groups.setdefault(dataclasses.replace(trial, seed=0), []).append(result)
    rows = []
    for trial, members in groups.items():
        values = [each["value"] for each in members if each["value"] is not None]
        row = {key: value for key, value in dataclasses.asdict(trial).items() if key != "seed"}
        row |= _mean_and_std(values) | {"restarts": len(members), "scored": len(values)}
        row["degenerate"] = sum(bool(each["degenerate"]) for each in members)
        row["dev"] = _spreads([each for each in members if each["value"] is not None])
        rows.append(row)
    return rows


def _spreads(results: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    spreads: dict[str, dict[str, Any]] = {}
    for split, figures in results[0]["dev"].items() if results else ():
        scored = [each["dev"].get(split, {}) for each in results]
        if len({each["data"].get(split) for each in results}) == 1:
            names = [name for name in figures if all(name in each for each in scored)]
            spreads[split] = {
                name: _mean_and_std([each[name] for each in scored]) for name in names
            }
    return spreads


def _mean_and_std(values: list[float]) -> dict[str, float | None]:
    return {
        "mean": statistics.mean(values) if values else None,
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
    }


def _print_results(name: str, results: Mapping[str, Any]) -> None:
    print(f"{name or results['task']}: {results['metric']} on dev, over the restarts")
    for row in results["summary"]:
        mean = "none" if row["mean"] is None else f"{row['mean']:.2f}"
        spread = "" if row["deviation"] is None else f" +- {row['deviation']:.2f}"
        flagged = f", {row['degenerate']} degenerate" if row["degenerate"] else ""
        unscored = row["restarts"] - row["scored"]
        flagged += f", {unscored} without a score" if unscored else ""
        print(
            f"  batch {row['batch_size']}, rate {row['learning_rate']:g}, epochs {row['epochs']}: "
            f"{mean}{spread} ({row['restarts']} trials{flagged})"
        )
    print(f"chosen: {Trial(**results['chosen']).name}: {in_a_line(results)}")
    for line in by_type(results):
        print(f"  {line}")
