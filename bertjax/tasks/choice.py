"""One of several continuations of a text (section 4.4): a sequence and a score for each."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, NotRequired

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.validation import record
from bertjax.tasks.classification import encoded_pairs
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.probabilities import combined, softmax
from bertjax.tasks.rows import json_object
from bertjax.tasks.task import Outputs
from bertjax.text.tokenizer import Tokenizer

_LINE = record(context=str, prompt=NotRequired[str], choices=list[str])


class Choice(NamedTuple):
    """A text and its possible continuations.

    Attributes:
      context: the first sentence, which is text A of every sequence.
      prompt: the beginning of the second sentence; may be "".
      choices: its possible continuations; text B is the prompt, a space and a choice.
      label: the index of the right choice; None if it is not known.
    """

    id: str
    context: str
    prompt: str
    choices: tuple[str, ...]
    label: int | None
    where: str


@dataclasses.dataclass(frozen=True)
class MultipleChoice:
    """The family of multiple choice; a prediction is float64 [C], a probability for each choice."""

    choices: int = 4

    objective: ClassVar[str] = "multiple_choice"
    fields: ClassVar[tuple[str, ...]] = ("context", "prompt", "choices")
    classes: ClassVar[tuple[str, ...]] = ()

    def encode(
        self, examples: Sequence[Choice], tokenizer: Tokenizer, max_length: int, *, labelled: bool
    ) -> Encoded:
        labels = {"label_ids": self.label_ids(examples)} if labelled else {}
        pairs = [
            (example.context, f"{example.prompt} {choice}".strip())
            for example in examples
            for choice in example.choices
        ]
        return encoded_pairs(pairs, tokenizer, max_length, labels, self.choices)

    def label_ids(self, examples: Sequence[Choice]) -> np.ndarray:
        """int32 [N], the right choice of each example."""
        for example in examples:
            if example.label is None:
                raise InputError(f"{example.where}: no label")
        return np.array([example.label for example in examples], np.int32)

    def decode(
        self, examples: Sequence[Choice], encoded: Encoded, outputs: Outputs
    ) -> list[np.ndarray]:
        return list(softmax(np.asarray(outputs["logits"]).reshape(len(examples), self.choices)))

    def combine(self, members: Sequence[Sequence[np.ndarray]], by: str) -> list[np.ndarray]:
        return list(combined(np.array(members), by))

    def degenerate(self, predictions: Sequence[np.ndarray], settings: Mapping[str, Any]) -> str:
        chosen = np.unique(np.argmax(predictions, axis=-1))
        return f"all are choice {chosen[0]}" if len(chosen) == 1 else ""

    def parse(self, line: str, where: str) -> Choice:
        """Parses {"context": "...", "prompt": "...", "choices": ["...", ...]}."""
        form = f'{{"context": "...", "prompt": "...", "choices": [{self.choices} texts]}}'
        value = {"prompt": ""} | json_object(line, where, form, _LINE)
        choices = tuple(value["choices"])
        if len(choices) != self.choices or value.keys() != set(self.fields):
            raise InputError(f"{where}: {line.strip()[:80]}: write {form}")
        return Choice(where, value["context"], value["prompt"], choices, None, where)

    def show(
        self, example: Choice, prediction: np.ndarray, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        chosen = int(np.argmax(prediction))
        return {
            "context": example.context,
            "prompt": example.prompt,
            "choice": chosen,
            "text": example.choices[chosen],
            "probabilities": prediction.tolist(),
        }
