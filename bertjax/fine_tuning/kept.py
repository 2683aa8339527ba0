"""The parameters of the best tagger over fixed features so far."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertjax.base.errors import InputError
from bertjax.fine_tuning.trials import Trials
from bertjax.training.checkpoint import Checkpoints


class KeptParameters:
    """A checkpoint in a folder: see `bertjax.fine_tuning.search.BestModel`."""

    def __init__(self, folder: Path, trials: Trials):
        self._folder, self._trials = folder, trials

    def save(self, params: Any, trial: str, settings: Mapping[str, Any]) -> None:
        """Whole, or absent for a moment: the trial is run again then."""
        shutil.rmtree(self._folder, ignore_errors=True)
        checkpoints = Checkpoints(self._folder, keep=1)
        checkpoints.save(0, {"params": params}, {"trial": trial} | settings)
        checkpoints.close()

    def _restore(self) -> tuple[Any, dict[str, Any]] | None:
        if not self._folder.exists():
            return None
        checkpoints = Checkpoints(self._folder, keep=1, read_only=True)
        restored = checkpoints.restore({"params": self._trials.abstract_params})
        return restored and (restored[0]["params"], restored[1])

    def trial(self) -> str | None:
        """The name of its trial; None if there is none yet."""
        restored = self._restore()
        return restored and restored[1]["trial"]

    def load(self) -> Any:
        """The parameters, on the devices.

        Raises:
          InputError: the folder is gone.
        """
        restored = self._restore()
        if restored is None:
            raise InputError(f"{self._folder}: was deleted during the run: start the run again")
        return restored[0]
