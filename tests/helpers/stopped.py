"""Pre-training that is stopped in the middle, as by Ctrl-C."""

from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

from bertjax.programs import pretrain
from bertjax.runs.source import load_run
from bertjax.training.metrics_log import MetricsLog
from tests.helpers.tiny_run import metrics_of


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


def assert_goes_on_exactly(config: Any, whole: Path, folder: Path, lines: int = 4) -> None:
    """Asserts that a run of `config` that is stopped ends like the run `whole`."""
    pretrain_until_stopped(config, folder, lines)
    assert pretrain.run(config, str(folder)) == 0
    assert metrics_of(folder) == metrics_of(whole)
    params = [dict(load_run(run).params) for run in (folder, whole)]
    jax.tree.map(np.testing.assert_array_equal, *params)
