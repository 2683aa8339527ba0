"""The problems of a table: how its columns become examples, a family of tasks, and scores."""

import abc
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, TypedDict

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.limits import Count, FewOrNone, Free, Rate
from bertjax.base.validation import converted, integer
from bertjax.tasks import scores, squad
from bertjax.tasks.classification import (
    STEP_DROPOUT,
    Classification,
    Regression,
    TextPair,
    classification,
)
from bertjax.tasks.entity_scores import OUTSIDE, accuracy, entity_scores, is_entity_tag
from bertjax.tasks.multi_label import MultiLabel
from bertjax.tasks.question_answering import Answer, Question, QuestionAnswering, Spans
from bertjax.tasks.rows import FileRow
from bertjax.tasks.tagging import NO_DOCUMENT, Sentence, Tagging, tagging, tags_of
from bertjax.tasks.task import TRAIN, Family

BALANCED = "balanced"  # of class_weights
DEV = ("dev",)
_LABELLED = (TRAIN, *DEV)  # the splits whose labels are read
_ALIKE = re.compile(r"[A-Z][-_.:/|].+")  # like an entity tag, as B_PER and M-PER
_NUMBER, _WHOLE = re.compile(r"[+-]?\d+(\.\d*)?"), re.compile("-?[0-9]+")


@dataclasses.dataclass(frozen=True)
class Columns:
    """The problem of a table, its columns by their names, and how they are read.

    Attributes:
      data: the folder of the files.
      problem: a key of `PROBLEMS`: "classification" (text, text_b -> label), "multi_label" (text,
        text_b -> label, which has any number of labels), "regression" (text, text_b -> label, a
        number), "tagging" (words -> tags) or "questions" (question, context -> answer).
      text, text_b, label: names of columns; text_b is "" for single texts.
      separator: the character between several labels of a text; they may also be a JSON list.
      words, tags: names of columns that hold lists, or texts with spaces between words.
      question, context, answer: names of columns. An empty answer means "no answer"; a JSON list
        holds all right answers, of which training uses the first; so does SQuAD's "answers" of the
        hub, an object that has their "text" and their "answer_start".
      answer_start: the name of the column with the index of each answer's first character in the
        context. It may be "" if each answer occurs in its context only once.
      max_query_length, stride: see `QuestionAnswering`.
      crf: whether the tags of "tagging" depend on each other (`bertjax.models.heads.crf`).
      answer_steps, answer_dropout: see `bertjax.tasks.glue.Glue`; of "classification" with text_b.
      soft_label: the name of a column of the training file with what a teacher predicts: of
        "classification" an object with the probability of each class ("probabilities" in the output
        of launch/predict.py), of "regression" a number ("value"). "": there is none.
    """

    data: Free[str]
    problem: str = "classification"
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
    max_query_length: Count = 64
    stride: Count = 128
    crf: bool = False
    answer_steps: FewOrNone = 0
    answer_dropout: Rate = STEP_DROPOUT
    soft_label: str = ""


class Problem(abc.ABC):
    """How rows become examples, and how the examples become a family and scores."""

    def __init__(self, columns: Columns):
        self._columns = columns

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


class Weighted(Problem):
    """A problem whose classes may have weights."""

    @abc.abstractmethod
    def balanced(self, family: Any, training: Sequence[Any]) -> np.ndarray:
        """float64 [C], the weights of "balanced": see `bertjax.tasks.table.Table`."""


class _Texts(Problem):
    """Texts, or pairs of them, with a label."""

    def example(self, row: FileRow, split: str) -> TextPair:
        columns = self._columns
        a = row.text(columns.text)
        b = row.text(columns.text_b) if columns.text_b else None
        label = self._label(row) if split in _LABELLED else None
        return TextPair(str(row.number), a, b, label, row.where)

    @abc.abstractmethod
    def _label(self, row: FileRow) -> str | tuple[str, ...] | float: ...


class Taught(_Texts):
    """A problem that can learn from a teacher's predictions."""

    def example(self, row: FileRow, split: str) -> TextPair:
        example = super().example(row, split)
        taught = split == TRAIN and self._columns.soft_label
        return example._replace(soft=self._soft(row)) if taught else example

    @abc.abstractmethod
    def _soft(self, row: FileRow) -> Mapping[str, float] | float: ...


class _Classes(Taught, Weighted):
    def _label(self, row: FileRow) -> str:
        return row.label(self._columns.label)

    def _soft(self, row: FileRow) -> dict[str, float]:
        return row.probabilities(self._columns.soft_label)

    def family(self, training: Sequence[TextPair]) -> Classification:
        labels = [(str(example.label), example.where) for example in training]
        _check_alike(labels)
        classes = _sorted_labels({label for label, _ in labels})
        if len(classes) == 1:
            raise InputError(
                f"{self._columns.data}: every row of the training file has the label {classes[0]!r}"
            )
        columns = self._columns
        pairs = bool(columns.text_b)
        return classification(classes, pairs, columns.answer_steps, columns.answer_dropout)

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
    counts = np.bincount(label_ids)
    return len(label_ids) / (len(counts) * counts)


class _Labels(_Texts, Weighted):
    """Texts with any number of labels."""

    def _label(self, row: FileRow) -> tuple[str, ...]:
        return row.labels(self._columns.label, self._columns.separator)

    def family(self, training: Sequence[TextPair]) -> MultiLabel:
        labels = [
            (label, example.where)
            for example in training
            if isinstance(example.label, tuple)
            for label in example.label
        ]
        _check_alike(labels)
        if not labels:
            raise InputError(f"{self._columns.data}: no row of the training file has a label")
        classes = _sorted_labels({label for label, _ in labels})
        return MultiLabel(classes, pairs=bool(self._columns.text_b))

    def balanced(self, family: MultiLabel, training: Sequence[TextPair]) -> np.ndarray:
        with_it = family.targets(training).sum(0)
        without = len(training) - with_it
        if not without.all():
            raise InputError(
                f"config.task.class_weights={BALANCED}: every row of the training file has the "
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
    """Raises InputError for labels that differ only by white space, or like `1` and `1.0`."""
    first: dict[str, tuple[str, str]] = {}
    for label, where in labels:
        key = " ".join(label.split())
        if _NUMBER.fullmatch(key):
            key = str(Decimal(key).normalize(Context(prec=len(key))))
        other, there = first.setdefault(key, (label, where))
        if other != label:
            raise InputError(
                f"{where}: the label {label!r} is not that of {there}, {other!r}, but nearly: if "
                "they are one class, write it in one way"
            )


def _sorted_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """Sorts labels: first whole numbers by value, then the others in alphabetical order."""

    def key(label: str) -> tuple[bool, Decimal, str]:
        is_number = _WHOLE.fullmatch(label) is not None
        return not is_number, Decimal(label if is_number else 0), label

    return tuple(sorted(labels, key=key))


class _Numbers(Taught):
    def _label(self, row: FileRow) -> float:
        return row.real(self._columns.label)

    def _soft(self, row: FileRow) -> float:
        return row.real(self._columns.soft_label)

    def family(self, training: Sequence[TextPair]) -> Regression:
        return Regression(pairs=bool(self._columns.text_b))

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


class _Tags(Weighted):
    """A class for each word, scored as entities if all are entity tags (B-TYPE, I-TYPE, O)."""

    def example(self, row: FileRow, split: str) -> Sentence:
        words = row.texts(self._columns.words)
        if not words:
            raise InputError(f"{row.where}: {self._columns.words!r} is empty")
        tags = row.texts(self._columns.tags) if split in _LABELLED else None
        return Sentence(words, tags, NO_DOCUMENT, row.where)

    def family(self, training: Sequence[Sentence]) -> Tagging:
        _check_alike((tag, sentence.where) for sentence in training for tag in sentence.gold)
        classes = _sorted_labels(tags_of(training, self._columns.data))
        entity_tags = [tag for tag in classes if tag != OUTSIDE and is_entity_tag(tag)]
        words = [tag for tag in classes if not is_entity_tag(tag)]
        if OUTSIDE in classes and words and (entity_tags or all(map(_ALIKE.fullmatch, words))):
            first = next(s.where for s in training if not set(words).isdisjoint(s.gold))
            but = f", but {entity_tags[0]!r} is" if entity_tags else ""
            print(
                f"warning: {first}: {words[0]!r} is not an entity tag (O, B-TYPE, I-TYPE){but}: "
                "all tags are scored as classes of words. If they mark entities, correct it",
                flush=True,
            )
        return tagging(classes, document_context=False, crf=self._columns.crf)

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


class _Answers(TypedDict):
    text: list[str]
    answer_start: list[int]


class _Questions(Problem):
    """Questions whose answers are in a paragraph."""

    def example(self, row: FileRow, split: str) -> Question:
        columns = self._columns
        context = row.text(columns.context)
        labelled = split in _LABELLED
        answers = tuple(self._answers(row, context, split)) if labelled else ()
        return Question(
            str(row.number),
            row.text(columns.question),
            context,
            answers,
            impossible=not answers,
            where=row.where,
        )

    def _answers(self, row: FileRow, context: str, split: str) -> Iterator[Answer]:
        columns = self._columns
        value = row.value(columns.answer)
        if isinstance(value, dict):  # as the hub has SQuAD
            both = converted(value, _Answers, f"{row.where}: {columns.answer}")
            texts, listed_starts = both["text"], both["answer_start"]
        else:
            starts_there = row.value(columns.answer_start) if columns.answer_start else None
            texts, listed_starts = _listed(value), _listed(starts_there)
        starts = [start for start in map(integer, listed_starts) if start is not None]
        row.require(len(starts) == len(listed_starts), columns.answer_start, "not a whole number")
        if starts and len(starts) != len(texts):
            raise InputError(
                f"{row.where}: {len(texts)} answers in {columns.answer!r}, but {len(starts)} "
                f"places in {columns.answer_start!r}"
            )
        for number, text in enumerate(texts):
            # Only training needs an answer's position, and it uses the first answer.
            is_learned, problem = split == TRAIN and number == 0, ""
            if not isinstance(text, str) or not text.strip() or text not in context:
                problem = "does not stand in its context"
            elif starts and split == TRAIN and not context.startswith(text, starts[number]):
                says = f"as {columns.answer_start!r} says (in characters, from 0)"
                problem = f"does not stand in its context at {starts[number]}, {says}"
            elif not starts and is_learned and context.find(text) != context.rfind(text):
                hint = "give the character it starts at in a column, as config.task.answer_start"
                problem = f"stands in its context more than once: {hint}"
            if problem:
                raise InputError(f"{row.where}: {columns.answer!r} {text!r:.80} {problem}")
            yield Answer(text, starts[number] if starts else context.find(text))

    def family(self, training: Sequence[Question]) -> QuestionAnswering:
        return QuestionAnswering(
            unanswerable=any(question.impossible for question in training),
            max_query_length=self._columns.max_query_length,
            stride=self._columns.stride,
        )

    def metric(self, family: QuestionAnswering) -> str:
        return "f1_tuned" if family.unanswerable else "f1"

    def check(self, family: QuestionAnswering, examples: Sequence[Question]) -> None:
        for example in examples:
            if example.impossible and not family.unanswerable:
                raise InputError(
                    f"{example.where}: {self._columns.answer!r} is empty, but all questions of the "
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
    if isinstance(value, list):
        return value
    return [] if value in (None, "") else [value]


PROBLEMS: dict[str, type[Problem]] = {
    "classification": _Classes,
    "multi_label": _Labels,
    "regression": _Numbers,
    "tagging": _Tags,
    "questions": _Questions,
}
