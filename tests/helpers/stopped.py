"""Pre-training that is stopped in the middle, as by Ctrl-C."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bertjax.programs import pretrain
from bertjax.training.metrics_log import MetricsLog


def pretrain_until_stopped(config: Any, folder: Path, lines: int) -> None:
    """Begins a run, and stops it after so many lines of its metrics."""
    written, write = [], MetricsLog.write

    def stop(self, *arguments, **fields):
        write(self, *arguments, **fields)
        written.append(arguments)
        if len(written) == lines:
            raise KeyboardInterrupt

    with mock.patch.object(MetricsLog, "write", stop), pytest.raises(KeyboardInterrupt):
        pretrain.run(config, str(folder))
