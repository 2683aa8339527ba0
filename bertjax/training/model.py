"""A model: parts by name, each a module with parameters of its own."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

PART_SCOPE = "_part"  # how the JAX scope of a part ends, after its name
Params = Any
Arrays = Mapping[str, jax.Array]


def zeros(shapes: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
    """Arrays of zeros, from which a module is initialized."""
    return {name: jnp.zeros(each.shape, each.dtype) for name, each in shapes.items()}


@dataclasses.dataclass(frozen=True)
class Part:
    """One module of a model, such as a student, or the teacher beside it.

    Attributes:
      module: called with a dict of arrays and `deterministic`, it returns the outputs by name.
      inputs: the arrays that it reads -> the shape and dtype with which it is initialized.
      frozen: its parameters stay as they are at the start. They have no optimizer state, and
        checkpoints have only their identity.
      shared: paths in its parameters -> the part whose parameters these are, at the same path.
      added: paths in its parameters -> the part to whose parameters, at the same path and without
        their gradient, its own are added. Fresh ones are 0.
    """

    module: nn.Module
    inputs: Mapping[str, jax.ShapeDtypeStruct]
    frozen: bool = False
    shared: Mapping[str, str] = dataclasses.field(default_factory=dict)
    added: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def init(self, key: jax.Array) -> Params:
        """Fresh parameters, each with its logical axes; without those that are shared."""
        params = self.module.init(key, zeros(self.inputs), deterministic=True)["params"]
        params = _without(params, self.shared)
        flat = flatten_dict(params)
        for path in self.added:
            flat |= jax.tree.map(jnp.zeros_like, parameters_at(path, params))
        return unflatten_dict(flat)


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
        """Fresh parameters of the parts that are trained, each with its logical axes.

        Args:
          frozen: whether to make the parameters of the frozen parts instead.
        """
        if "" in self.parts:
            return {} if frozen else self.parts[""].init(key)
        return {
            name: part.init(jax.random.fold_in(key, number))
            for number, (name, part) in enumerate(self.parts.items())
            if part.frozen == frozen
        }

    def __call__(
        self, params: Params, inputs: Arrays, dropout: jax.Array | None = None, part: str = ""
    ) -> dict[str, jax.Array]:
        """The outputs of a part.

        Args:
          params: the parameters of all parts.
          inputs: at least the arrays that the part reads.
          dropout: the key of dropout; None: nothing is dropped.
          part: its name.
        """
        apply = self.parts[part].module.apply
        if part:  # launch/compile_check.py shows the time of each
            apply = jax.named_scope(f"{part}{PART_SCOPE}")(apply)
        return apply(  # type: ignore[return-value]
            {"params": self.params_of(params, part)},
            inputs,
            deterministic=dropout is None,
            rngs=None if dropout is None else {"dropout": dropout},
        )

    def params_of(self, params: Params, part: str = "") -> Params:
        """The parameters with which one part computes: also those that it shares or adds to."""
        if "" in self.parts:
            return params
        flat = flatten_dict(params[part])
        for path, owner in self.parts[part].shared.items():
            flat |= parameters_at(path, params[owner])
        for path, owner in self.parts[part].added.items():
            for keys, base in parameters_at(path, params[owner]).items():
                flat[keys] += jax.lax.stop_gradient(base)
        return unflatten_dict(flat)


def parameters_at(path: str, params: Params) -> dict[tuple[str, ...], Any]:
    """The parameters at a path and below it, flat."""
    keys = tuple(path.split("/"))
    return {each: leaf for each, leaf in flatten_dict(params).items() if each[: len(keys)] == keys}


def _without(params: Params, paths: Mapping[str, str]) -> Params:
    """The parameters, without those at these paths."""
    prefixes = [tuple(path.split("/")) for path in paths]
    if not prefixes:
        return params
    flat = flatten_dict(params)
    return unflatten_dict(
        {k: leaf for k, leaf in flat.items() if not any(k[: len(p)] == p for p in prefixes)}
    )
