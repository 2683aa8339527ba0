"""Two processes of four devices train like one process of eight."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from bertjax.training.checkpoint import Checkpoints
from bertjax.training.metrics_log import read_metrics
from bertjax.training.sharding.placement import data_parallel
from tests.helpers.closeness import assert_close
from tests.helpers.patience import PATIENCE
from tests.helpers.reserved_port import reserved_port
from tests.helpers.xla_flags import xla_flags
from tests.training import job

pytestmark = [pytest.mark.slow, pytest.mark.devices(8)]

STEPS = 6
JOB = Path(job.__file__)
TIMING = ("tokens_per_second", "host_wait")


def _two_processes(repository, *arguments) -> None:
    with contextlib.ExitStack() as stack:
        environment = os.environ | {
            "JAX_COORDINATOR_ADDRESS": f"localhost:{stack.enter_context(reserved_port())}",
            "BERTJAX_PROCESSES": "2",
            "PYTHONPATH": str(repository),
            "XLA_FLAGS": xla_flags(4),
        }
        processes = [
            subprocess.Popen(
                [sys.executable, JOB, *map(str, arguments)],
                env=environment | {"BERTJAX_PROCESS": str(i)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for i in range(2)
        ]
        for process in processes:
            stack.callback(process.kill)
        outputs = [process.communicate(timeout=PATIENCE)[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        if process.returncode:
            pytest.fail(f"exit code {process.returncode}:\n{output[-6000:]}", pytrace=False)


def _reports(folder) -> list[dict]:
    return [json.loads((folder / f"process_{i}.json").read_text()) for i in range(2)]


def _restored(folder):
    """Restores the newest checkpoint on one device."""
    state = job.experiment(data_parallel(jax.devices()[:1])).state
    with contextlib.closing(Checkpoints(folder / "checkpoints", keep=2)) as checkpoints:
        trees, metadata = checkpoints.restore(state.checkpointables())
    return jax.device_get(trees), metadata


def _assert_near(actual, expected, step: int) -> None:
    """Compares parameters, moments and step; sums have another order, in every update."""
    assert actual[1]["step"] == expected[1]["step"] == step
    (params, moments), others = (
        [trees[name] for name in ("params", "optimizer")] for trees, _ in (actual, expected)
    )
    assert_close(params, others[0], terms=64, size=1.0)  # a scale of a layer norm is 1
    assert_close(moments, others[1], terms=1024)


def _lines(folder):
    return [{k: row[k] for k in row if k not in TIMING} for row in read_metrics(folder)]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    """The folder of a run in this process."""
    folder = tmp_path_factory.mktemp("one")
    _, complete = job.run(folder, STEPS)
    assert complete
    return folder


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory, repository):
    folder = tmp_path_factory.mktemp("two")
    _two_processes(repository, folder, STEPS)
    return folder


def test_both_processes_finish(two_processes):
    for report in _reports(two_processes):
        assert (report["step"], report["complete"], report["processes"]) == (STEPS, True, 2)


def test_the_batch_is_the_same_and_each_process_holds_its_half(two_processes):
    whole = job.batch(0, slice(None))
    firsts = []
    for report in _reports(two_processes):
        assert report["held"].keys() == whole.keys()
        for name, shards in report["held"].items():
            assert len(shards) == 4
            for first, rows in shards:
                np.testing.assert_array_equal(rows, whole[name][first : first + 2])
        firsts.append([first for first, _ in report["held"]["input_ids"]])
    assert firsts == [[0, 2, 4, 6], [8, 10, 12, 14]]


def test_losses_are_the_same(one_process, two_processes):
    one, two = _lines(one_process), _lines(two_processes)
    assert [row["step"] for row in one] == [2, 4, 4, 6, 6]
    for expected, actual in zip(one, two, strict=True):
        assert actual.pop("split") == expected.pop("split")
        assert_close(actual, expected, terms=1024)


def test_a_checkpoint_of_two_processes_restores_in_one(one_process, two_processes):
    _assert_near(_restored(two_processes), _restored(one_process), STEPS)


def test_a_signal_to_one_stops_both(tmp_path, repository):
    """They go on in tests/launch/test_many_hosts.py."""
    _two_processes(repository, tmp_path, 400, 4)
    reports = _reports(tmp_path)
    step = reports[0]["step"]
    assert [(r["step"], r["complete"]) for r in reports] == [(step, False)] * 2
    assert 0 < step < 400
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == [str(step)]
    assert _restored(tmp_path)[1]["step"] == step
