"""How long a program takes to compile, and whether JAX had it from an earlier start."""

import contextlib
import time
from collections.abc import Callable, Iterator

import jax

BEGINS = "compiling the step, which may take a minute"
_READ, _WRITTEN = (f"/jax/compilation_cache/cache_{what}" for what in ("hits", "misses"))


@contextlib.contextmanager
def watched() -> Iterator[Callable[[], str]]:
    """Yields a function that says, after the block, how its programs came about."""
    events: set[str] = set()

    def note(event: str, **_: str | int) -> None:
        events.add(event)

    def said() -> str:
        folder = jax.config.jax_compilation_cache_dir
        if _WRITTEN in events:
            return f"compiled in {seconds:.0f} s; the next start reads it from {folder}"
        if _READ in events:
            return f"read from {folder} in {seconds:.0f} s"
        return f"compiled in {seconds:.0f} s"

    begin = time.perf_counter()
    jax.monitoring.register_event_listener(note)
    try:
        yield said
    finally:
        jax.monitoring.unregister_event_listener(note)
        seconds = time.perf_counter() - begin
