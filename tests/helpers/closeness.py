"""How far two computed floats may lie apart: as far as rounding takes them, on every processor."""

from typing import Any

import jax
import ml_dtypes
import numpy as np

SEEN = 1e-3  # a relative error of a whole array that no tolerance of float32 may hide
LOGITS = 16.0  # no output of the small models of the tests is larger


def rounding(size: float, terms: int = 256, dtype: Any = np.float32) -> float:
    """The greatest error of a value that is rounded `terms` times on its way.

    Args:
      size: the largest number that is added up on the way.
      terms: what is added up, times the operations one after the other; 256 are a product of 32
        terms in a chain of eight operations. Errors have both signs, so that few come near this
        bound; a chain through many steps of a recurrence or of an optimizer has more.
      dtype: the type that rounds.
    """
    unit = float(ml_dtypes.finfo(dtype).eps) / 2
    if np.dtype(dtype) == np.float32:
        assert terms * unit < SEEN / 2, f"{terms} terms would hide an error of {SEEN:g}"
    return terms * unit * size


def assert_close(
    found: Any,
    expected: Any,
    terms: int = 256,
    *,
    size: float | None = None,
    share: float = 0.0,
    dtype: Any = np.float32,
    err_msg: str = "",
) -> None:
    """Fails if arrays of equal shape differ by more than `rounding`.

    Args:
      found, expected: numbers, arrays, lists (each an array), or trees of them.
      size: the largest number on the way, where values cancel; otherwise an array's largest
        expected value.
      share: no array is measured by less than this share of all arrays' largest value: of a
        model's gradients, some are zero but for rounding.
    """

    def largest_of(array: Any) -> float:
        array = np.asarray(array, np.float64)
        return np.abs(array).max(initial=0.0, where=np.isfinite(array))

    is_leaf = lambda node: isinstance(node, list)  # noqa: E731
    leaves = jax.tree.leaves(expected, is_leaf=is_leaf)
    least = share * max(map(largest_of, leaves), default=0.0)

    def compare(path: tuple, result: Any, reference: Any) -> None:
        result, reference = np.asarray(result, np.float64), np.asarray(reference, np.float64)
        largest = max(largest_of(reference), least) if size is None else size
        limit = rounding(largest, terms, dtype)
        assert result.shape == reference.shape, (
            f"{err_msg}{jax.tree_util.keystr(path)}: other shapes"
        )
        np.testing.assert_allclose(
            result, reference, rtol=0, atol=limit, err_msg=err_msg + jax.tree_util.keystr(path)
        )

    jax.tree_util.tree_map_with_path(compare, found, expected, is_leaf=is_leaf)
