"""SuperGLUE (arXiv 1905.00537): its tasks, metrics, diagnostic sets and the leaderboard's files."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.base.limits import Free, require
from bertjax.tasks import official_files, scores, superglue_rows
from bertjax.tasks.choice import MultipleChoice
from bertjax.tasks.classification import Classification, TextPair, class_ids
from bertjax.tasks.leaderboard import write_zip
from bertjax.tasks.rows import FileRow, read_rows
from bertjax.tasks.squad_scores import exact_and_f1
from bertjax.tasks.superglue_rows import CHOICES, Candidate, of_columns
from bertjax.tasks.task import TRAIN, Task

_FILES = {
    TRAIN: "train.jsonl",
    "dev": "val.jsonl",
    "test": "test.jsonl",
    "AX-b": "AX-b.jsonl",
    "AX-g": "AX-g.jsonl",
}


class _Set(NamedTuple):
    """The format of one task."""

    classes: tuple[str, ...]  # as the leaderboard writes them; () for COPA
    examples: Callable[[FileRow, bool], Iterator[Any]]  # of a row, which may have labels
    metric: str = "accuracy"


_TRUTH = ("false", "true")
_NLI = ("contradiction", "entailment", "neutral")
_ENTAILED = ("entailment", "not_entailment")
_HYPOTHESIS = of_columns("premise", "hypothesis")
SETS = {
    "BoolQ": _Set(_TRUTH, of_columns("passage", "question")),
    "CB": _Set(_NLI, _HYPOTHESIS, "mean"),
    "COPA": _Set((), superglue_rows.copa),
    "MultiRC": _Set(("0", "1"), superglue_rows.multirc, "mean"),
    "ReCoRD": _Set(_TRUTH, superglue_rows.record, "mean"),
    "RTE": _Set(_ENTAILED, _HYPOTHESIS),
    "WiC": _Set(_TRUTH, superglue_rows.wic),
    "WSC": _Set(("False", "True"), superglue_rows.wsc),
}

# The diagnostic sets, predicted by the model of RTE -> how their rows are read.
DIAGNOSTICS = {"AX-b": of_columns("sentence1", "sentence2"), "AX-g": _HYPOTHESIS}

# The files that the leaderboard takes: (task, split) -> (file, number of rows).
SUBMITTED = {
    ("BoolQ", "test"): ("BoolQ.jsonl", 3245),
    ("CB", "test"): ("CB.jsonl", 250),
    ("COPA", "test"): ("COPA.jsonl", 500),
    ("MultiRC", "test"): ("MultiRC.jsonl", 166),
    ("ReCoRD", "test"): ("ReCoRD.jsonl", 10000),
    ("RTE", "test"): ("RTE.jsonl", 3000),
    ("RTE", "AX-b"): ("AX-b.jsonl", 1104),
    ("RTE", "AX-g"): ("AX-g.jsonl", 356),
    ("WiC", "test"): ("WiC.jsonl", 1400),
    ("WSC", "test"): ("WSC.jsonl", 146),
}


@dataclasses.dataclass(frozen=True)
class SuperGlue(Task):
    """One task of SuperGLUE.

    Attributes:
      data: the folder of all tasks, as SuperGLUE's download makes it, or the folder of this task;
        it has train.jsonl, val.jsonl and perhaps test.jsonl, which may be compressed. RTE also
        predicts the diagnostic sets, AX-b/AX-b.jsonl and AX-g/AX-g.jsonl, if there are such.
      name: a key of `bertjax.tasks.superglue.SETS`.
    """

    data: Free[str]
    name: str

    dev_splits = ("dev",)

    def __post_init__(self):
        require(self.name in SETS, self, "name", f"must be one of {', '.join(SETS)}, or all")

    @property
    def _set(self) -> _Set:
        return SETS[self.name]

    @property
    def family(self) -> Classification | MultipleChoice:
        classes = self._set.classes
        return Classification(classes, pairs=True) if classes else MultipleChoice(len(CHOICES))

    @property
    def metric(self) -> str:
        return self._set.metric

    @cached_property
    def test_splits(self) -> tuple[str, ...]:
        splits = ("test", *DIAGNOSTICS) if self.name == "RTE" else ("test",)
        return tuple(s for s in splits if official_files.exists(self._folder(s), _FILES[s]))

    def _folder(self, split: str) -> Path:
        data = Path(self.data)
        places = [data / (split if split in DIAGNOSTICS else self.name), data]
        found = (place for place in places if official_files.exists(place, _FILES[split]))
        return next(found, places[0])

    def read(self, split: str) -> list[Any]:
        """The examples of a split, in the order of its file; test splits have no labels."""
        labelled, folder = split not in ("test", *DIAGNOSTICS), self._folder(split)
        rows, read = read_rows(folder, _FILES[split]), DIAGNOSTICS.get(split, self._set.examples)
        examples = itertools.chain.from_iterable(read(row, labelled) for row in rows)
        classified = map(self._classified, examples) if self._set.classes and labelled else examples
        return official_files.nonempty(classified, folder / _FILES[split], "example")

    def _classified(self, example: TextPair | Candidate) -> TextPair | Candidate:
        """The example with its class as the leaderboard writes it: JSON's true may be "True"."""
        number_of = {name.lower(): number for number, name in enumerate(self._set.classes)}
        (number,) = class_ids([str(example.label).lower()], number_of, example.where)
        return example._replace(label=self._set.classes[number])

    def rows(self, examples: Sequence[Any]) -> int:
        """The rows of the leaderboard's file with these examples."""
        return sum(1 for _ in self._answers(examples, np.zeros((len(examples), 2))))

    def tune(self, examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, Any]:
        """See `Task`: this task has no settings."""
        return {}

    def score(
        self, examples: Sequence[Any], predictions: Sequence[Any], settings: Mapping[str, Any]
    ) -> dict[str, float]:
        """SuperGLUE's metrics of the task in percent; of two metrics also the mean, as there."""
        if self.name == "ReCoRD":
            return _with_mean(**_entity_scores(examples, predictions))
        gold, chosen = self.family.label_ids(examples), np.argmax(predictions, axis=-1)
        if self.name == "MultiRC":
            right = [all(gold[rows] == chosen[rows]) for rows in _questions(examples)]
            return _with_mean(f1=scores.f1(gold, chosen), exact=100 * float(np.mean(right)))
        accuracy = scores.accuracy(gold, chosen)
        if self.name == "CB":
            return _with_mean(accuracy=accuracy, macro_f1=scores.macro_f1(gold, chosen))
        return {"accuracy": accuracy}

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Any],
        predictions: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> None:
        """Writes a split in the leaderboard's form: that of `SUBMITTED`, or NAME-dev.jsonl."""
        name, _ = SUBMITTED.get((self.name, split), (f"{self.name}-{split}.jsonl", 0))
        with atomic_write(folder / name, "w") as file:
            for answer in self._answers(examples, predictions):
                file.write(json.dumps(answer) + "\n")

    def _answers(
        self, examples: Sequence[Any], predictions: Sequence[Any] | np.ndarray
    ) -> Iterator[dict[str, Any]]:
        if self.name == "ReCoRD":
            for best in _best(examples, predictions):
                yield {"idx": int(best.id), "label": best.answer}
        elif self.name == "MultiRC":
            yield from _passages(examples, np.argmax(predictions, axis=-1))
        else:
            for example, prediction in zip(examples, predictions, strict=True):
                chosen = int(np.argmax(prediction))
                label = self._set.classes[chosen] if self._set.classes else chosen
                yield {"idx": int(example.id), "label": label}


def _with_mean(**pair: float) -> dict[str, float]:
    return {"mean": sum(pair.values()) / len(pair)} | pair


def _questions(examples: Sequence[Candidate]) -> list[list[int]]:
    """The candidates of each question, by their positions."""
    rows: dict[str, list[int]] = {}
    for number, example in enumerate(examples):
        rows.setdefault(example.id, []).append(number)
    return list(rows.values())


def _best(examples: Sequence[Candidate], predictions: Iterable[np.ndarray]) -> list[Candidate]:
    """The candidate of each question that is most probably right."""
    right = [prediction[1] for prediction in predictions]
    return [examples[max(rows, key=right.__getitem__)] for rows in _questions(examples)]


def _entity_scores(
    examples: Sequence[Candidate], predictions: Sequence[np.ndarray]
) -> dict[str, float]:
    best = _best(examples, predictions)
    pairs = [exact_and_f1(each.answer, each.golds, unanswerable=False) for each in best]
    exact, f1 = 100 * np.mean(pairs, axis=0)
    return {"f1": float(f1), "exact": float(exact)}


def _passages(examples: Sequence[Candidate], chosen: np.ndarray) -> Iterator[dict[str, Any]]:
    """The answers of MultiRC, by passage and by question."""
    passages: dict[int, dict[str, list[Any]]] = {}
    for example, label in zip(examples, chosen, strict=True):
        answers = passages.setdefault(example.passage, {}).setdefault(example.id, [])
        answers.append({"idx": example.number, "label": int(label)})
    for passage, questions in passages.items():
        listed = [{"idx": int(number), "answers": each} for number, each in questions.items()]
        yield {"idx": passage, "passage": {"questions": listed}}


def submission(runs: Mapping[str, Path], output: Path) -> None:
    """Writes the leaderboard's zip file from the predictions of all tasks.

    `runs` maps each task of `SETS` to the folder that `SuperGlue.write` wrote the test splits into.
    The errors are those of `bertjax.tasks.leaderboard.write_zip`.
    """
    write_zip(SUBMITTED, runs, output, _checked)


def _checked(path: Path, rows: int) -> str:
    text = path.read_text(encoding="utf-8")
    if (found := text.count("\n")) != rows:
        raise InputError(
            f"{path}: {found} predictions; the official test set has {rows}: predict it again from "
            "SuperGLUE's own test file"
        )
    return text
