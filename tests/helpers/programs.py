"""Counts the programs that XLA is given: each costs 25 ms or more, however small it is."""

import contextlib
from collections.abc import Iterator

import jax

MOST = 60  # of a test in the default tier; what it calls operation by operation belongs in a `jit`
_count = 0
_counting = True


def _listen(event: str, duration: float, **about: object) -> None:
    global _count
    _count += _counting and event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_listen)


def count() -> int:
    """The programs so far."""
    return _count


@contextlib.contextmanager
def not_counted() -> Iterator[None]:
    """What many tests read is built by whichever comes first."""
    global _counting
    before, _counting = _counting, False
    try:
        yield
    finally:
        _counting = before
