"""launch/pretrain.py in four processes of two devices trains like one process of eight."""

import json
import re
import signal
import time

import jax
import numpy as np
import pytest

from bertjax.programs import pretrain
from bertjax.runs.source import load_run
from tests.helpers.job import Job
from tests.helpers.patience import PATIENCE
from tests.helpers.tiny_run import ONE_LENGTH, metrics_of, tiny_config

pytestmark = [pytest.mark.slow, pytest.mark.devices(8)]

STEPS = 24


def config_of(corpus, **changes):
    """The config of a run of 24 steps of one length, saved every 3 steps."""
    intervals = {"log": 2, "evaluate": 12, "checkpoint": 3, "eval_batches": 2}
    return tiny_config(corpus, total_steps=STEPS, intervals=intervals, **ONE_LENGTH, **changes)


def assert_same_run(run, other) -> None:
    """Compares metrics to 1e-3 and parameters to 2e-3, because sums have another order."""
    rows, others = metrics_of(run), metrics_of(other)
    assert [row["step"] for row in rows] == [row["step"] for row in others]
    for row, expected in zip(rows, others, strict=True):
        assert row.pop("split") == expected.pop("split")
        assert row == pytest.approx(expected, rel=1e-3), row["step"]
    pairs = zip(*(jax.tree.leaves(load_run(each).params) for each in (run, other)), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(a, b, atol=2e-3)


def saved(run) -> list[int]:
    """The steps of a run's complete checkpoints."""
    return sorted(int(p.name) for p in (run / "checkpoints").glob("*") if p.name.isdigit())


@pytest.fixture(scope="module")
def one_process(tiny_corpus, tmp_path_factory):
    """The run of one process with eight devices, never interrupted."""
    run = tmp_path_factory.mktemp("one") / "run"
    assert pretrain.run(config_of(tiny_corpus), str(run)) == 0
    return run


def test_four_hosts_do_what_one_does(tiny_corpus, one_process, tmp_path):
    run, config = tmp_path / "run", config_of(tiny_corpus, layout="fsdp")
    with Job(tmp_path, [config] * 4, run, "--hosts=4", "--chips=8") as job:
        job.completes()
        assert "layout 'fsdp' on 8 x cpu" in job.output(0)
        assert all("steps done" not in job.output(index) for index in (1, 2, 3))
    assert_same_run(run, one_process)

    names = {path.name for path in run.iterdir()}
    assert names == {path.name for path in one_process.iterdir()}
    reference = {
        p.relative_to(run).parts[0] for p in run.rglob("*") if not p.stat().st_mode & 0o044
    }
    assert reference <= {
        "checkpoints"
    }  # the first host writes everything except shards of checkpoints
    assert len(list((run / "tensorboard").iterdir())) == 1


# Host 2 is killed at its second save, when its first one is complete.
_KILLED = """
import os, signal, time
if os.environ.get("BERTJAX_PROCESS") == "2":
    from bertjax.training.checkpoint import Checkpoints
    save, steps = Checkpoints.save, []
    def save_once(self, step, *content):
        steps.append(step)
        if len(steps) == 1:
            return save(self, step, *content)
        while not (self._directory / str(steps[0])).exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    Checkpoints.save = save_once
"""


def test_stopped_killed_and_ended_on_half_the_hosts(tiny_corpus, one_process, tmp_path, capsys):
    """SIGTERM comes during the compilation, then kill -9 of one host; 2 x 2 devices end the run."""
    run, config = tmp_path / "run", config_of(tiny_corpus)

    with Job(tmp_path, [config] * 4, run) as job:
        job.wait_for((run / "config.json").exists)  # the step is compiled next
        for host, _ in job.hosts:
            host.send_signal(signal.SIGTERM)
        started = time.monotonic()
        assert job.ends() == [75] * 4, job.outputs()
        seconds = {"from SIGTERM to the end of all": time.monotonic() - started}
        (stopped,) = saved(run)
        assert 0 < stopped < STEPS
        assert f"stopped at step {stopped}, saved" in job.output(0)

    (tmp_path / "sitecustomize.py").write_text(_KILLED)
    with Job(tmp_path, [config] * 4, run, before=tmp_path) as job:
        job.hosts[2][0].wait(PATIENCE)
        started = time.monotonic()
        codes = job.ends()
        seconds["from kill -9 to the end of all"] = time.monotonic() - started
        assert f"going on from step {stopped}" in job.output(0)
        assert codes.pop(2) == -signal.SIGKILL
        assert codes == [75] * 3, job.outputs()
        for index in (0, 1, 3):
            # The message names the killed host, or the first host that ended because of it.
            lost = rf"error: host {index} has lost (host \d|another host) \("
            assert re.search(lost, job.output(index)), job.output(index)
            assert "Traceback" not in job.output(index)
    last = saved(run)[-1]
    assert stopped < last < STEPS

    with Job(tmp_path, [config] * 2, run, "--hosts=2", "--chips=4") as job:
        job.completes()
        assert f"going on from step {last}" in job.output(0)
    assert_same_run(run, one_process)
    with capsys.disabled():
        print(json.dumps({name: round(value, 1) for name, value in seconds.items()}), codes)


def test_what_is_wrong_on_one_host_ends_all(tiny_corpus, tmp_path):
    """The job ends before a file is written."""
    good, run = config_of(tiny_corpus), tmp_path / "run"
    cases = {
        "host 1: /nowhere: no such corpus: name a folder": good | {"corpus": "/nowhere"},
        "the hosts of this job differ: config.seed is 5 on host 1": good | {"seed": 5},
    }
    for number, (message, other) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Job(folder, [good, other], run) as job:
            assert job.ends() == [2, 2], job.outputs()
            for index in range(2):
                lines = job.output(index).splitlines()
                (error,) = [line for line in lines if line.startswith("error: ")]
                assert error.startswith(f"error: {message}")
    assert not run.exists()
