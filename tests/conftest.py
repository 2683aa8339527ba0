"""What every test runs under: eight simulated CPU devices, no network, and the marks."""

import importlib.util
import os
from functools import partial
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

# Read by JAX when it is first imported, here and in the processes that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
# Unoptimized code: the suite compiles many small programs and runs each for a moment.
os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
)
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(REPOSITORY / ".cache" / "jax")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.5"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["PYTHONPATH"] = str(REPOSITORY)

_PEERS = ("torch", "transformers")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = [name for name in _PEERS if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"{' and '.join(missing)} not installed: bash launch/test.sh --peers"
        for item in items:
            if item.get_closest_marker("peers"):
                item.add_marker(pytest.mark.skip(reason=reason))
    if not (config.getoption("--slow") or os.environ.get("CI") == "true"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(scope="session", autouse=True)
def memory_is_given_back():
    """In this process, which trains hundreds of models: it would keep what the largest took."""
    with pytest.MonkeyPatch.context() as patch:
        for program in ("pretrain", "finetune"):
            patch.setattr(f"bertjax.{program}.keep_freed_memory", lambda: None)
        yield


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data sets beside the checkout; tests that need them skip where there are none."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no shared/data beside the checkout")
    return folder


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared corpus of the easy language of tests/tiny_run.py."""
    from tiny_run import write_text

    from bertjax import prepare

    folder = tmp_path_factory.mktemp("tiny")
    write_text(folder / "text.txt")
    source = f"text:{folder / 'text.txt'}"
    prepare.run([source], folder / "corpus", learn_vocabulary=300, held_out=0.1, workers=1)
    return folder / "corpus"


@pytest.fixture(scope="session")
def tiny_run(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run over `tiny_corpus` that has learned its language; do not write into it."""
    from tiny_run import tiny_config

    from bertjax import pretrain

    run = tmp_path_factory.mktemp("tiny_run") / "run"
    config = tiny_config(
        tiny_corpus,
        total_steps=160,
        optimizer={"warmup_steps": 16},
        intervals={"log": 10, "evaluate": 60, "checkpoint": 50, "eval_batches": 16},
    )
    assert pretrain.run(config, str(run)) == 0
    return run


@pytest.fixture(scope="session")
def left_to_right_run(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with the left-to-right objective and one phase; do not write into it."""
    from tiny_run import tiny_config

    from bertjax import pretrain

    run = tmp_path_factory.mktemp("left_to_right") / "run"
    config = tiny_config(
        tiny_corpus,
        objective="left_to_right",
        total_steps=60,
        phase_1={"share": 1.0},
        phase_2={"share": 0.0},
        optimizer={"warmup_steps": 6},
        intervals={"log": 20, "evaluate": 60, "checkpoint": 60},
    )
    assert pretrain.run(config, str(run)) == 0
    return run


@pytest.fixture(scope="session")
def fine_tuned(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory):
    """name of `task_files.FAMILIES` -> config and finished run, made when it is first asked for.

    Do not write into it.
    """
    from task_files import FAMILIES, tiny_finetuning

    from bertjax import finetune

    runs = {}

    def get(name: str):
        if name not in runs:
            folder = tmp_path_factory.mktemp("task")
            data = FAMILIES[name].write(folder / "data")
            config = tiny_finetuning(tiny_run, data, task=FAMILIES[name].task)
            config.grid.batch_size = (8,)
            assert finetune.run(config, str(folder / "run")) == 0
            runs[name] = config, folder / "run"
        return runs[name]

    return get


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocab.txt of real words: that of the small models."""
    from small_models import PIECES

    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    return path


@pytest.fixture
def make_pretrained(vocabulary: Path):
    """`small_models.small_model` over that vocabulary."""
    from small_models import small_model

    return partial(small_model, vocabulary)
