"""Where the checkout is, and what its files say."""

import ast
import functools
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The code of a file, which many rules read; do not change it."""
    return ast.parse(path.read_text(encoding="utf-8"))
