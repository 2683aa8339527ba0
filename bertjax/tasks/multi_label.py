"""Predicts zero, one or several labels of one or two texts: yes or no for each class."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bertjax.tasks.classification import OfTexts, TextPair, class_ids, show_pair
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.probabilities import combined, sigmoid
from bertjax.tasks.task import Outputs

THRESHOLDS = "thresholds"  # in a task's settings: the threshold of each class, by its name
_USUAL = 0.5  # the threshold of a class that has none


@dataclasses.dataclass(frozen=True)
class MultiLabel(OfTexts):
    """The family of multi-label tasks; a prediction is float64 [C], a probability per class."""

    classes: tuple[str, ...]
    pairs: bool | None = None

    objective: ClassVar[str] = "multi_label_classification"

    def labels(self, examples: Sequence[TextPair]) -> dict[str, np.ndarray]:
        return {"targets": self.targets(examples).astype(np.float32)}

    def targets(self, examples: Sequence[TextPair]) -> np.ndarray:
        """bool [N, C]: whether an example has the label of a class."""
        number_of = {name: number for number, name in enumerate(self.classes)}
        result = np.zeros((len(examples), len(self.classes)), bool)
        for row, example in enumerate(examples):
            labels = example.label if isinstance(example.label, tuple) else (example.label,)
            result[row, class_ids(labels, number_of, example.where)] = True
        return result

    def decode(
        self, examples: Sequence[TextPair], encoded: Encoded, outputs: Outputs
    ) -> list[np.ndarray]:
        return list(sigmoid(np.stack(outputs["logits"])))

    def combine(self, members: Sequence[Sequence[np.ndarray]], by: str) -> list[np.ndarray]:
        """See `Family`; the classes are combined one by one, each as "no" or "yes"."""
        yes = np.array(members)
        return list(combined(np.stack([1 - yes, yes], axis=-1), by)[..., 1])

    def thresholds(self, settings: Mapping[str, Any]) -> np.ndarray:
        """float64 [C], the threshold of each class; 0.5 where the settings have none."""
        known = settings.get(THRESHOLDS) or {}
        return np.array([known.get(name, _USUAL) for name in self.classes])

    def chosen(self, predictions: Sequence[np.ndarray], settings: Mapping[str, Any]) -> np.ndarray:
        """bool [N, C]: whether a probability is above the threshold of its class."""
        return np.array(predictions) > self.thresholds(settings)

    def degenerate(self, predictions: Sequence[np.ndarray], settings: Mapping[str, Any]) -> str:
        chosen = np.unique(self.chosen(predictions, settings), axis=0)
        if len(chosen) > 1:
            return ""
        return f"all have {', '.join(map(repr, self._named(chosen[0]))) or 'no label'}"

    def _named(self, chosen: np.ndarray) -> list[str]:
        return [name for name, is_chosen in zip(self.classes, chosen, strict=True) if is_chosen]

    def show(
        self, example: TextPair, prediction: np.ndarray, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        (chosen,) = self.chosen([prediction], settings)
        probabilities = dict(zip(self.classes, prediction.tolist(), strict=True))
        return show_pair(example) | {"labels": self._named(chosen), "probabilities": probabilities}

    def tune(
        self, examples: Sequence[TextPair], predictions: Sequence[np.ndarray]
    ) -> dict[str, Any]:
        """For each class the threshold with the highest F1: see `best_threshold`."""
        gold, probabilities = self.targets(examples), np.array(predictions)
        best = map(best_threshold, gold.T, probabilities.T)
        return {THRESHOLDS: dict(zip(self.classes, best, strict=True))}

    def score(
        self,
        examples: Sequence[TextPair],
        predictions: Sequence[np.ndarray],
        settings: Mapping[str, Any],
    ) -> dict[str, float]:
        """The F1 and the share of examples with exactly the right labels, in percent.

        The names that end in "_at_0.5" are of that threshold, the others of the tuned ones.
        """
        gold = self.targets(examples)
        usual = f1(gold, self.chosen(predictions, {}))
        chosen = self.chosen(predictions, settings)
        exact = 100 * float((gold == chosen).all(1).mean())
        return {
            **f1(gold, chosen),
            "exact_match": exact,
            **{f"{name}_at_{_USUAL}": value for name, value in usual.items()},
        }


def best_threshold(gold: np.ndarray, probabilities: np.ndarray) -> float:
    """The threshold with the highest F1 of a class: `gold` bool [N], `probabilities` float64 [N].

    Thresholds lie half-way between probabilities that follow each other. Of those with the same F1
    the one nearest to 0.5 is taken, and 0.5 if the class does not occur.
    """
    order = np.argsort(probabilities)
    levels = probabilities[order]
    hits_from = np.append(np.cumsum(gold[order][::-1])[::-1], 0)  # [N + 1], among the ones from n
    between = (np.append(0, levels[:-1]) + levels) / 2
    # Nine digits are read easily, and are more than a float32 has.
    thresholds = np.append(np.round(between, 9), _USUAL)
    first = np.searchsorted(levels, thresholds, side="right")  # the lowest that is chosen
    found = 2 * hits_from[first] / np.maximum(1, len(gold) - first + hits_from[0])
    best = thresholds[found == found.max()]
    return float(best[np.nanargmin(np.abs(best - _USUAL))])


def f1(gold: np.ndarray, chosen: np.ndarray) -> dict[str, float]:
    """The F1 over all classes together and the mean of their F1, in percent, of bool [N, C].

    They are those of `sklearn.metrics.f1_score`; a class that neither occurs nor is chosen has 0.
    """
    hits, sizes = (gold & chosen).sum(0), gold.sum(0) + chosen.sum(0)
    micro = 2 * hits.sum() / max(1, sizes.sum())
    macro = np.mean(2 * hits / np.maximum(1, sizes))
    return {"macro_f1": 100 * float(macro), "micro_f1": 100 * float(micro)}
