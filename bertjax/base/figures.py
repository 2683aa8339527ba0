"""Draws pictures with matplotlib, without a screen."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bertjax.base.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextlib.contextmanager
def png(path: str | os.PathLike, **options: Any) -> Iterator["Figure"]:
    """Yields an empty `Figure(**options)` of matplotlib; writes it if the block succeeds."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained", **options)
    FigureCanvasAgg(figure)
    yield figure
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=120)
