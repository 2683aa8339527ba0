"""A real browser without a screen, for tests of pages."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Yields a browser of Playwright: its own Chromium, or that of the system.

    The test is skipped where Playwright or a browser is not installed.
    """
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        own = started.chromium.executable_path
        found = own if os.path.exists(own) else next(filter(None, map(shutil.which, _NAMES)), None)
        if not found:
            pytest.skip("no Chromium: python -m playwright install chromium")
        opened = started.chromium.launch(executable_path=found)
        yield opened
        opened.close()
