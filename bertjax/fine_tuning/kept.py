"""The best model so far, in a folder of its own."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from bertjax.base.files import names_to_disk, temporary_name, tree_to_disk


class Form(Protocol):
    """A module that writes models to folders, and reads them; a model's `task` is what it knows."""

    def write_folder(self, model: Any, folder: Path) -> None:
        """Writes a model into an empty folder."""

    def read_folder(self, folder: Path, origin: str) -> Any:
        """Reads it; `origin` is what the user calls the folder, for messages."""


class KeptModel:
    """The storage of a search: see `bertjax.fine_tuning.search.BestModel`.

    Args:
      folder: holds a whole model, or is absent.
      form: how it is written.
      pack: (parameters, what its `task` shall have) -> the model.
      unpack: a model -> its parameters, on the devices.
    """

    def __init__(
        self,
        folder: Path,
        form: Form,
        pack: Callable[[Any, Mapping[str, Any]], Any],
        unpack: Callable[[Any], Any],
    ):
        self._folder, self._form, self._pack, self._unpack = folder, form, pack, unpack

    def save(self, params: Any, trial: str, settings: Mapping[str, Any]) -> None:
        """Whole, or absent for a moment: the trial is run again then."""
        temporary = temporary_name(self._folder)
        temporary.mkdir()
        self._form.write_folder(self._pack(params, {**settings, "trial": trial}), temporary)
        tree_to_disk(temporary)
        shutil.rmtree(self._folder, ignore_errors=True)
        temporary.rename(self._folder)
        names_to_disk(self._folder.parent)

    def _read(self) -> Any:
        return self._form.read_folder(self._folder, str(self._folder))

    def trial(self) -> str | None:
        """The name of its trial; None if there is none yet."""
        return self._read().task["trial"] if self._folder.exists() else None

    def load(self) -> Any:
        """The parameters, on the devices.

        Raises:
          InputError: the folder is gone, or damaged.
        """
        return self._unpack(self._read())
