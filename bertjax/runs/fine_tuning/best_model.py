"""The best model so far, in a folder of its own, or with a folder for each task.

Only the first host writes; all hosts must call each method.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertjax.base.files import replaced_folder
from bertjax.training.model import Params
from bertjax.training.sharding.hosts import from_first, raise_together
from bertjax.training.sharding.placement import Placement


class BestModel:
    """The folders in which a search stores its best model.

    Args:
      folders: the name of a task -> the folder of its model, which is whole or absent. A single
        task has the name "".
      read: (folder, what the user calls it) -> the model; its `task` is a dict.
      pack: (name, params on the host, items for the model's `task`) -> the model.
      unpack: the models by name -> their params, on the devices.
    """

    def __init__(
        self,
        folders: Mapping[str, Path],
        placement: Placement,
        write: Callable[[Any, Path], None],
        read: Callable[[Path, str], Any],
        pack: Callable[[str, Params, Mapping[str, Any]], Any],
        unpack: Callable[[Mapping[str, Any]], Params],
    ):
        self.folders, self._placement = folders, placement
        self._write, self._read_folder = write, read
        self._pack, self._unpack = pack, unpack

    def save(self, params: Params, trial: str, settings: Mapping[str, Mapping[str, Any]]) -> None:
        """Replaces the stored model; `settings` are the result of `Task.tune` for each task.

        A folder is absent for a moment. A process that ends then, or between two folders, runs the
        trial again.
        """
        on_host = self._placement.on_host(params)

        def write() -> None:
            for name, folder in self.folders.items():
                with replaced_folder(folder) as temporary:
                    task = {**settings.get(name, {}), "trial": trial}
                    self._write(self._pack(name, on_host, task), temporary)

        from_first(write)

    def _read(self, folder: Path) -> Any:
        return self._read_folder(folder, str(folder))

    def trial(self) -> str | None:
        """The name of the stored model's trial; None if no model is stored yet."""

        def read() -> str | None:
            if not all(folder.exists() for folder in self.folders.values()):
                return None
            trials = {self._read(folder).task["trial"] for folder in self.folders.values()}
            return trials.pop() if len(trials) == 1 else None

        return from_first(read)

    def load(self) -> Params:
        """Loads the params of the stored model to the devices."""
        with raise_together():
            stored = {name: self._read(folder) for name, folder in self.folders.items()}
        return self._unpack(stored)
