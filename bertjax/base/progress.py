"""Shows the progress of long work: a bar on a terminal, plain lines in a log."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Self, TypeVar

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 10.0
_MANY = 10_000  # with more items, each about a millisecond, progress is shown

Item = TypeVar("Item")


class Progress:
    """Counts work done towards `total`, showing rate and time left on standard error.

    On a terminal this is a tqdm bar. Elsewhere it is one plain line every ten seconds and one at
    the end, so that a log stays readable.

    Args:
      total: None if it is not known.
      unit: the name of one unit, with a leading space if it is a word (" shards").
      initial: the units that an earlier, interrupted run had finished.
      scale: whether large counts are printed as 12.3M.
    """

    def __init__(
        self,
        description: str,
        total: int | None,
        unit: str,
        *,
        initial: int = 0,
        scale: bool = False,
    ):
        self._terminal = sys.stderr.isatty()
        self._bar = tqdm(
            desc=description,
            total=total,
            unit=unit,
            initial=initial,
            unit_scale=scale,
            dynamic_ncols=True,
            disable=not self._terminal,
        )
        self._format = dict(unit=unit, unit_scale=scale, prefix=description, ncols=0)
        self._total, self._initial, self._count = total, initial, initial
        self._start = self._last_line = time.monotonic()
        self._left_out = 0.0
        self._note = ""

    def update(self, units: int = 1, note: str = "") -> None:
        """Adds finished `units`; `note` (such as "loss 2.31") is printed after the rate."""
        self._count += units
        self._note = note or self._note
        if self._terminal:
            self._bar.set_postfix_str(self._note, refresh=False)
            self._bar.update(units)
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._print_line()

    def leave_out(self, seconds: float) -> None:
        """Says that the last seconds, such as those of a compilation, do not count in the rate."""
        self._left_out += seconds
        if self._terminal:
            self._bar.last_print_t += seconds  # where tqdm begins the time of the next units

    def _print_line(self) -> None:
        self._last_line = time.monotonic()
        passed = self._last_line - self._start
        measured = passed - self._left_out
        # After a compilation, the first step returns before it is computed.
        known = measured >= (1 if self._left_out else 1e-9)
        done = "{n_fmt}/{total_fmt} [{elapsed}<{remaining}" if self._total else "{n_fmt} [{elapsed}"
        line = tqdm.format_meter(
            self._count,
            self._total,
            passed,
            rate=(self._count - self._initial) / measured if known else 0,  # 0 is "?"
            initial=self._initial,
            postfix=self._note,
            bar_format=f"{{desc}}: {done}, {{rate_fmt}}{{postfix}}]",
            **self._format,
        )
        print(line, file=sys.stderr, flush=True)

    def say(self, line: str) -> None:
        """Prints a line, above the bar if there is one."""
        tqdm.write(line, file=sys.stderr)
        sys.stderr.flush()

    def close(self) -> None:
        """Ends the bar, or prints the last line."""
        if not self._terminal:
            self._print_line()
        self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tracked(items: Sequence[Item], description: str, unit: str) -> Iterator[Item]:
    """Yields the items; if there are many, shows the progress of the loop over them."""
    if len(items) < _MANY:
        yield from items
        return
    with Progress(description, len(items), unit) as progress:
        for item in items:
            yield item
            progress.update()
