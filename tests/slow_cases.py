"""Cases of a parametrized test that only the slow tier runs."""

from collections.abc import Iterable

import pytest


def others_slow(cases: Iterable[str], *default: str) -> list:
    """All cases; the default tier runs those of `default`, and the slow one the others."""
    cases = list(cases)
    assert set(default) <= set(cases)
    return [
        case if case in default else pytest.param(case, marks=pytest.mark.slow) for case in cases
    ]
