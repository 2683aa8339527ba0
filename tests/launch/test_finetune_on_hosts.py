"""launch/finetune.py on several hosts does what it does on one with the same devices."""

import json
import re
import signal

import jax
import ml_collections
import numpy as np
import pytest

from bertjax.programs import finetune
from bertjax.runs.source import open_model
from configs import finetune_embeddings, finetune_ner
from tests.helpers import task_files
from tests.helpers.job import Job
from tests.helpers.patience import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.devices(8)]

ROWS = 61  # three full batches of 16 and one of 13, of which some hosts have padding alone
LEARNS, DIVERGES = 5e-3, 1e30


@pytest.fixture(scope="module")
def config(tiny_run, tmp_path_factory):
    """CoLA with a rate that learns and one that diverges, each with two seeds."""
    data = task_files.write_cola(tmp_path_factory.mktemp("data"), rows=ROWS)
    made = task_files.tiny_finetuning(
        tiny_run,
        data,
        task=dict(kind="glue", name="CoLA"),
        grid=dict(batch_size=(16,), learning_rate=(LEARNS, DIVERGES), epochs=(2,), restarts=2),
        accumulate=1,
        buckets=1,
        max_length=32,
        layout="fsdp",
        intervals=dict(log=2, checkpoint=3),
    )
    return made.to_dict()


@pytest.fixture(scope="module")
def one_host(config, tmp_path_factory):
    """The run of one host with eight devices, never interrupted."""
    run = tmp_path_factory.mktemp("one") / "run"
    assert finetune.run(ml_collections.ConfigDict(config), str(run)) == 0
    return run


def _files(run):
    return {
        str(path.relative_to(run))
        for path in run.rglob("*")
        if path.is_file() and "tfevents" not in path.name
    }


def assert_same(run, other):
    """The same choice, files and predictions; scores to 1e-3 and parameters to 2e-3."""
    result, reference = (json.loads((each / "results.json").read_text()) for each in (run, other))
    assert result["chosen"] == reference["chosen"]
    assert result["predictions"] == reference["predictions"]
    assert result["dev"]["dev"] == pytest.approx(reference["dev"]["dev"], rel=1e-3)
    diverged = [trial["degenerate"].startswith("diverged") for trial in result["trials"]]
    assert diverged == [False, False, True, True]
    assert _files(run) == _files(other)
    assert_same_model(run, other)


def assert_same_model(run, other):
    params = (open_model(str(each)).params for each in (run, other))
    for a, b in zip(*map(jax.tree.leaves, params), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)  # sums have another order


@pytest.mark.parametrize("hosts", [2, 4])
def test_hosts_do_what_one_does(hosts, config, one_host, tmp_path):
    run, flags = tmp_path / "run", (f"--hosts={hosts}", "--chips=8")
    how = dict(program="finetune", devices=8 // hosts)
    with Job(tmp_path, [config] * hosts, run, *flags, **how) as job:
        job.completes()
        said = job.output(0)
        assert all("trial" not in job.output(index) for index in range(1, hosts))
    assert "trial 4 of 4" in said and "DEGENERATE: diverged" in said
    assert_same(run, one_host)
    reference = [path for path in run.rglob("*") if not path.stat().st_mode & 0o044]
    assert not reference  # the first host has written everything that is left


# Host 1 is killed when it has restored or made the state of its third update in this process.
_KILLED = """
import os, signal
if os.environ.get("BERTJAX_PROCESS") == "1":
    from bertjax.training.loop import Trainer
    update, calls = Trainer.update, []
    def counted(self, *arguments):
        calls.append(1)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return update(self, *arguments)
    Trainer.update = counted
"""

# Host 0 gets SIGTERM while dev is predicted, after the first trial that this process completes.
_WHILE_PREDICTING = """
import os, signal
if os.environ.get("BERTJAX_PROCESS") == "0":
    from bertjax.runs.fine_tuning.trials import Trials
    outputs = Trials.outputs
    def signalled(self, *arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        return outputs(self, *arguments)
    Trials.outputs = signalled
"""


def test_stopped_killed_and_ended_on_half_the_hosts(config, one_host, tmp_path):
    run, how = tmp_path / "run", dict(program="finetune", devices=2)
    first = run / "trials" / f"batch16-rate{LEARNS:g}-epochs2-seed0"

    with Job(tmp_path, [config] * 4, run, **how) as job:
        job.wait_for(first.exists)  # the step is compiled next
        for host, _ in job.hosts:
            host.send_signal(signal.SIGTERM)
        assert job.ends() == [75] * 4, job.outputs()
        assert "stopped and saved" in job.output(0)

    (tmp_path / "sitecustomize.py").write_text(_KILLED)
    with Job(tmp_path, [config] * 4, run, before=tmp_path, **how) as job:
        job.hosts[1][0].wait(PATIENCE)
        codes = job.ends()
        assert codes.pop(1) == -signal.SIGKILL
        assert codes == [75] * 3, job.outputs()
        assert re.search(r"error: host 0 has lost (host \d|another host) \(", job.output(0))

    (tmp_path / "sitecustomize.py").write_text(_WHILE_PREDICTING)
    with Job(tmp_path, [config] * 4, run, before=tmp_path, **how) as job:
        assert job.ends() == [75] * 4, job.outputs()
        assert "going on from step" in job.output(0)
        assert "stopped and saved" in job.output(0)  # in the trial after the signal
    done = list(run.glob("trials/*/results.json"))
    assert 1 <= len(done) < 4

    with Job(tmp_path, [config] * 2, run, program="finetune", devices=2) as job:
        job.completes()
    assert_same(run, one_host)


def test_vectors_on_hosts(tiny_run, tmp_path):
    config = finetune_embeddings.get_config()
    data = task_files.write_pairs(tmp_path / "data")
    config.update(init_from=str(tiny_run), data=str(data), batch_size=16, total_steps=12)
    config.intervals.update(log=4, evaluate=6, checkpoint=5)
    one, run = tmp_path / "one", tmp_path / "run"
    assert finetune.run(config, str(one)) == 0
    how = dict(program="finetune", devices=4)
    with Job(tmp_path, [config.to_dict()] * 2, run, "--hosts=2", "--chips=8", **how) as job:
        job.completes()
    result, reference = (json.loads((each / "results.json").read_text()) for each in (run, one))
    assert result["chosen"] == reference["chosen"]
    assert result["dev"] == {name: pytest.approx(each) for name, each in reference["dev"].items()}
    assert_same_model(run, one)


def test_a_tagger_over_features_on_hosts(tiny_run, tmp_path):
    config = finetune_ner.get_config("features")
    data = task_files.write_conll(tmp_path / "data")
    config.update(data=str(data), init_from=str(tiny_run), max_length=48)
    config.features.update(choices=("last",), hidden=24)
    config.grid.update(batch_size=(8,), epochs=(4,), learning_rate=(1e-2,), restarts=1)
    one, run = tmp_path / "one", tmp_path / "run"
    assert finetune.run(config, str(one)) == 0
    with Job(tmp_path, [config.to_dict()] * 2, run, program="finetune", devices=4) as job:
        job.completes()
    (array,), (same,) = (
        [np.load(path) for path in sorted((each / "activations").glob("dev-*.npy"))]
        for each in (run, one)
    )
    np.testing.assert_allclose(array, same, atol=2e-3)  # of float16
    result, reference = (json.loads((each / "results.json").read_text()) for each in (run, one))
    (name,) = result
    assert result[name]["chosen"] == reference[name]["chosen"]
    assert result[name]["dev"]["dev"]["f1"] == pytest.approx(
        reference[name]["dev"]["dev"]["f1"], abs=2
    )


def test_what_is_wrong_on_one_host_ends_all(config, tmp_path):
    """Another dev file under the same name, and another config."""
    for host in range(2):
        data = task_files.write_cola(tmp_path / f"host{host}" / "data", rows=ROWS)
    path = data / "CoLA" / "dev.tsv"
    path.write_text(path.read_text().replace("\t1\t", "\t0\t", 1))
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nos.chdir(f'{tmp_path}/host' + os.environ['BERTJAX_PROCESS'])\n"
    )
    here = config | {"data": "data"}
    cases = {
        "the hosts of this job differ: dev is": here,
        "the hosts of this job differ: config.seed is 5 on host 1": here | {"seed": 5},
        "host 1: config.max_length=4000": here | {"max_length": 4000},
    }
    for number, (message, other) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        how = dict(program="finetune", before=tmp_path)
        with Job(folder, [here, other], tmp_path / "run", **how) as job:
            assert job.ends() == [2, 2], job.outputs()
            for index in range(2):
                lines = job.output(index).splitlines()
                (error,) = [line for line in lines if line.startswith("error: ")]
                assert error.startswith(f"error: {message}"), error
    assert not (tmp_path / "run").exists()
