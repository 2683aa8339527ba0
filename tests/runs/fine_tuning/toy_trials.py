"""Linear regression over words instead of a BERT: the smallest model for tests of `Search`."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.errors import NonFiniteLoss
from bertjax.base.files import write_json
from bertjax.runs.fine_tuning.data import Split, TaskData, read_examples
from bertjax.runs.fine_tuning.recipe import TaskRecipe, Trial
from bertjax.runs.fine_tuning.search import Search
from bertjax.runs.run_folder import checkpoints_folder
from bertjax.tasks.buckets import Epochs, choose_lengths
from bertjax.tasks.classification import TextPair
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.task import Outputs
from bertjax.tasks.together import Together
from bertjax.training.metrics_log import METRICS_FILE, TRAIN, read_metrics
from tests.helpers.task_files import change, tiny_finetuning
from tests.helpers.tiny_run import SOUNDS

WORDS = 1 + len(SOUNDS)  # 0 is any other word
LEARNS, TOO_LOW, TOO_HIGH = 1.0, 1e-5, 1e30  # learning rates


class ToyTrials:
    """What a `Search` uses of `bertjax.runs.fine_tuning.trials.Trials`.

    A model has a number for each word; a text is acceptable if the mean of its numbers is above 0.

    Attributes:
      stop: the number of all steps after which a signal comes; None: never.
      diverging: the names of trials that diverge with any rate.
      shift: a value that is added to initial numbers; far above 0, all texts are acceptable.
      trained, predicted: the names of the trials and splits so far, in order.
    """

    parameters = {"bert": WORDS, "classifier": 0}

    def __init__(self, recipe: TaskRecipe, data: TaskData):
        self._recipe, self._data = recipe, data
        self.buckets = choose_lengths(data.train.lengths, recipe.max_length, recipe.buckets)
        self.stop: int | None = None
        self.diverging: set[str] = set()
        self.shift = 0.0
        self.trained: list[str] = []
        self.predicted: list[str] = []

    def epochs(self, trial: Trial, task: str = "") -> Epochs:
        """The batches of a trial, which are the same as of the real class."""
        lengths = self._data.train.lengths
        size = trial.batch_size
        return Epochs(lengths, self.buckets, size, trial.epochs, trial.seed, rows=size)

    def together(self, trial: Trial) -> Together:
        """The order of the tasks' batches, here of one."""
        return Together({"": self.epochs(trial).steps_per_epoch}, 1.0, trial.seed)

    @np.errstate(over="ignore")
    def train(self, trial: Trial, folder: Path) -> tuple[np.ndarray, bool]:
        """Continues from checkpoints/ like the real class, and writes metrics.jsonl."""
        self.trained.append(trial.name)
        epochs, saved = self.epochs(trial), checkpoints_folder(folder) / "state.npz"
        saved.parent.mkdir(exist_ok=True)
        step = 0
        rng = np.random.default_rng(trial.seed)
        model = rng.normal(self.shift, size=WORDS).astype(np.float32)
        if saved.exists():
            with np.load(saved) as state:
                step, model = int(state["step"]), state["model"]
            print(f"going on from step {step}")
        rows = [row for row in read_metrics(folder) if row["step"] <= step]
        try:
            while step < epochs.steps and self.stop != 0:
                loss, gradient = self._loss(model, epochs.batch(step))
                if not np.isfinite(loss) or trial.name in self.diverging:
                    raise NonFiniteLoss(f"step {step + 1}: the loss is {loss}")
                model = model - np.float32(trial.learning_rate) * gradient
                step += 1
                rows.append({"step": step, "split": TRAIN, "loss": loss})
                self.stop = None if self.stop is None else self.stop - 1
        finally:
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / METRICS_FILE).write_text(lines, encoding="utf-8")
        np.savez(saved, step=step, model=model)
        return model, self.stop != 0

    def _loss(self, model: np.ndarray, examples: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean squared error of a batch, and its gradient."""
        inputs = _inputs(self._data.train)[examples]
        targets = 2 * self._data.train.labels["label_ids"][examples] - 1
        error = inputs @ model - targets.astype(np.float32)
        return float(np.mean(error**2)), 2 * error @ inputs / np.float32(len(examples))

    def outputs(self, params: np.ndarray, split: Split, what: str, task: str = "") -> Outputs:
        """Those of the examples, in their order; prints on stderr, where progress is printed."""
        print(what, file=sys.stderr)
        self.predicted.append(what.removeprefix("predicting "))
        scores = _inputs(split.encoded) @ params
        return {"logits": np.stack([-scores, scores], axis=-1)}


def _inputs(encoded: Encoded) -> np.ndarray:
    """float32 [N, WORDS]: the share of each word in each text."""
    inputs = np.zeros((len(encoded), WORDS), np.float32)
    rows = np.repeat(np.arange(len(encoded)), encoded.lengths)
    np.add.at(inputs, (rows, encoded.ids), 1)
    return inputs / encoded.lengths[:, None]


class ToyModel:
    """The folder of the best model: see `bertjax.runs.fine_tuning.best_model.BestModel`."""

    def __init__(self, folder: Path):
        self.folder = folder

    def save(self, params: np.ndarray, trial: str, settings: Mapping[str, Any]) -> None:
        self.folder.mkdir(exist_ok=True)
        np.save(self.folder / "model.npy", params)
        write_json(self.folder / "trial.json", {"trial": trial, "settings": settings})

    def trial(self) -> str | None:
        path = self.folder / "trial.json"
        return json.loads(path.read_text())["trial"] if path.exists() else None

    def load(self) -> np.ndarray:
        return np.load(self.folder / "model.npy")


def toy_recipe(data: Path, **changes: Any) -> TaskRecipe:
    """The recipe of CoLA under `data`; `changes` replace keys at the top level of the config."""
    config = tiny_finetuning("weights", data, task=dict(kind="glue", name="CoLA"))
    change(config, grid=dict(learning_rate=(LEARNS,), epochs=(2,)), buckets=2)
    return TaskRecipe.from_config(change(config, **changes))


def toy_search(
    recipe: TaskRecipe, folder: Path, weights: str = "the same"
) -> tuple[Search, ToyTrials, ToyModel]:
    """A search in a folder with its present files, as a new process would make it."""
    numbers = {word: number for number, word in enumerate(SOUNDS, start=1)}

    def encode(examples: list[TextPair], split: str, *, labelled: bool) -> Encoded:
        texts = [[numbers.get(word, 0) for word in example.a.split()] for example in examples]
        labels = {"label_ids": recipe.task.family.label_ids(examples)} if labelled else {}
        return Encoded.of([(ids, [0] * len(ids)) for ids in texts], labels)

    folder.mkdir(exist_ok=True)
    data = TaskData.of(recipe.task, read_examples(recipe.task), encode, weights)
    trials, kept = ToyTrials(recipe, data), ToyModel(folder / "model")
    return Search(folder, recipe, {"": data}, trials, kept), trials, kept
