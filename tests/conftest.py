"""What every test runs under: eight simulated CPU devices, no network, and the marks."""

import importlib.util
import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

# Read by JAX when it is first imported, here and in the processes that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
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
