"""Parameters with random values in every array, so that each affects the outputs."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import linen as nn


def by_path(path: str) -> tuple[float, float]:
    """Means and deviations with which all sums keep their size: scales are near 1."""
    return (1, 0.1) if path.endswith("scale") else (0, 0.2)


def random_params(
    module: nn.Module,
    *inputs: Any,
    of: Callable[[str], tuple[float, float]] = by_path,
    seed: int = 5,
    **options: Any,
) -> dict[str, Any]:
    """Parameters of a module that is called with `inputs`; none of it is computed.

    Args:
      of: a parameter's path, with slashes, -> its mean and its deviation.
      options: further arguments of the module's call.
    """
    options = {"deterministic": True} | options

    def init(*inputs):
        return module.init(jax.random.key(0), *inputs, **options).get("params", {})

    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        mean, deviation = of("/".join(key.key for key in path))
        return rng.normal(mean, deviation, leaf.shape).astype(np.float32)

    shapes = nn.unbox(jax.eval_shape(init, *inputs))
    return jax.tree_util.tree_map_with_path(draw, shapes)
