"""The user's own data: a table with named columns, for any of five kinds of tasks."""

import abc
import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.tasks import official_files, scores, squad
from bertjax.tasks.classification import (
    STEP_DROPOUT,
    Classification,
    Regression,
    TextPair,
    check_answers,
    classification,
)
from bertjax.tasks.entity_scores import OUTSIDE, accuracy, entity_scores, is_entity_tag
from bertjax.tasks.multi_label import MultiLabel
from bertjax.tasks.question_answering import Answer, Question, QuestionAnswering, Spans
from bertjax.tasks.rows import FORMATS, FileRow, read_rows
from bertjax.tasks.tagging import NO_DOCUMENT, Sentence, Tagging, tagging, tags_of
from bertjax.tasks.task import TRAIN, Family, Task

# Fields of `Table` that say how a task is learned, and not which it is.
LOSS = ("class_weights", "focal_gamma")
SOFT = ("soft_label", "soft_share", "temperature")
_BALANCED = "balanced"
_MOST_GAMMA = 100  # with so much, nothing is learned that is not wrong already
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")


@dataclasses.dataclass(frozen=True)
class Table(Task):
    """A data set in files that `bertjax.tasks.rows` reads, and the meaning of their columns.

    Attributes:
      data: the folder of the files.
      problem: a key of `PROBLEMS`: "classification" (text, text_b -> label), "multi_label" (text,
        text_b -> label, which has any number of labels), "regression" (text, text_b -> label, a
        number), "tagging" (words -> tags) or "questions" (question, context -> answer).
      train, dev, test: the names of the files, if they are not train, dev and test with the ending
        .csv, .tsv, .jsonl or .parquet. The test file may be missing; its labels are not read.
      text, text_b, label: names of columns; text_b is "" for single texts.
      separator: the character between several labels of a text; they may also be a JSON list.
      words, tags: names of columns that hold lists, or texts with spaces between words.
      question, context, answer: names of columns. An empty answer means "no answer"; a JSON list
        holds all right answers, of which training uses the first.
      answer_start: the name of the column with the index of each answer's first character in the
        context. It may be "" if each answer occurs in its context only once.
      max_query_length, stride: see `QuestionAnswering`.
      crf: whether the tags of "tagging" depend on each other (`bertjax.heads.crf`).
      answer_steps, answer_dropout: see `bertjax.tasks.glue.Glue`; of "classification" with text_b.
      class_weights: "balanced" if rare classes shall count more in training; "" if not. A class has
        the weight rows / (classes * its rows), as of `sklearn.utils.compute_class_weight`; in
        "multi_label" its labels have the weight (rows without it) / (rows with it).
      focal_gamma: of the focal loss, in which what is learned already counts less; 2 is usual; 0:
        the usual loss. See `bertjax.objectives.fine_tuning.WeightedObjective`.
      soft_label: the name of a column of the training file with what a teacher predicts: of
        "classification" an object with the probability of each class ("probabilities" in the output
        of launch/predict.py), of "regression" a number ("value"). "": there is none.
      soft_share: the share of the soft labels in the loss; that of `label` is the rest.
      temperature: of the soft labels of classes: see
        `bertjax.objectives.classification.ClassificationObjective`.

    Raises:
      InputError: `problem` is not a key of `PROBLEMS`, or another value is not possible.
      ValueError: see `check_answers`.
    """

    data: str
    problem: str = "classification"
    train: str = ""
    dev: str = ""
    test: str = ""
    text: str = "text"
    text_b: str = ""
    label: str = "label"
    separator: str = ","
    words: str = "words"
    tags: str = "tags"
    question: str = "question"
    context: str = "context"
    answer: str = "answer"
    answer_start: str = ""
    max_query_length: int = 64
    stride: int = 128
    crf: bool = False
    answer_steps: int = 0
    answer_dropout: float = STEP_DROPOUT
    class_weights: str = ""
    focal_gamma: float = 0.0
    soft_label: str = ""
    soft_share: float = 0.5
    temperature: float = 2.0

    name = "table"
    dev_splits = ("dev",)

    def __post_init__(self):
        if self.problem not in PROBLEMS:
            raise InputError(
                f"config.task.problem={self.problem!r}: must be one of {', '.join(PROBLEMS)}"
            )
        if len(self.separator) != 1:
            raise InputError(
                f"config.task.separator={self.separator!r:.80}: must be one character, which "
                "stands between labels"
            )
        if self.class_weights not in ("", _BALANCED):
            raise InputError(
                f"config.task.class_weights={self.class_weights!r:.80}: must be {_BALANCED} or "
                "empty"
            )
        if not 0 <= self.focal_gamma <= _MOST_GAMMA:
            raise InputError(
                f"config.task.focal_gamma={self.focal_gamma}: must be from 0 to {_MOST_GAMMA}"
            )
        if self.soft_label and not issubclass(PROBLEMS[self.problem], _Taught):
            raise InputError(
                f"config.task.soft_label={self.soft_label}: {self.problem} cannot learn from a "
                "teacher's predictions: leave it out"
            )
        if not 0 < self.soft_share <= 1:
            raise InputError(f"config.task.soft_share={self.soft_share}: must be in (0, 1]")
        if not self.temperature > 0:
            raise InputError(f"config.task.temperature={self.temperature}: must be positive")
        if self.crf and self.problem != "tagging":
            raise InputError(f"config.task.crf=True: {self.problem} has no tags: set it to False")
        of_classes = self.problem == "classification"
        without = "" if self.text_b else f"{self.problem} without text_b"
        check_answers(
            self.answer_steps, self.answer_dropout, without if of_classes else self.problem
        )
        if self.crf or not issubclass(PROBLEMS[self.problem], _Weighted):
            for name in LOSS:
                if value := getattr(self, name):
                    raise InputError(
                        f"config.task.{name}={value}: {self.problem} "
                        f"{'with a CRF ' * self.crf}has no classes that could count more or less: "
                        "leave it out"
                    )

    @cached_property
    def test_splits(self) -> tuple[str, ...]:
        has_test = self.test or official_files.exists(Path(self.data), *_names("test"))
        return ("test",) if has_test else ()

    @cached_property
    def _problem(self) -> "_Problem":
        return PROBLEMS[self.problem](self)

    @cached_property
    def _training(self) -> list[Any]:
        return self._examples(TRAIN)

    @cached_property
    def family(self) -> Family:
        """The family, with the classes of the training file.

        Raises:
          InputError: see `read`; also if the training file has only one class.
        """
        return self._problem.family(self._training)

    @cached_property
    def objective_settings(self) -> Mapping[str, Any]:
        """The fields of the objective that the config sets.

        Raises:
          InputError: see `family`; also if a label of "multi_label" is that of every row.
        """
        settings: dict[str, Any] = {}
        if self.class_weights:
            assert isinstance(self._problem, _Weighted)  # or `__post_init__` raises
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
        """The examples of a split, in order.

        Raises:
          InputError: the file is missing, has no rows or lacks a column; a text is empty; a label
            is missing or is not in the training file; an answer is not in its context.
        """
        if split == TRAIN:
            return self._training
        examples = self._examples(split)
        if split in self.dev_splits:
            self._problem.check(self.family, examples)
        return examples

    def _examples(self, split: str) -> list[Any]:
        given = getattr(self, split)
        names = (given,) if given else _names(split)
        rows = read_rows(Path(self.data), *names)
        examples = [self._problem.example(row, split) for row in rows]
        if not examples:
            raise InputError(f"{official_files.find(Path(self.data), *names)}: no row in it")
        return examples

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


def _names(split: str) -> tuple[str, ...]:
    return tuple(split + suffix for suffix in FORMATS)


# ------------------------------------------------------------------------------- the problems


class _Problem(abc.ABC):
    """How rows become examples, and how the examples become a family and scores."""

    def __init__(self, table: Table):
        self._table = table

    @abc.abstractmethod
    def example(self, row: FileRow, split: str) -> Any: ...

    @abc.abstractmethod
    def family(self, training: Sequence[Any]) -> Family: ...

    @abc.abstractmethod
    def metric(self, family: Any) -> str: ...

    @abc.abstractmethod
    def check(self, family: Any, examples: Sequence[Any]) -> None:
        """Raises InputError for a label that is not in the training file."""

    def tune(
        self, family: Any, examples: Sequence[Any], predictions: Sequence[Any]
    ) -> dict[str, Any]:
        return {}

    @abc.abstractmethod
    def score(
        self,
        family: Any,
        examples: Sequence[Any],
        predictions: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> dict[str, float]: ...


class _Weighted(_Problem):
    """A problem whose classes may have weights."""

    @abc.abstractmethod
    def balanced(self, family: Any, training: Sequence[Any]) -> np.ndarray:
        """float64 [C], the weights of "balanced": see `Table`."""


class _Texts(_Problem):
    """Texts, or pairs of them, with a label."""

    def example(self, row: FileRow, split: str) -> TextPair:
        table = self._table
        a = row.text(table.text)
        b = row.text(table.text_b) if table.text_b else None
        label = self._label(row) if split in (TRAIN, *table.dev_splits) else None
        return TextPair(str(row.number), a, b, label, row.where)

    @abc.abstractmethod
    def _label(self, row: FileRow) -> str | tuple[str, ...] | float: ...


class _Taught(_Texts):
    """A problem that can learn from a teacher's predictions."""

    def example(self, row: FileRow, split: str) -> TextPair:
        example = super().example(row, split)
        taught = split == TRAIN and self._table.soft_label
        return example._replace(soft=self._soft(row)) if taught else example

    @abc.abstractmethod
    def _soft(self, row: FileRow) -> Mapping[str, float] | float: ...


class _Classes(_Taught, _Weighted):
    def _label(self, row: FileRow) -> str:
        return row.label(self._table.label)

    def _soft(self, row: FileRow) -> dict[str, float]:
        return row.probabilities(self._table.soft_label)

    def family(self, training: Sequence[TextPair]) -> Classification:
        labels = [(str(example.label), example.where) for example in training]
        _check_alike(labels)
        classes = _in_order({label for label, _ in labels})
        if len(classes) == 1:
            raise InputError(
                f"{self._table.data}: every row of the training file has the label {classes[0]!r}"
            )
        table = self._table
        pairs = bool(table.text_b)
        return classification(classes, pairs, table.answer_steps, table.answer_dropout)

    def balanced(self, family: Classification, training: Sequence[TextPair]) -> np.ndarray:
        return _balanced(family.label_ids(training))

    def metric(self, family: Classification) -> str:
        return "accuracy"

    def check(self, family: Classification, examples: Sequence[TextPair]) -> None:
        family.label_ids(examples)

    def score(
        self,
        family: Classification,
        examples: Sequence[TextPair],
        predictions: Sequence[np.ndarray],
        settings: Mapping[str, Any],
    ) -> dict[str, float]:
        gold, chosen = family.label_ids(examples), np.argmax(predictions, axis=-1)
        result = {
            "accuracy": scores.accuracy(gold, chosen),
            "macro_f1": scores.macro_f1(gold, chosen),
        }
        # This is the F1 of the second class, which is usually "1", "true" or "yes".
        return result | ({"f1": scores.f1(gold, chosen)} if len(family.classes) == 2 else {})


def _balanced(label_ids: np.ndarray) -> np.ndarray:
    """The weights of classes of which each occurs."""
    counts = np.bincount(label_ids)
    return len(label_ids) / (len(counts) * counts)


class _Labels(_Texts, _Weighted):
    """Texts with any number of labels."""

    def _label(self, row: FileRow) -> tuple[str, ...]:
        return row.labels(self._table.label, self._table.separator)

    def family(self, training: Sequence[TextPair]) -> MultiLabel:
        labels = [
            (label, example.where)
            for example in training
            if isinstance(example.label, tuple)
            for label in example.label
        ]
        _check_alike(labels)
        if not labels:
            raise InputError(f"{self._table.data}: no row of the training file has a label")
        classes = _in_order({label for label, _ in labels})
        return MultiLabel(classes, pairs=bool(self._table.text_b))

    def balanced(self, family: MultiLabel, training: Sequence[TextPair]) -> np.ndarray:
        with_it = family.targets(training).sum(0)
        without = len(training) - with_it
        if not without.all():
            raise InputError(
                f"config.task.class_weights={_BALANCED}: every row of the training file has the "
                f"label {family.classes[without.argmin()]!r}, whose weight would be 0: leave it out"
            )
        return without / with_it

    def metric(self, family: MultiLabel) -> str:
        return "macro_f1"  # whose thresholds `tune` chooses

    def check(self, family: MultiLabel, examples: Sequence[TextPair]) -> None:
        family.targets(examples)

    def tune(
        self, family: MultiLabel, examples: Sequence[TextPair], predictions: Sequence[np.ndarray]
    ) -> dict[str, Any]:
        return family.tune(examples, predictions)

    def score(
        self,
        family: MultiLabel,
        examples: Sequence[TextPair],
        predictions: Sequence[np.ndarray],
        settings: Mapping[str, Any],
    ) -> dict[str, float]:
        return family.score(examples, predictions, settings)


def _check_alike(labels: Iterable[tuple[str, str]]) -> None:
    """Raises InputError for labels that differ only by white space, or like `1` and `1.0`.

    Args:
      labels: (label, its place in the file).
    """
    first: dict[str, tuple[str, str]] = {}
    for label, where in labels:
        key = " ".join(label.split())
        key = str(Decimal(key).normalize()) if _NUMBER.fullmatch(key) else key
        other, there = first.setdefault(key, (label, where))
        if other != label:
            raise InputError(
                f"{where}: the label {label!r} is not that of {there}, {other!r}, but nearly: if "
                "they are one class, write it in one way"
            )


def _in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Sorts labels: first whole numbers by value, then the others in alphabetical order."""

    def key(label: str) -> tuple[bool, int, str]:
        number = label.removeprefix("-").isdecimal()
        return not number, int(label) if number else 0, label

    return tuple(sorted(labels, key=key))


class _Numbers(_Taught):
    def _label(self, row: FileRow) -> float:
        return row.real(self._table.label)

    def _soft(self, row: FileRow) -> float:
        return row.real(self._table.soft_label)

    def family(self, training: Sequence[TextPair]) -> Regression:
        return Regression(pairs=bool(self._table.text_b))

    def metric(self, family: Regression) -> str:
        return "spearman"

    def check(self, family: Regression, examples: Sequence[TextPair]) -> None:
        family.targets(examples)

    def score(
        self,
        family: Regression,
        examples: Sequence[TextPair],
        predictions: Sequence[float],
        settings: Mapping[str, Any],
    ) -> dict[str, float]:
        gold = family.targets(examples)
        return {
            "spearman": scores.spearman(gold, predictions),
            "pearson": scores.pearson(gold, predictions),
        }


class _Tags(_Weighted):
    """A class for each word, scored as entities if all are entity tags (B-TYPE, I-TYPE, O)."""

    def example(self, row: FileRow, split: str) -> Sentence:
        words = row.texts(self._table.words)
        if not words:
            raise InputError(f"{row.where}: {self._table.words!r} is empty")
        tags = row.texts(self._table.tags) if split in (TRAIN, *self._table.dev_splits) else None
        return Sentence(words, tags, NO_DOCUMENT, row.where)

    def family(self, training: Sequence[Sentence]) -> Tagging:
        _check_alike((tag, sentence.where) for sentence in training for tag in sentence.gold)
        classes = _in_order(tags_of(training, self._table.data))
        entity_tags = [tag for tag in classes if tag != OUTSIDE and is_entity_tag(tag)]
        others = [tag for tag in classes if not is_entity_tag(tag)]
        if OUTSIDE in classes and entity_tags and others:
            first = next(s.where for s in training if not set(others).isdisjoint(s.gold))
            print(
                f"warning: {first}: {others[0]!r} is not an entity tag (O, B-TYPE, I-TYPE), but "
                f"{entity_tags[0]!r} is: all tags are scored as classes of words. If they mark "
                "entities, correct it",
                flush=True,
            )
        return tagging(classes, document_context=False, crf=self._table.crf)

    def balanced(self, family: Tagging, training: Sequence[Sentence]) -> np.ndarray:
        return _balanced(family.class_ids(training))

    def metric(self, family: Tagging) -> str:
        return "f1" if _of_entities(family) else "accuracy"

    def check(self, family: Tagging, examples: Sequence[Sentence]) -> None:
        family.class_ids(examples)

    def score(
        self,
        family: Tagging,
        examples: Sequence[Sentence],
        predictions: Sequence[np.ndarray],
        settings: Mapping[str, Any],
    ) -> dict[str, float]:
        gold = [sentence.gold for sentence in examples]
        predicted = list(map(family.tags, predictions))
        if _of_entities(family):
            return entity_scores(gold, predicted)
        return {"accuracy": accuracy(gold, predicted)}


def _of_entities(family: Tagging) -> bool:
    return all(map(is_entity_tag, family.classes))


class _Questions(_Problem):
    """Questions whose answers are in a paragraph."""

    def example(self, row: FileRow, split: str) -> Question:
        table = self._table
        context = row.text(table.context)
        labelled = split in (TRAIN, *table.dev_splits)
        answers = tuple(self._answers(row, context, split)) if labelled else ()
        return Question(
            str(row.number),
            row.text(table.question),
            context,
            answers,
            impossible=not answers,
            where=row.where,
        )

    def _answers(self, row: FileRow, context: str, split: str) -> Iterator[Answer]:
        table = self._table
        texts = _listed(row.value(table.answer))
        starts = _listed(row.value(table.answer_start)) if table.answer_start else []
        if starts and len(starts) != len(texts):
            raise InputError(
                f"{row.where}: {len(texts)} answers in {table.answer!r}, but {len(starts)} places "
                f"in {table.answer_start!r}"
            )
        for number, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip() or text not in context:
                raise InputError(
                    f"{row.where}: {table.answer!r} {text!r:.80} does not stand in its context"
                )
            if starts:
                start = _start(row, table.answer_start, starts[number])
                if split == TRAIN and not context.startswith(text, start):
                    raise InputError(
                        f"{row.where}: {table.answer!r} {text!r:.80} does not stand in its context "
                        f"at {start}, as {table.answer_start!r} says (in characters, from 0)"
                    )
                yield Answer(text, start)
                continue
            # Only training needs an answer's position, and it uses the first answer.
            is_learned = split == TRAIN and number == 0
            if is_learned and context.find(text) != context.rfind(text):
                raise InputError(
                    f"{row.where}: {table.answer!r} {text!r:.80} stands in its context more than "
                    "once: give the character it starts at in a column, as config.task.answer_start"
                )
            yield Answer(text, context.find(text))

    def family(self, training: Sequence[Question]) -> QuestionAnswering:
        return QuestionAnswering(
            unanswerable=any(question.impossible for question in training),
            max_query_length=self._table.max_query_length,
            stride=self._table.stride,
        )

    def metric(self, family: QuestionAnswering) -> str:
        return "f1_tuned" if family.unanswerable else "f1"

    def check(self, family: QuestionAnswering, examples: Sequence[Question]) -> None:
        for example in examples:
            if example.impossible and not family.unanswerable:
                raise InputError(
                    f"{example.where}: {self._table.answer!r} is empty, but all questions of the "
                    "training file have answers"
                )

    def tune(
        self, family: QuestionAnswering, examples: Sequence[Question], predictions: Sequence[Spans]
    ) -> dict[str, Any]:
        return squad.tune(examples, predictions) if family.unanswerable else {}

    def score(
        self,
        family: QuestionAnswering,
        examples: Sequence[Question],
        predictions: Sequence[Spans],
        settings: Mapping[str, Any],
    ) -> dict[str, float]:
        return squad.score(examples, predictions, settings)


def _listed(value: Any) -> list[Any]:
    """Returns a list unchanged, [] for None or an empty text, and [value] for another value."""
    if isinstance(value, list):
        return value
    return [] if value in (None, "") else [value]


def _start(row: FileRow, column: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise InputError(f"{row.where}: {column!r} is {value!r:.80}, not a whole number") from None


PROBLEMS: dict[str, type[_Problem]] = {
    "classification": _Classes,
    "multi_label": _Labels,
    "regression": _Numbers,
    "tagging": _Tags,
    "questions": _Questions,
}
