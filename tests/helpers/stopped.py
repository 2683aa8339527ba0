"""Pre-training that is stopped in the middle, as by Ctrl-C."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bertjax.programs import pretrain
from bertjax.training.journal import Journal


def pretrain_until_stopped(config: Any, folder: Path, lines: int) -> None:
    """Begins a run, and stops it behind so many lines of its metrics."""
    written, write = [], Journal.write

    def stop(self, *arguments, **fields):
        write(self, *arguments, **fields)
        written.append(arguments)
        if len(written) == lines:
            raise KeyboardInterrupt

    with mock.patch.object(Journal, "write", stop), pytest.raises(KeyboardInterrupt):
        pretrain.run(config, str(folder))
