"""The checks that the hosts of a job are equal; other hosts are simulated by their messages."""

import os
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from bertjax.base.errors import InputError
from bertjax.programs import pretrain
from bertjax.runs import preflight
from bertjax.training.experiment import Experiment
from tests.helpers.tiny_run import tiny_config

pytestmark = pytest.mark.devices(8)


def tell(monkeypatch, *facts):
    """Simulates hosts that send these facts instead of this host's facts."""
    monkeypatch.setattr(preflight, "all_gather", lambda own: list(facts))


def test_hosts_that_are_alike(monkeypatch):
    facts = {"config.seed": 1, "corpus (train)": "ab"}
    preflight.check_same(facts)
    tell(monkeypatch, facts, facts, dict(facts))
    preflight.check_same(facts)


def test_what_differs_is_named_with_its_hosts(monkeypatch):
    usual = {"config.seed": 1, "version of jax": "0.10.2"}
    odd = {"config.seed": 2, "version of jax": "0.10.2"}
    tell(monkeypatch, usual, odd, usual, odd, usual)
    with pytest.raises(InputError, match="config.seed is 2 on hosts 1, 3, 1 on the others: give"):
        preflight.check_same(usual)


def test_host_0_may_be_the_odd_one(monkeypatch):
    facts = [{"config.seed": seed} for seed in (2, 1, 1)]
    tell(monkeypatch, *facts)
    with pytest.raises(InputError, match="config.seed is 2 on host 0, 1 on the others: give"):
        preflight.check_same(facts[0])


def test_a_file_that_is_missing_on_one_host(monkeypatch):
    tell(monkeypatch, {"bertjax/a.py": "f0"}, {}, {"bertjax/a.py": "f0"})
    with pytest.raises(InputError, match='bertjax/a.py is missing on host 1, "f0" on the others'):
        preflight.check_same({})


def test_many_differences_are_cut(monkeypatch):
    tell(monkeypatch, *({f"fact {n}": host for n in range(9)} for host in range(2)))
    with pytest.raises(InputError, match=r"fact 0 is 1 on host 1.*fact 3 .*; and 5 more: give"):
        preflight.check_same({})


def test_the_program_is_its_files_and_packages():
    program = preflight._program()
    assert program["version of jax"] == jax.__version__
    assert program["bertjax/training/loop.py"] != program["bertjax/runs/preflight.py"]
    assert len(program["bertjax/base/errors.py"]) == 12
    assert set(program) >= {"version of python", "version of jaxlib", "version of libtpu"}


def devices(*coords):
    return [SimpleNamespace(coords=each, slice_index=0, id=i) for i, each in enumerate(coords)]


def test_chips_are_counted_by_their_coordinates():
    assert preflight._chips(devices((0, 0, 0), (0, 0, 0), (1, 0, 0), (1, 0, 0))) == 2  # as v3
    assert preflight._chips(devices((0, 0, 0), (1, 0, 0), (0, 1, 0))) == 3  # as v5e
    slices = devices((0, 0, 0)) + [SimpleNamespace(coords=(0, 0, 0), slice_index=1, id=1)]
    assert preflight._chips(slices) == 2
    assert preflight._chips(jax.devices()) == 8  # a CPU has no coordinates


def test_other_numbers_of_hosts_or_chips_than_the_flags(tiny_corpus, tmp_path):
    config, run = tiny_config(tiny_corpus), tmp_path / "run"
    with pytest.raises(InputError, match="this job has 1 host, but the flag is --hosts=4"):
        pretrain.run(config, str(run), hosts=4)
    with pytest.raises(InputError, match=r"this job has 8 chips \(8 cpu devices .*--chips=16"):
        pretrain.run(config, str(run), hosts=1, chips=16)
    assert not run.exists()
    preflight.check_programs(1)
    preflight.check_devices(8)


def test_the_folder_is_tried_and_left_clean(tmp_path):
    preflight.check_folder(tmp_path / "a" / "run", 10, 3)
    assert [path.name for path in (tmp_path / "a").rglob("*")] == ["run"]


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    for name in ("file", "file/run"):
        with pytest.raises(InputError, match=r"file.*: cannot be written \(.+choose another --wor"):
            preflight.check_folder(tmp_path / name, 10, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_room_for_the_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * 2**30))
    preflight.check_folder(tmp_path, 2**29, 4)
    message = "2.00 GiB free, 3 checkpoints of 1.00 GiB need 3.00 GiB: free some space"
    with pytest.raises(InputError, match=message):
        preflight.check_folder(tmp_path, 2**30, 3)
    assert not list(tmp_path.iterdir())
    # Checkpoints of an interrupted run count as free space, because they are replaced.
    (tmp_path / "checkpoints" / "5").mkdir(parents=True)
    with open(tmp_path / "checkpoints" / "5" / "data", "wb") as file:
        os.truncate(file.fileno(), 2**30)  # takes no room
    preflight.check_folder(tmp_path, 2**30, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


def test_the_preflight_comes_before_the_compile(tiny_corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(Experiment, "initial_state", None)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(InputError, match="free, 3 checkpoints of .* need"):
        pretrain.run(tiny_config(tiny_corpus), str(tmp_path / "run"))
    assert list(Path(tmp_path / "run").iterdir()) == []
