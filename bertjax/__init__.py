"""bertjax: pre-train BERT-style encoders in JAX, from raw text to a checkpoint.

As a library: `bertjax.load` opens a model (docs/library.md). All else is private, and may change.
"""

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["load"]


def __getattr__(name: str) -> Any:
    """`bertjax.load` lies in the highest room; its first use imports what it needs, such as JAX."""
    if name == "load":
        return importlib.import_module("bertjax.library").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
