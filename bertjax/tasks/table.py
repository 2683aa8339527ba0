"""The user's own data: a table with named columns, for any of five problems."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.base.limits import Meta, Positive, PositiveShare, check_limits, require
from bertjax.tasks import official_files, table_files
from bertjax.tasks.classification import check_answers
from bertjax.tasks.problems import BALANCED, DEV, PROBLEMS, Columns, Problem, Taught, Weighted
from bertjax.tasks.rows import NullValue, read_files
from bertjax.tasks.task import TRAIN, Family, Task

# Fields of `Table` that say how a task is learned, and not which it is.
LOSS = ("class_weights", "focal_gamma")
SOFT = ("soft_label", "soft_share", "temperature")
SKIP = "skip"
_MOST_GAMMA = 100  # with so much, nothing is learned that is not wrong already


@dataclasses.dataclass(frozen=True)
class Table(Columns, Task):
    """A data set in files that `bertjax.tasks.rows` reads; its columns are those of `Columns`.

    Attributes:
      train, dev, test: the names of the files, or of shards with a * in it, if they are not train,
        dev and test with the ending .csv, .tsv, .jsonl or .parquet, or named as on the hub. The
        test file may be missing; its labels are not read.
      on_null: what is done with a row that has null where it needs a value: "error", or "skip",
        which leaves it out and counts it.
      class_weights: "balanced" if rare classes shall count more in training; "" if not. A class has
        the weight rows / (classes * its rows), as of `sklearn.utils.compute_class_weight`; in
        "multi_label" its labels have the weight (rows without it) / (rows with it).
      focal_gamma: of the focal loss, in which what is learned already counts less; 2 is usual; 0:
        the usual loss. See `bertjax.objectives.task_losses.Settings`.
      soft_share: the share of the soft labels in the loss; that of `label` is the rest.
      temperature: of the soft labels of classes: see `bertjax.objectives.task_losses.Settings`.
    """

    train: str = ""
    dev: str = ""
    test: str = ""
    on_null: str = "error"
    class_weights: str = ""
    focal_gamma: Annotated[float, Meta(ge=0, le=_MOST_GAMMA)] = 0.0
    soft_share: PositiveShare = 0.5
    temperature: Positive = 2.0

    name = "table"
    dev_splits = DEV

    def __post_init__(self):
        check_limits(self)
        problem = self.problem
        require(problem in PROBLEMS, self, "problem", f"must be one of {', '.join(PROBLEMS)}")
        problem_class = PROBLEMS[problem]
        between = "must be one character, which stands between labels"
        require(len(self.separator) == 1, self, "separator", between)
        require(self.on_null in ("error", SKIP), self, "on_null", f"must be error or {SKIP}")
        known = ("", BALANCED)
        require(self.class_weights in known, self, "class_weights", f"must be {BALANCED} or empty")
        untaught = f"{problem} cannot learn from a teacher's predictions: leave it out"
        require(
            not self.soft_label or issubclass(problem_class, Taught), self, "soft_label", untaught
        )
        tagged = problem == "tagging"
        require(tagged or not self.crf, self, "crf", f"{problem} has no tags: set it to False")
        of_classes = problem == "classification"
        without = "" if self.text_b else f"{problem} without text_b"
        check_answers(self, without if of_classes else problem)
        weighted = issubclass(problem_class, Weighted) and not self.crf
        equal = f"{problem} {'with a CRF ' * self.crf}has no classes that could count more or less"
        for name in LOSS:
            require(weighted or not getattr(self, name), self, name, f"{equal}: leave it out")

    @cached_property
    def _folder(self) -> Path:
        """That of `data`; the hub is asked once for all splits."""
        names = {TRAIN: self.train, "dev": self.dev, "test": self.test}
        return table_files.folder_of(self.data, names)

    @cached_property
    def test_splits(self) -> tuple[str, ...]:
        has_test = self.test or table_files.has_split(self._folder, self.data, "test")
        return ("test",) if has_test else ()

    @cached_property
    def _problem(self) -> Problem:
        return PROBLEMS[self.problem](self)

    @cached_property
    def _training(self) -> list[Any]:
        return self._examples(TRAIN)

    @cached_property
    def family(self) -> Family:
        """The family, with the classes of the training file, of which it needs two or more."""
        return self._problem.family(self._training)

    @cached_property
    def objective_settings(self) -> Mapping[str, Any]:
        """The fields of the objective that the config sets."""
        settings: dict[str, Any] = {}
        if self.class_weights:
            assert isinstance(self._problem, Weighted)  # or `__post_init__` raises
            weights = self._problem.balanced(self.family, self._training)
            settings["class_weights"] = tuple(weights.tolist())
        if self.focal_gamma:
            settings["focal_gamma"] = self.focal_gamma
        if self.soft_label:
            settings["soft_share"] = self.soft_share
            if self.problem == "classification":
                settings["temperature"] = self.temperature
        return settings

    @property
    def metric(self) -> str:
        return self._problem.metric(self.family)

    @property
    def columns(self) -> dict[str, str]:
        """Field of new text -> its column, for columns that have another name."""
        columns = {name: getattr(self, name) for name in self.family.fields}
        return {name: column for name, column in columns.items() if column not in ("", name)}

    def read(self, split: str) -> list[Any]:
        """The examples of a split, in order; all labels must be in the training file."""
        if split == TRAIN:
            return self._training
        examples = self._examples(split)
        if split in self.dev_splits:
            self._problem.check(self.family, examples)
        return examples

    def _examples(self, split: str) -> list[Any]:
        paths = table_files.split_files(self._folder, self.data, split, getattr(self, split))
        examples, nulls = [], 0
        for row in read_files(paths):
            try:
                examples.append(self._problem.example(row, split))
            except NullValue as error:
                if self.on_null != SKIP:
                    hint = f"or leave out all such rows by config.task.on_null={SKIP}"
                    raise InputError(f"{error}; {hint}") from error
                nulls += 1
        if nulls:
            read = f"{nulls} rows with null left out, {len(examples)} read"
            print(f"{paths[0].parent}: {split}: {read}", flush=True)
        return official_files.nonempty(examples, paths[0])

    def tune(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
        """See `Task`: the thresholds of several labels or of "no answer", else {}."""
        return self._problem.tune(self.family, examples, predictions)

    def score(
        self, examples: Sequence[Any], predictions: Sequence[Any], settings: Mapping[str, Any]
    ) -> dict[str, float]:
        """The metrics of the problem, in percent."""
        return self._problem.score(self.family, examples, predictions, settings)

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Any],
        predictions: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> None:
        """Writes SPLIT.jsonl; each line has the form of launch/predict.py's output."""
        with atomic_write(folder / f"{split}.jsonl", "w") as file:
            for example, prediction in zip(examples, predictions, strict=True):
                shown = self.family.show(example, prediction, settings)
                file.write(json.dumps(shown, ensure_ascii=False) + "\n")
