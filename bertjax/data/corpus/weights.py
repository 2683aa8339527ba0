"""Mixing weights: NAME or NAME@WEIGHT, as in "text:wiki/*.txt@0.7"."""

import math
import re
from collections.abc import Sequence

from bertjax.base.errors import InputError

_WEIGHT = re.compile(r"(?P<name>.+)@(?P<weight>[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)")


def split_weight(text: str) -> tuple[str, float | None]:
    """Splits "NAME@0.7" into ("NAME", 0.7); "NAME" without a weight becomes ("NAME", None)."""
    match = _WEIGHT.fullmatch(text)
    if match is None:
        return text, None
    weight = float(match["weight"])
    if not (weight > 0 and math.isfinite(weight)):
        raise InputError(f"{text}: the weight after @ must be a positive number.")
    return match["name"], weight


def check_weights(names: Sequence[str], weights: Sequence[float | None]) -> None:
    """Raises InputError if some of `names` have weights and others have none."""
    missing = [name for name, weight in zip(names, weights, strict=True) if weight is None]
    if missing and len(missing) < len(names):
        raise InputError(
            f"{missing[0]} has no weight but another has: write @WEIGHT after all of "
            f"{', '.join(names)}, or after none (then each counts by its tokens)."
        )


def shares(weights: Sequence[float | None], sizes: Sequence[int]) -> list[float]:
    """Shares that sum to 1, in proportion to `weights`, or to `sizes` if no weights are given."""
    numbers: Sequence[float] = [weight for weight in weights if weight is not None] or sizes
    # The sum of huge weights would overflow; a division by a power of two changes no share.
    exponent = math.frexp(max(numbers))[1]
    scaled = [math.ldexp(number, -exponent) for number in numbers]
    total = math.fsum(scaled)
    return [number / total for number in scaled]
