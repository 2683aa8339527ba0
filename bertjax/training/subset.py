"""Which parameters of a model are trained: patterns of those that are not, and adapters."""

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping

import jax
from flax.traverse_util import flatten_dict

from bertjax.base.checks import input_error_at
from bertjax.base.errors import InputError
from bertjax.base.limits import Count, Positive, check_limits
from bertjax.training.model import Adapter, Model, Part

LORA = "lora"


@dataclasses.dataclass(frozen=True)
class AdapterSpec:
    """A low-rank change that is trained in place of the pretrained weights (LoRA, arXiv
    2106.09685).

    Attributes:
      name: "lora"; "": none.
      rank: the width between the two factors of a change.
      alpha: the product of the factors counts alpha / rank times.
      targets: a pattern (`re.search`) of the paths of the kernels that are changed.
    """

    name: str = ""
    rank: Count = 8
    alpha: Positive = 16.0
    targets: str = "attention.*"

    def __post_init__(self):
        check_limits(self, name=("", LORA))
        check_pattern("targets", self.targets)


def check_pattern(key: str, pattern: str) -> None:
    """Raises ValueError if a pattern is none."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{key}={pattern!r}: no pattern (a regular expression): {error}") from None


def check_subset(adapter: AdapterSpec, frozen: str, has_pretrained: bool = True) -> None:
    """Raises InputError if `frozen` is no pattern, or there are no pretrained weights."""
    with input_error_at("config"):
        check_pattern("frozen", frozen)
    if trains_some(adapter, frozen) and not has_pretrained:
        named = f"adapter.name={adapter.name!r}" if adapter.name else f"frozen={frozen!r}"
        raise InputError(
            f"config.{named}: there are no pretrained weights: name some by config.init_from "
            "(and config.features has none), or leave it out"
        )


def trains_some(adapter: AdapterSpec, frozen: str) -> bool:
    """Whether some pretrained weights stay as they are."""
    return bool(adapter.name or frozen)


def stays(path: str, adapter: AdapterSpec, frozen: str) -> bool:
    """Whether a pretrained weight with this path stays as it is."""
    patterns = _alternatives(frozen) if frozen else ()
    return bool(adapter.name) or any(re.search(each, path) for each in patterns)


def with_subset(
    model: Model, adapter: AdapterSpec, frozen: str, pretrained: Mapping[str, Iterable[str]]
) -> Model:
    """The model, of which some parameters are not trained.

    Args:
      adapter: changes kernels in each part; with it, all pretrained weights stay as they are.
      frozen: patterns of the paths of parameters that stay as they are, with | between them.
      pretrained: part -> the branches of its parameters that are pretrained, without output layers
        of a task.

    Raises:
      InputError: a pattern fits no parameter, or nothing is left to train.
    """
    if not trains_some(adapter, frozen):
        return model
    patterns = tuple(_alternatives(frozen)) if frozen else ()
    scale = adapter.alpha / adapter.rank
    adapters = (Adapter(adapter.targets, adapter.rank, scale),) if adapter.name else ()

    def of(name: str, part: Part) -> Part:
        if part.frozen is True:
            return part
        own_patterns = tuple(f"^{re.escape(branch)}/" for branch in pretrained.get(name, ()))
        stay = (*patterns, *own_patterns) if adapter.name else patterns
        return dataclasses.replace(part, frozen=stay, adapters=adapters)

    found = Model({name: of(name, part) for name, part in model.parts.items()})
    boxes = jax.eval_shape(model.init, jax.random.key(0))
    trees = [boxes] if "" in model.parts else boxes.values()
    flat = {path: box for tree in trees for path, box in flatten_dict(tree).items()}
    names = ["/".join(path) for path in flat]
    for each in patterns:
        _check_found("config.frozen", each, names)
    if adapter.name and pretrained:
        branches = {branch for each in pretrained.values() for branch in each}
        kernels = [path for path, box in flat.items() if box.inputs and path[0] in branches]
        _check_found("config.adapter.targets", adapter.targets, list(map("/".join, kernels)))
    if not jax.tree.leaves(jax.eval_shape(found.init, jax.random.key(0))):
        raise InputError(f"config.frozen={frozen!r}: nothing is left to train: leave some out")
    return found


def _alternatives(patterns: str) -> list[str]:
    """Each of several patterns; those within parentheses or brackets are one."""
    found, depth = [""], 0
    for letter in patterns:
        depth += (letter in "([") - (letter in ")]")
        if letter == "|" and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


def _check_found(key: str, pattern: str, paths: list[str]) -> None:
    if any(re.search(pattern, path) for path in paths):
        return
    hint = ""
    if "layer_" in pattern and any("/layers/" in path for path in paths):
        hint = "; config.model.scan_layers=True makes one array of all layers: set it to False"
    words = re.findall(r"\w+", pattern)

    def similarity(path: str) -> float:
        names = path.split("/")
        return sum(max(difflib.SequenceMatcher(None, w, n).ratio() for n in names) for w in words)

    near = sorted(paths, key=similarity, reverse=True)[:3]
    raise InputError(
        f"{key}={pattern!r}: no such parameter; the nearest are {', '.join(near)}{hint}"
    )
