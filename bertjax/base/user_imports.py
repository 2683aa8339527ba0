"""The imports of a user's own Python file, such as a study or a config."""

import contextlib
import importlib
import sys
import traceback
from collections.abc import Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from bertjax.base.errors import InputError
from bertjax.base.shipped import PACKAGE

# The room of the package in which others are now -> those others.
_MOVED = {
    "data": ("corpus", "examples"),
    "models": ("layers", "attention", "encoders", "heads"),
    "training": ("optimizers", "sharding"),
    "tasks": ("similarity",),
    "runs": ("fine_tuning", "contrastive"),
    "inference": ("features",),
    "lab": ("studies", "probes", "minimal_pairs", "pages"),
}
_ROOMS = {
    f"{PACKAGE.name}.{old}": f"{PACKAGE.name}.{new}.{old}"
    for new, rooms in _MOVED.items()
    for old in rooms
}


@contextlib.contextmanager
def user_imports() -> Iterator[None]:
    """Finds modules of the package also by the names that they had when the file was written."""
    finder = _Moved()
    sys.meta_path.insert(0, finder)  # other finders would load a moved module a second time
    try:
        yield
    except ImportError as error:
        if where := _place(error):
            raise InputError(
                f"{where}: {error.msg}: correct the name, or install what is missing"
            ) from error
        raise
    finally:
        sys.meta_path.remove(finder)


class _Moved(MetaPathFinder, Loader):
    """Gives a module that moved under its earlier name, too: it is the same object."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(name, self) if _current_name(name) != name else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(_current_name(module.__name__))


def _current_name(name: str) -> str:
    """The name that a module has now."""
    room = ".".join(name.split(".")[:2])
    return _ROOMS.get(room, room) + name[len(room) :]


def _place(error: ImportError) -> str:
    """The file and the line of the user's import that failed; "" if one of the package did."""
    steps = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    importing = (__file__, importlib.__file__, "<frozen importlib._bootstrap>")
    file, line = [step for step in steps if step[0] not in importing][-1]
    return "" if Path(file).is_relative_to(PACKAGE) else f"{file}, line {line}"
