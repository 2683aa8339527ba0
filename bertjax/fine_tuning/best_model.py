"""The best model so far, in a folder of its own."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertjax.base.files import replaced_folder
from bertjax.training.model import Params


class BestModel:
    """The folder in which a search stores its best model.

    Args:
      folder: holds a whole model, or is absent.
      write: writes a model into an empty folder.
      read: (folder, what the user calls it) -> the model; its `task` is a dict.
      pack: (params, items for the model's `task`) -> the model.
      unpack: a model -> its params, on the devices.
    """

    def __init__(
        self,
        folder: Path,
        write: Callable[[Any, Path], None],
        read: Callable[[Path, str], Any],
        pack: Callable[[Params, Mapping[str, Any]], Any],
        unpack: Callable[[Any], Params],
    ):
        self._folder, self._write, self._read_folder = folder, write, read
        self._pack, self._unpack = pack, unpack

    def save(self, params: Params, trial: str, settings: Mapping[str, Any]) -> None:
        """Replaces the stored model.

        The folder is absent for a moment. A process that ends then runs the trial again.

        Args:
          trial: the name of the model's trial.
          settings: the result of `Task.tune`.
        """
        with replaced_folder(self._folder) as temporary:
            self._write(self._pack(params, {**settings, "trial": trial}), temporary)

    def _read(self) -> Any:
        return self._read_folder(self._folder, str(self._folder))

    def trial(self) -> str | None:
        """The name of the stored model's trial; None if no model is stored yet."""
        return self._read().task["trial"] if self._folder.exists() else None

    def load(self) -> Params:
        """Loads the params of the stored model to the devices.

        Raises:
          InputError: the folder is gone, or damaged.
        """
        return self._unpack(self._read())
