"""Predicts a class or a number from one or two texts (section 4.1, Figure 4a and b)."""

import abc
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, NamedTuple, NotRequired

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.limits import require
from bertjax.base.progress import tracked
from bertjax.base.validation import record
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.probabilities import combined, softmax
from bertjax.tasks.rows import json_object, looks_like_json
from bertjax.tasks.task import Outputs
from bertjax.text.pairs import SEPARATOR, fitting
from bertjax.text.tokenizer import Tokenizer

# Fields of a task that say how the classes of pairs are read
# (`bertjax.models.heads.answer_network`).
_PAIR = record(text=str, text_b=NotRequired[str | None])
ANSWERS = ("answer_steps", "answer_dropout")
STEP_DROPOUT = 0.1  # that of namisan/mt-dnn
_AT_ONCE = 10_000  # the number of examples that are tokenized together


class TextPair(NamedTuple):
    """One or two texts and their label.

    Attributes:
      b: the second text; None if the example has a single text.
      label: a class, several classes or a number; None if it is not known.
      where: the file and line, for messages.
      soft: what a teacher gave: the probability of each class, or a number; None: nothing.
    """

    id: str
    a: str
    b: str | None
    label: str | tuple[str, ...] | float | None
    where: str
    soft: Any = None


class OfTexts(abc.ABC):
    """What families of one or two texts share; `pairs` is None if it is not known."""

    fields: ClassVar[tuple[str, ...]] = ("text", "text_b")
    pairs: bool | None

    @abc.abstractmethod
    def labels(self, examples: Sequence[TextPair]) -> dict[str, np.ndarray]:
        """The labels of the examples, as the objective names them."""

    def encode(
        self, examples: Sequence[TextPair], tokenizer: Tokenizer, max_length: int, *, labelled: bool
    ) -> Encoded:
        labels = self.labels(examples) if labelled else {}
        pairs = [(example.a, example.b) for example in examples]
        return encoded_pairs(pairs, tokenizer, max_length, labels)

    def parse(self, line: str, where: str) -> TextPair:
        """An example from "A", "A ||| B" or {"text": "A", "text_b": "B"}."""
        return parse_pair(line, where, self.pairs)


@dataclasses.dataclass(frozen=True)
class Classification(OfTexts):
    """The family of classification tasks; a prediction is float64 [C], as `classes` are."""

    classes: tuple[str, ...]
    pairs: bool | None = None

    objective: ClassVar[str] = "sequence_classification"

    def labels(self, examples: Sequence[TextPair]) -> dict[str, np.ndarray]:
        soft = {}
        if examples and examples[0].soft is not None:
            soft["soft_labels"] = np.stack([self._soft(example) for example in examples])
        return {"label_ids": self.label_ids(examples), **soft}

    def _soft(self, example: TextPair) -> np.ndarray:
        """float32 [C], the probabilities of a teacher, which must be of these classes."""
        soft = example.soft
        if not isinstance(soft, Mapping) or soft.keys() != set(self.classes):
            raise InputError(
                f"{example.where}: soft label {soft!r:.80}: must be an object with a probability "
                f"of each of {', '.join(map(repr, self.classes))}"
            )
        result = np.array([soft[name] for name in self.classes], np.float32)
        if not (result >= 0).all() or not abs(result.sum() - 1) < 1e-3:
            raise InputError(f"{example.where}: soft label {soft!r:.80}: must sum to 1")
        return result

    def label_ids(self, examples: Sequence[TextPair]) -> np.ndarray:
        """int32 [N], the class of each example."""
        number_of = {name: number for number, name in enumerate(self.classes)}
        ids = [class_ids([example.label], number_of, example.where) for example in examples]
        return np.array(ids, np.int32).reshape(-1)

    def decode(
        self, examples: Sequence[TextPair], encoded: Encoded, outputs: Outputs
    ) -> list[np.ndarray]:
        return list(softmax(np.stack(outputs["logits"])))

    def combine(self, members: Sequence[Sequence[np.ndarray]], by: str) -> list[np.ndarray]:
        return list(combined(np.array(members), by))

    def degenerate(self, predictions: Sequence[np.ndarray], settings: Mapping[str, Any]) -> str:
        chosen = np.unique(np.argmax(predictions, axis=-1))
        return f"all are {self.classes[chosen[0]]!r}" if len(chosen) == 1 else ""

    def show(
        self, example: TextPair, prediction: np.ndarray, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        probabilities = dict(zip(self.classes, prediction.tolist(), strict=True))
        label = self.classes[int(np.argmax(prediction))]
        return show_pair(example) | {"label": label, "probabilities": probabilities}


@dataclasses.dataclass(frozen=True)
class AnsweredPairs(Classification):
    """The same for pairs of texts that an answer network reads."""

    steps: int = 1
    step_dropout: float = STEP_DROPOUT

    objective: ClassVar[str] = "answer_network"


def classification(
    classes: tuple[str, ...], pairs: bool, steps: int, step_dropout: float
) -> Classification:
    """The family of a classification task, with an answer network of `steps`, or without (0)."""
    if not steps:
        return Classification(classes, pairs)
    return AnsweredPairs(classes, pairs, steps, step_dropout)


def check_answers(task: Any, without_pairs: str) -> None:
    """Checks the `ANSWERS` of a task; `without_pairs` names one that has no pairs of texts."""
    needs = "an answer network reads pairs of texts that have a class, and"
    problem = f"{needs} {without_pairs} has none: set it to 0"
    require(not (task.answer_steps and without_pairs), task, "answer_steps", problem)
    problem = "with answer_steps=0 there is no answer network: set answer_steps, such as to 5, or "
    used = task.answer_steps or task.answer_dropout == STEP_DROPOUT
    require(used, task, "answer_dropout", f"{problem}leave this as it was")


@dataclasses.dataclass(frozen=True)
class Regression(OfTexts):
    """The family of tasks that predict a number, with squared error; a prediction is a float."""

    pairs: bool | None = None

    objective: ClassVar[str] = "regression"
    classes: ClassVar[tuple[str, ...]] = ()

    def labels(self, examples: Sequence[TextPair]) -> dict[str, np.ndarray]:
        soft = {}
        if examples and examples[0].soft is not None:
            taught = [example._replace(label=example.soft) for example in examples]
            soft["soft_labels"] = self.targets(taught).astype(np.float32)
        return {"targets": self.targets(examples).astype(np.float32), **soft}

    def targets(self, examples: Sequence[TextPair]) -> np.ndarray:
        """float64 [N], the finite number of each example."""
        result = np.empty(len(examples))
        for row, example in enumerate(examples):
            if not isinstance(example.label, float) or not np.isfinite(example.label):
                raise InputError(f"{example.where}: label {example.label!r} is not a number")
            result[row] = example.label
        return result

    def decode(
        self, examples: Sequence[TextPair], encoded: Encoded, outputs: Outputs
    ) -> list[float]:
        return np.asarray(outputs["logits"], np.float64).reshape(len(examples)).tolist()

    def combine(self, members: Sequence[Sequence[float]], by: str) -> list[float]:
        return np.mean(members, axis=0).tolist()

    def degenerate(self, predictions: Sequence[float], settings: Mapping[str, Any]) -> str:
        if not np.isfinite(predictions).all():
            return "some are not numbers"
        constant = np.ptp(predictions) <= 1e-3
        return f"all are about {np.mean(predictions):.3f}" if constant else ""

    def show(
        self, example: TextPair, prediction: float, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        return show_pair(example) | {"value": prediction}


# ------------------------------------------------------------------- what families share


def class_ids(labels: Iterable[Any], number_of: Mapping[str, int], where: str) -> list[int]:
    """The class of each label; InputError if one is missing or is not one of the classes."""
    result = []
    for label in labels:
        if label not in number_of:
            raise InputError(
                f"{where}: label {label!r} is unknown; the known ones are "
                f"{', '.join(map(repr, number_of))}"
            )
        result.append(number_of[label])
    return result


def encoded_pairs(
    pairs: Sequence[tuple[str, str | None]],
    tokenizer: Tokenizer,
    max_length: int,
    labels: Mapping[str, np.ndarray],
    choices: int = 1,
) -> Encoded:
    """Encodes each text, or pair of texts, as one sequence of at most `max_length` tokens."""
    template, sequences, second, cut = tokenizer.template, [], [], 0
    left = tracked(pairs, "tokens", " examples")
    while chunk := list(islice(left, _AT_ONCE)):
        tokens_of_a = tokenizer.encode([a for a, _ in chunk])
        tokens_of_b = iter(tokenizer.encode([b for _, b in chunk if b is not None]))
        for a, (_, text_b) in zip(tokens_of_a, chunk, strict=True):
            b = None if text_b is None else next(tokens_of_b)
            halves = fitting(tokenizer, a, b, max_length)
            sequences.append(template.sequence(*halves))
            second.append(template.begins(len(halves[0]))[1])
            length = len(a) + len(b or ()) + template.specials(pair=b is not None)
            cut += length > max_length
    fields = dict(choices=choices, cut={max_length: cut}, second=np.array(second, np.int64))
    return Encoded.of(sequences, labels, **fields)


def parse_pair(line: str, where: str, pairs: bool | None) -> TextPair:
    """An example from "A", "A ||| B" or {"text": "A", "text_b": "B"}, as `pairs` says."""
    shown = f"{where}: {line.strip()[:80]}"
    if looks_like_json(line):
        form = '{"text": "...", "text_b": "..."}, where text_b may be absent'
        value = json_object(line, where, form, _PAIR)
        a, b = value.pop("text"), value.pop("text_b", None)
        if value:
            raise InputError(f"{shown}: write {form}")
    else:
        a, bar, b = line.rpartition(SEPARATOR)
        a, b = (a, b) if bar else (b, None)
    if not a.strip() or b is not None and not b.strip():
        raise InputError(f"{shown}: a text is empty")
    if pairs and b is None:
        raise InputError(f"{shown}: one text, but the model learned from two: write 'A ||| B'")
    if pairs is False and b is not None:
        raise InputError(
            f"{shown}: two texts, but the model learned from one: write a text that has "
            f'{SEPARATOR.strip()} in it as {{"text": "..."}}'
        )
    return TextPair(where, a, b, None, where)


def show_pair(example: TextPair) -> dict[str, Any]:
    """The texts of an example, in the form that `parse_pair` reads."""
    texts = {"text": example.a, "text_b": example.b}
    return {name: text for name, text in texts.items() if text is not None}
