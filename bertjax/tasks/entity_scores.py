"""Entities in tags, and their precision, recall and F1 as the script `conlleval` counts them.

A tag is "O", or a prefix, "-" and a type. One rule reads all schemes (IOB1, IOB2, IOE, IOBES and
BILOU) and any predicted tags: an entity continues while the type stays the same. It ends before a
tag that begins an entity (B, S or U), and after a tag that ends one (E, L, S or U).
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"
_TAG = re.compile("O|[BIESLU]-.+", re.DOTALL)
_BEGINS = ("B", "S", "U")
_ENDS = ("E", "S", "L", "U")


class Entity(NamedTuple):
    """An entity, which consists of the words start..stop-1 of a sentence."""

    type: str
    start: int
    stop: int


def is_entity_tag(tag: str) -> bool:
    """Whether a tag is "O" or PREFIX-TYPE."""
    return _TAG.fullmatch(tag) is not None


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence, in order; `is_entity_tag` must hold for each tag."""
    found: list[Entity] = []
    open_type = None  # the type of the entity that the next word may continue
    for place, tag in enumerate(tags):
        prefix, _, entity_type = tag.partition("-")
        if tag == OUTSIDE:
            open_type = None
            continue
        if entity_type != open_type or prefix in _BEGINS:
            found.append(Entity(entity_type, place, place + 1))
        else:
            found[-1] = found[-1]._replace(stop=place + 1)
        open_type = None if prefix in _ENDS else entity_type
    return found


def iob2(tags: Sequence[str]) -> list[str]:
    """Converts tags to IOB2, in which each entity is B-TYPE I-TYPE I-TYPE ..."""
    result = [OUTSIDE] * len(tags)
    for entity_type, start, stop in entities(tags):
        result[start:stop] = [f"B-{entity_type}", *[f"I-{entity_type}"] * (stop - start - 1)]
    return result


def entity_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Scores the tags of sentences, in percent; a score is 0 if conlleval would divide by 0.

    Returns "f1", "precision" and "recall" of entities, which are right if the type and both borders
    are; "accuracy" of tags; and "f1_TYPE", "precision_TYPE" and "recall_TYPE" for each type, in
    alphabetical order.
    """
    right, of_gold, of_predicted = Counter[str](), Counter[str](), Counter[str]()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        true, guessed = entities(gold_tags), entities(predicted_tags)
        of_gold.update(entity.type for entity in true)
        of_predicted.update(entity.type for entity in guessed)
        right.update(entity.type for entity in set(true) & set(guessed))
    scores = _rates(right.total(), of_gold.total(), of_predicted.total())
    scores["accuracy"] = accuracy(gold, predicted)
    for entity_type in sorted(of_gold | of_predicted):
        rates = _rates(right[entity_type], of_gold[entity_type], of_predicted[entity_type])
        scores |= {f"{name}_{entity_type}": value for name, value in rates.items()}
    return scores


def accuracy(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """The share of right tags, in percent."""
    pairs = [pair for tags in zip(gold, predicted, strict=True) for pair in zip(*tags, strict=True)]
    return _percent(sum(a == b for a, b in pairs), len(pairs))


def _rates(right: int, gold: int, predicted: int) -> dict[str, float]:
    return {
        "f1": _percent(2 * right, gold + predicted),
        "precision": _percent(right, predicted),
        "recall": _percent(right, gold),
    }


def _percent(count: int, total: int) -> float:
    return 100 * count / total if total else 0.0
