"""A model: parts by name, each a module with parameters of its own."""

import dataclasses
import math
import re
import zlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from bertjax.base import axes
from bertjax.base.factors import COUNTED, DOWN, FACTORS, KERNEL, UP, factor_axes, subscripts

PART_SCOPE = "_part"  # how the JAX scope of a part ends, after its name
Params = Any
Arrays = Mapping[str, jax.Array]
Path = tuple[str, ...]  # of a parameter in the nested dicts


class Adapter(NamedTuple):
    """A low-rank change of kernels (`bertjax.base.factors`), which is trained in their place.

    Attributes:
      pattern: of the paths of the kernels (`re.search`); only those of `Dense` are changed.
      scale: what the product of the factors is multiplied with.
    """

    pattern: str
    rank: int
    scale: float


def zeros(shapes: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
    """Arrays of zeros, from which a module is initialized."""
    return {name: jnp.zeros(each.shape, each.dtype) for name, each in shapes.items()}


@dataclasses.dataclass(frozen=True)
class Part:
    """One module of a model, such as a student, or the teacher next to it.

    Attributes:
      module: called with a dict of arrays and `deterministic`, it returns the outputs by name.
      inputs: the arrays that it reads -> the shape and dtype with which it is initialized.
      frozen: whether its parameters stay as they are at the start; or patterns (`re.search`) of
        the paths of those that do. They have no optimizer state, and checkpoints have only their
        identity.
      shared: paths in its parameters -> the part whose parameters these are, at the same path.
      added: paths in its parameters -> the part to whose parameters, at the same path and without
        their gradient, its own are added. New ones are 0.
      adapters: of its kernels that are not trained. The first whose pattern fits changes a kernel.
    """

    module: nn.Module
    inputs: Mapping[str, jax.ShapeDtypeStruct]
    frozen: bool | tuple[str, ...] = False
    shared: Mapping[str, str] = dataclasses.field(default_factory=dict)
    added: Mapping[str, str] = dataclasses.field(default_factory=dict)
    adapters: tuple[Adapter, ...] = ()

    def init(self, key: jax.Array, frozen: bool = False) -> Params:
        """New parameters with their axes: the trained ones, or the `frozen` ones; none shared."""
        if isinstance(self.frozen, bool) and self.frozen != frozen:
            return {}
        flat = flatten_dict(self._init(key))
        return unflatten_dict(
            {path: leaf for path, leaf in flat.items() if self.is_frozen(path) == frozen}
        )

    def _init(self, key: jax.Array) -> Params:
        params = self.module.init(key, zeros(self.inputs), deterministic=True)["params"]
        params = _without(params, self.shared)
        flat = flatten_dict(params)
        for path in self.added:
            flat |= jax.tree.map(jnp.zeros_like, parameters_at(path, params))
        for path, box in list(flat.items()):
            if adapter := self.adapter_of(path, box):
                flat |= _fresh_factors(key, path, box, adapter.rank)
        return unflatten_dict(flat)

    def is_frozen(self, path: Path) -> bool:
        """Whether the parameter with this path is not trained."""
        if isinstance(self.frozen, bool):
            return self.frozen
        name = "/".join(path)
        return path[-1] not in FACTORS and any(re.search(each, name) for each in self.frozen)

    def adapter_of(self, path: Path, box: Any) -> Adapter | None:
        """The adapter of a parameter in its box; None: it is not changed."""
        if path[-1] != KERNEL or not box.inputs or not self.is_frozen(path):
            return None
        name = "/".join(path)
        return next((each for each in self.adapters if re.search(each.pattern, name)), None)

    @cached_property
    def changed(self) -> dict[Path, tuple[float, str]]:
        """The kernels that adapters change, also shared ones -> scale, einsum of the factors."""
        if not self.adapters:
            return {}
        make = self.module.init
        boxes = jax.eval_shape(
            lambda key: make(key, zeros(self.inputs), deterministic=True), jax.random.key(0)
        )
        return {
            path: (adapter.scale, subscripts(box.names, box.inputs))
            for path, box in flatten_dict(boxes["params"]).items()
            if (adapter := self.adapter_of(path, box))
        }


def _fresh_factors(key: jax.Array, path: Path, box: Any, rank: int) -> dict[Path, Any]:
    """A kernel's factors, boxed: uniform within 1 / sqrt(inputs), as peft's begin, and 0."""
    sizes = dict(zip(box.names, box.value.shape, strict=True)) | {axes.RANK: rank}
    down, up = factor_axes(box.names, box.inputs)
    inputs = math.prod(
        sizes[name] for name in down if name not in (axes.LAYERS, *COUNTED, axes.RANK)
    )
    key = jax.random.fold_in(key, zlib.crc32("/".join(path).encode()))
    shape, bound = tuple(sizes[name] for name in down), inputs**-0.5
    values = jax.random.uniform(key, shape, minval=-bound, maxval=bound)
    zero = jnp.zeros(tuple(sizes[name] for name in up))
    return {
        (*path[:-1], DOWN): box.replace(value=values, names=down, inputs=0),
        (*path[:-1], UP): box.replace(value=zero, names=up, inputs=0),
    }


@dataclasses.dataclass(frozen=True)
class Model:
    """Parts by name.

    The parameters have a branch for each part. Those of a part with the name "" have no such level:
    it is the only one, or all others compute with its parameters.
    """

    parts: Mapping[str, Part]

    @classmethod
    def of(cls, module: nn.Module, inputs: Mapping[str, jax.ShapeDtypeStruct]) -> "Model":
        """A model of one part."""
        return cls({"": Part(module, inputs)})

    def init(self, key: jax.Array, frozen: bool = False) -> Params:
        """New parameters with their logical axes: the trained ones, or the `frozen` ones."""
        if "" in self.parts:
            return self.parts[""].init(key, frozen)
        by_part = {
            name: part.init(jax.random.fold_in(key, number), frozen)
            for number, (name, part) in enumerate(self.parts.items())
        }
        return {name: params for name, params in by_part.items() if params}

    def __call__(
        self, params: Params, inputs: Arrays, dropout: jax.Array | None = None, part: str = ""
    ) -> dict[str, jax.Array]:
        """The outputs of a part; `params` are of all parts, and `dropout` is a key or None."""
        apply = self.parts[part].module.apply
        if part:  # launch/compile_check.py shows the time of each
            apply = jax.named_scope(f"{part}{PART_SCOPE}")(apply)
        return apply(  # type: ignore[return-value]
            {"params": self._computed(params, part)},
            inputs,
            deterministic=dropout is None,
            rngs=None if dropout is None else {"dropout": dropout},
        )

    def params_of(self, params: Params, part: str = "") -> Params:
        """The parameters of one part alone, with those shared, and its adapters' changes."""
        computed, changed = self._computed(params, part), self.parts[part].changed
        if not changed:
            return computed
        flat = flatten_dict(computed)
        for path, (_, formula) in changed.items():
            factors = (flat.pop((*path[:-1], name)) for name in FACTORS)
            flat[path] = flat[path] + jnp.einsum(formula, *factors, precision="highest")
        return unflatten_dict(flat)

    def factors_of(self, params: Params, part: str = "") -> Params:
        """The factors of a part's adapters, without their scale."""
        flat = flatten_dict(self._stored_params(params, part))
        return unflatten_dict({path: leaf for path, leaf in flat.items() if path[-1] in FACTORS})

    def _computed(self, params: Params, part: str) -> Params:
        """The parameters with which a part computes: those of adapters with their scale."""
        stored, changed = self._stored_params(params, part), self.parts[part].changed
        if not changed:
            return stored
        flat = flatten_dict(stored)
        for path, (scale, _) in changed.items():
            up = *path[:-1], UP
            flat[up] = scale * flat[up]
        return unflatten_dict(flat)

    def _stored_params(self, params: Params, part: str) -> Params:
        if "" in self.parts:
            return params
        flat = flatten_dict(params[part])
        for path, owner in self.parts[part].shared.items():
            flat |= parameters_at(path, params[owner])
        for path, owner in self.parts[part].added.items():
            for keys, base in parameters_at(path, params[owner]).items():
                flat[keys] += jax.lax.stop_gradient(base)
        return unflatten_dict(flat)


def merged(params: Params, frozen: Params) -> Params:
    """The parameters that are trained and those that are not, as one tree."""
    return unflatten_dict(flatten_dict(params) | flatten_dict(frozen)) if frozen else params


def parameters_at(path: str, params: Params) -> dict[tuple[str, ...], Any]:
    """The parameters at a path and below it, flat."""
    keys = tuple(path.split("/"))
    return {each: leaf for each, leaf in flatten_dict(params).items() if each[: len(keys)] == keys}


def _without(params: Params, paths: Mapping[str, str]) -> Params:
    prefixes = [tuple(path.split("/")) for path in paths]
    if not prefixes:
        return params
    flat = flatten_dict(params)
    return unflatten_dict(
        {k: leaf for k, leaf in flat.items() if not any(k[: len(p)] == p for p in prefixes)}
    )
