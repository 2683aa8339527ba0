"""Checkpoints: restored on any sharding, retained by policy, and skipped if damaged."""

import contextlib
import logging
import os
import shutil
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from flax.traverse_util import unflatten_dict
from jax.sharding import NamedSharding, PartitionSpec

from bertjax.base.errors import InputError
from bertjax.training import checkpoint
from bertjax.training.checkpoint import Checkpoints, newest_metadata
from bertjax.training.state import Average, TrainState
from tests.helpers.slow_cases import others_slow
from tests.training import toy


def _states(where, count: int) -> list[TrainState]:
    """The states of the first steps, which differ in every leaf."""
    rng = np.random.default_rng(0)

    def state(step):
        def leaf(abstract):
            if abstract.dtype == np.int32:
                return np.int32(step)
            return rng.normal(size=abstract.shape).astype(np.float32)

        shardings = toy.abstract(where)
        return jax.device_put(
            jax.tree.map(leaf, shardings), jax.tree.map(lambda leaf: leaf.sharding, shardings)
        )

    return [state(step) for step in range(1, count + 1)]


def _metadata(step: int):
    return {"step": step, "window": {"loss": [0.1 + 0.2, 3.0]}, "data": {"train": "identity"}}


def _save(folder, states, **options) -> None:
    with contextlib.closing(Checkpoints(folder, **{"keep": 9, **options})) as checkpoints:
        for step, state in enumerate(states, 1):
            checkpoints.save(step, state.checkpointables(), _metadata(step))


def _restore(folder, where, **options):
    with contextlib.closing(Checkpoints(folder, **{"keep": 9, **options})) as checkpoints:
        restored = checkpoints.restore(toy.abstract(where).checkpointables())
    if restored is None:
        return None
    trees, metadata = restored
    return TrainState.from_checkpointables(trees), metadata


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two checkpoints with parameters split over eight devices, and their content."""
    where = toy.placement(8, "fsdp")
    folder, states = tmp_path_factory.mktemp("saved"), _states(where, 2)
    _save(folder, states)
    return folder, states


@pytest.fixture
def copy(saved, tmp_path):
    """A copy of `saved` to damage."""
    folder = tmp_path / "checkpoints"
    shutil.copytree(saved[0], folder)
    return folder


@pytest.mark.parametrize(
    "devices, name", [(8, "fsdp"), (8, "data"), (4, "fsdp"), (4, "data"), (1, "data")]
)
def test_eight_devices_restore_on_others(saved, devices, name):
    folder, states = saved
    where = toy.placement(devices, name)
    state, metadata = _restore(folder, where)
    toy.assert_equal(state, states[1])
    assert metadata == _metadata(2)
    expected = toy.abstract(where)
    for leaf, abstract in zip(jax.tree.leaves(state), jax.tree.leaves(expected), strict=True):
        assert leaf.sharding == abstract.sharding


def test_one_device_restores_on_eight(tmp_path):
    states = _states(toy.placement(1), 1)
    _save(tmp_path, states)
    toy.assert_equal(_restore(tmp_path, toy.placement(8, "fsdp"))[0], states[0])


def test_parameters_alone(saved):
    folder, states = saved
    abstract = toy.abstract(toy.placement(1)).checkpointables()
    with contextlib.closing(Checkpoints(folder, keep=9, read_only=True)) as checkpoints:
        trees, _ = checkpoints.restore({"params": abstract["params"]})
    toy.assert_equal(trees, {"params": states[1].params})


def test_nothing_saved_is_none(tmp_path):
    assert _restore(tmp_path / "new", toy.placement(1)) is None


@pytest.mark.parametrize(
    "keep, keep_every, left",
    [(1, 0, [7]), (3, 0, [5, 6, 7]), (1, 3, [3, 6, 7]), (2, 2, [2, 4, 6, 7])],
)
def test_retention(tmp_path, keep, keep_every, left):
    states = _states(toy.placement(1), 7)
    _save(tmp_path, states, keep=keep, keep_every=keep_every)
    assert toy.folders(tmp_path) == sorted(map(str, left))
    toy.assert_equal(_restore(tmp_path, toy.placement(1))[0], states[6])


def test_a_step_saved_again_is_the_newer_one(tmp_path):
    one, two = _states(toy.placement(1), 2)
    _save(tmp_path, [one])
    _save(tmp_path, [two])
    toy.assert_equal(_restore(tmp_path, toy.placement(1))[0], two)


_RENAMES = {"line/*/inner/kernel": "line/*/kernel", "head": "transform"}
_NOW = {"line/0/kernel": 8, "line/1/kernel": 16, "line/1/bias": 24, "transform/kernel": 32}
_BEFORE = {
    "line/0/inner/kernel": 8,
    "line/1/inner/kernel": 16,
    "line/1/bias": 24,
    "head/kernel": 32,
}


def _of_paths(sizes, array):
    """A state whose parameters have these paths and sizes, with an average and Adam's moments."""

    def tree(first):
        return unflatten_dict({path: array(first, size) for path, size in sizes.items()}, sep="/")

    moments = optax.ScaleByAdamState(count=array(0, 8), mu=tree(100), nu={"part": tree(200)})
    return {
        "average": Average(tree(300), 0.9),
        "optimizer": {"step": array(9, 8), "state": (optax.EmptyState(), moments)},
    }


@pytest.mark.parametrize("sizes", [_BEFORE, _NOW], ids=["before", "now"])
def test_earlier_paths_are_restored_as_those_of_now(tmp_path, sizes):
    """Also in an average and in moments, and split over the devices."""
    split = NamedSharding(toy.placement(8, "fsdp").mesh, PartitionSpec("data"))

    def saved(first, size):
        return jax.device_put(np.arange(first, first + size, dtype=np.float32), split)

    def abstract(_, size):
        return jax.ShapeDtypeStruct((size,), np.float32, sharding=split)

    with contextlib.closing(Checkpoints(tmp_path, keep=1, renames=_RENAMES)) as checkpoints:
        checkpoints.save(1, _of_paths(sizes, saved), _metadata(1))
        checkpoints.wait()
        trees, metadata = checkpoints.restore(_of_paths(_NOW, abstract))
    assert metadata == _metadata(1)
    toy.assert_equal(trees, _of_paths(_NOW, saved))
    assert {leaf.sharding for leaf in jax.tree.leaves(trees)} == {split}


def test_only_renamed_keys_change():
    """A tree may have empty dicts, and keys that are numbers or have a slash."""
    tree = {1: {"head": 2, "b/c": {}}, "a": [{"part": {"head": {"w": 3}}}, None, {}], "d": {}}
    assert checkpoint._renamed(tree, {}) == tree
    assert checkpoint._renamed(tree, _RENAMES) == {
        1: {"transform": 2, "b/c": {}},
        "a": [{"part": {"transform": {"w": 3}}}, None, {}],
        "d": {},
    }


# --------------------------------------------------------------------------------- damage


def _remove(path):
    path.unlink()


def _truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _change_a_digit(path):
    text = path.read_text()
    assert text.count("0.30000000000000004") == 1
    path.write_text(text.replace("0.30000000000000004", "0.30000000000000005"))


def _metadata_file(folder):
    return folder / "2" / "_CHECKPOINT_METADATA"


def _largest(folder):
    return max((p for p in folder.rglob("*/d/*") if p.parent.parent.parent == folder), key=_size)


def _size(path):
    return path.stat().st_size


# If a read fails, Orbax does not wait for the other reads.
_orbax_leaves_readers_behind = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine .* was never awaited"
)


@_orbax_leaves_readers_behind
@pytest.mark.parametrize(
    "file, damage",
    [
        *[("data", damage) for damage in (_remove, _truncate, _flip)],
        *[("metadata", damage) for damage in (_remove, _truncate, _change_a_digit)],
    ],
)
def test_a_damaged_checkpoint_is_passed_over(saved, copy, caplog, file, damage):
    damage(_largest(copy / "2") if file == "data" else _metadata_file(copy))
    with caplog.at_level(logging.WARNING, "bertjax"):
        state, metadata = _restore(copy, toy.placement(8, "fsdp"))
    toy.assert_equal(state, saved[1][0])
    assert metadata == _metadata(1)
    said = [r.getMessage() for r in caplog.records if r.name.startswith("bertjax")]
    assert len(said) == 1
    assert said[0].startswith(f"checkpoint {copy / '2'} is damaged (")
    assert said[0].endswith("; trying the one before it")


@_orbax_leaves_readers_behind
@pytest.mark.parametrize("damage", others_slow([_remove, _truncate, _flip], _flip))
def test_whatever_is_damaged_what_is_restored_was_saved(saved, copy, tmp_path, damage):
    """After damage to each file in turn, the newest or the previous checkpoint is restored."""
    folder, states = saved
    restored = []
    for path in sorted(p for p in (folder / "2").rglob("*") if p.is_file()):
        shutil.rmtree(copy)
        shutil.copytree(folder, copy)
        damage(copy / path.relative_to(folder))
        state, metadata = _restore(copy, toy.placement(4, "fsdp"))
        step = int(state.step)
        toy.assert_equal(state, states[step - 1])
        assert metadata == _metadata(step), path
        restored.append(step)
    assert {1, 2} == set(restored)  # some files are copies that nobody reads


@_orbax_leaves_readers_behind
def test_damage_of_all_checkpoints_is_reported(copy):
    for step in ("1", "2"):
        _flip(_largest(copy / step))
    with pytest.raises(InputError, match=r"all checkpoints \[1, 2\] are damaged: restore"):
        _restore(copy, toy.placement(8, "fsdp"))


@_orbax_leaves_readers_behind
def test_a_damaged_one_does_not_count(saved, copy):
    """Kept checkpoints are not known to be damaged; a damaged one is replaced at its step."""
    where = toy.placement(8, "fsdp")
    third = _states(where, 3)[2]
    _flip(_largest(copy / "2"))
    with contextlib.closing(Checkpoints(copy, keep=2)) as checkpoints:
        trees, _ = checkpoints.restore(toy.abstract(where).checkpointables())
        toy.assert_equal(TrainState.from_checkpointables(trees), saved[1][0])
        checkpoints.save(3, third.checkpointables(), _metadata(3))
        checkpoints.wait()
        assert toy.folders(copy) == ["1", "3"]
        checkpoints.save(2, saved[1][1].checkpointables(), _metadata(2))
        checkpoints.wait()
        assert toy.folders(copy) == ["2", "3"]
    toy.assert_equal(_restore(copy, where)[0], third)


def test_one_that_may_not_be_read_is_not_passed_over(copy, monkeypatch):
    """It may be complete, and the steps since the previous checkpoint would be lost."""
    real, closed = os.access, _metadata_file(copy)
    monkeypatch.setattr(os, "access", lambda path, mode: path != closed and real(path, mode))
    with pytest.raises(InputError, match=f"{closed}: you have no permission .*: run chmod -R"):
        _restore(copy, toy.placement(1))
    assert toy.folders(copy) == ["1", "2"]


def test_metadata_without_arrays(saved, copy, tmp_path):
    assert newest_metadata(copy) == _metadata(2)
    _truncate(_metadata_file(copy))
    assert newest_metadata(copy) == _metadata(1)
    assert newest_metadata(tmp_path / "new") == {}
    (tmp_path / "file").touch()
    assert newest_metadata(tmp_path / "file") == {}
    with pytest.raises(InputError, match="file: a file, but a folder is needed here: move it away"):
        Checkpoints(tmp_path / "file", keep=1)


def test_it_is_on_the_disk_before_an_older_one_goes(tmp_path, monkeypatch):
    """Otherwise a power cut could destroy both."""
    one, two = _states(toy.placement(1), 2)
    _save(tmp_path, [one])
    real, brought = os.fsync, {}

    def fsync(number):
        path = Path(os.readlink(f"/proc/self/fd/{number}"))
        brought[path.name] = toy.folders(tmp_path)
        return real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    with contextlib.closing(Checkpoints(tmp_path, keep=1)) as checkpoints:
        checkpoints.save(2, two.checkpointables(), _metadata(2))
    (unfinished,) = [name for name in brought if name.startswith("2.")]
    assert {brought[name] == ["1", unfinished] for name in brought} == {True}
    written = {path.name for path in (tmp_path / "2").rglob("*")}
    assert "_CHECKPOINT_METADATA" in written and written <= brought.keys()
    assert toy.folders(tmp_path) == ["2"]


def test_a_checksum_is_the_sum_of_the_words():
    """Of 32 bits: 1.0 is 0x3F800000, 2.0 is 0x40000000, -1.0 is 0xBF800000."""
    tree = {
        "a": np.array([1.0, 2.0], np.float32),
        "b": np.array([[-1.0, 2.0], [-1.0, 0.0]], np.float32),
        "c": np.array([-1, 3], np.int32),
        "d": np.array([200, 0, 100], np.uint8),
    }
    found = jax.jit(checkpoint._checksums)(tree)
    assert {leaf.dtype for leaf in found.values()} == {np.dtype(np.uint32)}
    assert {name: int(leaf) for name, leaf in found.items()} == {
        **{"a": 0x7F800000, "b": 0xBF000000, "c": 2, "d": 300},
    }


def test_one_wrong_number_is_damage(copy, saved, caplog):
    """A checkpoint of valid files, in which the smallest of the weights is another."""
    where, whole = toy.placement(8, "fsdp"), saved[1][1].checkpointables()
    weights = np.array(whole["params"]["w"])
    weights[np.abs(weights).argmin()] *= 2
    wrong = whole["params"] | {"w": jax.device_put(weights, whole["params"]["w"].sharding)}
    with contextlib.closing(Checkpoints(copy, keep=9)) as checkpoints:
        real = checkpoints._checksums
        checkpoints._checksums = lambda tree: real(whole["params"] if tree is wrong else tree)
        checkpoints.save(3, whole | {"params": wrong}, _metadata(3))
    with caplog.at_level(logging.WARNING, "bertjax"):
        state, metadata = _restore(copy, where)
    toy.assert_equal(state, saved[1][1])
    assert metadata == _metadata(2)
    assert f"checkpoint {copy / '3'} is damaged (checksums differ: ['w'])" in caplog.text


def test_damage_on_one_host_counts_for_all(copy, saved, monkeypatch, caplog):
    """Host 1 cannot read checkpoint 2, which this host can: both must use checkpoint 1."""
    where = toy.placement(8, "fsdp")
    answers = iter([False, True, False, False])  # of host 1: no access to 2, damage of 2, and of 1
    monkeypatch.setattr(checkpoint, "_anywhere", lambda condition: condition | next(answers))
    with caplog.at_level(logging.WARNING, "bertjax"):
        state, metadata = _restore(copy, where)
    toy.assert_equal(state, saved[1][0])
    assert metadata == _metadata(1) and list(answers) == []
    assert f"{copy / '2'} is damaged (another process could not read it); trying" in caplog.text


@pytest.mark.parametrize("here, there", [(False, True), (True, False), (False, False)])
def test_a_condition_of_any_host_holds_anywhere(monkeypatch, here, there):
    gathered = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(
        checkpoint.multihost_utils,
        "process_allgather",
        lambda mine: gathered.append(mine.item()) or np.array([mine, there]),
    )
    assert checkpoint._anywhere(here) is (here or there)
    assert gathered == [here]


def test_an_unfinished_save_is_ignored(saved, copy):
    """kill -9 leaves a folder with a temporary name."""
    unfinished = copy / "3.orbax-checkpoint-tmp"
    shutil.copytree(copy / "2", unfinished)
    _remove(_largest(unfinished))
    state, _ = _restore(copy, toy.placement(1), read_only=True)
    toy.assert_equal(state, saved[1][1])
    assert unfinished.exists()  # a reader leaves it alone
    with contextlib.closing(Checkpoints(copy, keep=9)) as checkpoints:
        checkpoints.save(4, saved[1][1].checkpointables(), _metadata(4))
    assert toy.folders(copy) == ["1", "2", "4"]  # the run removed the folder before it saved


def test_only_orbaxs_tracebacks_are_not_logged():
    """It raises their exceptions in the caller's thread, where they are told."""
    failed = (ValueError, ValueError("no room"), None)
    for path, error, logged in (
        ("site-packages/orbax/checkpoint/_src/futures/future.py", failed, False),
        ("site-packages/orbax/checkpoint/_src/futures/future.py", None, True),
        ("site-packages/jax/_src/distributed.py", failed, True),
    ):
        record = logging.LogRecord("absl", logging.ERROR, path, 1, "it failed", (), error)
        assert bool(logging.getLogger("absl").filter(record)) == logged
