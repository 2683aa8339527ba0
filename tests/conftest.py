"""The environment of all tests: one simulated CPU device, no network, and the marks."""

import contextlib
import gc
import importlib.util
import os
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.helpers.checkout import REPOSITORY
from tests.helpers.xla_flags import xla_flags

pytest_plugins = ["tests.helpers.small_bert"]
_DEVICES = 8  # all devices; a test sees one, or as many as its mark says
_PEERS = ("torch", "transformers")
_OF_OTHER_TIERS = {"slow", "peers", "needs"}

# JAX reads these variables when it is imported, here and in the processes that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = xla_flags(_DEVICES)
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(REPOSITORY / ".cache" / "jax")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["EPATH_USE_TF"] = "false"  # as cloud_storage.py, but before JAX makes a path
os.environ["PYTHONPATH"] = str(REPOSITORY)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the processes would compile all modules again

import jax  # noqa: E402

from tests.helpers import programs  # noqa: E402
from tests.helpers.built_once import built_once  # noqa: E402

gc.disable()  # each file ends with a collection; those on the way take a quarter of the time


def pytest_report_header() -> str:
    """The versions that the suite runs with, which are those of constraints/ in CI."""
    names = ("jax", "flax", "optax", "orbax-checkpoint", "numpy", "tokenizers", "transformers")
    found = {name: version(name) for name in names if importlib.util.find_spec(name.split("-")[0])}
    return ", ".join(f"{name} {number}" for name, number in found.items())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        modules = [name for mark in item.iter_markers("needs") for name in mark.args]
        modules += _PEERS if item.get_closest_marker("peers") else ()
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            reason = f"{' and '.join(missing)} not installed: bash launch/test.sh --peers"
            item.add_marker(pytest.mark.skip(reason=reason))
    if not (config.getoption("--slow") or os.environ.get("CI") == "true"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


# ------------------------------------------------------------------------------ the devices

_all_devices = jax.devices
_visible = 1


def _visible_devices(*arguments) -> list[jax.Device]:
    return _all_devices(*arguments)[:_visible]


jax.devices = jax.local_devices = _visible_devices
jax.device_count = jax.local_device_count = lambda *arguments: len(_visible_devices(*arguments))


@contextlib.contextmanager
def _seeing_devices_of(node: pytest.Item | pytest.Collector | None) -> Iterator[None]:
    """Shows one device without a mark, because programs for eight take far longer to compile."""
    global _visible
    before = _visible
    mark = node and node.get_closest_marker("devices")
    _visible = mark.args[0] if mark else 1
    try:
        yield
    finally:
        _visible = before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    before = programs.count()
    with _seeing_devices_of(item):
        result = yield
    made = programs.count() - before
    if made > programs.MOST and not _OF_OTHER_TIERS & {mark.name for mark in item.iter_markers()}:
        pytest.fail(f"{made} programs, and a default test has {programs.MOST}: see programs.py")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest):
    """Shows a file's fixtures the devices of the file's mark, for whichever test is first."""
    with _seeing_devices_of(request.node):
        return (yield)


@pytest.fixture(scope="module", autouse=True)
def memory_stays_small():
    """Frees what a file left, once the process has become large: to look for it takes time.

    What is left then, such as modules, is not looked through again.
    """
    yield
    if _resident_bytes() > 3 << 30:
        jax.clear_caches()
        gc.collect()
        gc.freeze()


def _resident_bytes() -> float:
    """Of this process; where the system does not say, too many."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except FileNotFoundError:
        return float("inf")
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module", autouse=True)
def losses_are_not_drawn(request):
    """A picture takes a quarter of a second; files marked `draws` get real ones."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.node.get_closest_marker("draws"):
            from bertjax.training.metrics_log import MetricsLog

            patch.setattr(MetricsLog, "draw", _draw_nothing)
        yield


def _draw_nothing(metrics_log) -> None:
    (metrics_log._local / "loss.png").write_bytes(b"\x89PNG")
    metrics_log._drawn = len(metrics_log._rows)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data sets next to the checkout; without them, the tests that need them are skipped."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no shared/data next to the checkout")
    return folder


@pytest.fixture(scope="session")
def tiny_corpus() -> Path:
    """A prepared corpus of the easy language of tests/helpers/tiny_run.py; do not write into it."""
    from tests.helpers.tiny_run import corpus_once

    return corpus_once("tiny", learn_vocabulary=300)


def _pretrained(name: str, config) -> Path:
    """A finished run, built once."""
    from bertjax.programs import pretrain

    def build(folder: Path) -> None:
        assert pretrain.run(config, str(folder / "run")) == 0

    with _seeing_devices_of(None):
        return built_once(name, build) / "run"


@pytest.fixture(scope="session")
def pretrained_once():
    """A function from a name and a config to a finished run, built once; do not write into it."""
    return _pretrained


@pytest.fixture(scope="session")
def tiny_run(tiny_corpus: Path) -> Path:
    """A finished run over `tiny_corpus` that has learned its language; do not write into it."""
    from tests.helpers.tiny_run import tiny_config

    config = tiny_config(
        tiny_corpus,
        total_steps=160,
        optimizer={"warmup_steps": 16},
        intervals={"log": 10, "evaluate": 60, "checkpoint": 50, "eval_batches": 16},
    )
    return _pretrained("tiny_run", config)


@pytest.fixture(scope="session")
def left_to_right_run(tiny_corpus: Path) -> Path:
    """A finished run with the left-to-right objective and one phase; do not write into it."""
    from tests.helpers.tiny_run import ONE_LENGTH, tiny_config

    config = tiny_config(
        tiny_corpus,
        objective="left_to_right",
        total_steps=60,
        optimizer={"warmup_steps": 6},
        intervals={"log": 20, "evaluate": 60, "checkpoint": 60},
        **ONE_LENGTH,
    )
    return _pretrained("left_to_right", config)


@pytest.fixture(scope="session")
def fine_tuned(tiny_run: Path):
    """A function from a name of `task_files.FAMILIES` to its config and its finished run.

    A run is made at its first use. Do not write into it.
    """
    from bertjax.programs import finetune
    from tests.helpers.task_files import FAMILIES, tiny_finetuning

    def get(name: str):
        def config_in(folder: Path):
            config = tiny_finetuning(tiny_run, folder / "data", task=FAMILIES[name].task)
            config.grid.batch_size = (8,)
            return config

        def build(folder: Path) -> None:
            FAMILIES[name].write(folder / "data")
            assert finetune.run(config_in(folder), str(folder / "run")) == 0

        with _seeing_devices_of(None):
            folder = built_once(name, build)
        return config_in(folder), folder / "run"

    return get


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The vocab.txt of the small models, which has real words."""
    from tests.helpers.small_models import PIECES

    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    return path


@pytest.fixture
def make_pretrained(vocabulary: Path):
    """`small_models.small_model` with this vocabulary."""
    from tests.helpers.small_models import small_model

    return partial(small_model, vocabulary)
