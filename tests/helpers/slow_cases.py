"""Cases of a parametrized test that only the slow tier runs."""

from collections.abc import Iterable
from typing import Any

import pytest


def others_slow(cases: Iterable[Any], *default: Any) -> list:
    """All cases; the default tier runs those of `default`, and the slow one the others."""
    cases = list(cases)
    assert all(case in cases for case in default)
    return [case if case in default else _slow(case) for case in cases]


def _slow(case: Any):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
