"""Formatting and lint, with the settings of pyproject.toml."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.checkout import REPOSITORY

SCRIPTS = sorted([*(REPOSITORY / "launch").glob("*.sh"), REPOSITORY / ".ci" / "run"])


def _check(*command: str | Path) -> None:
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if result.returncode:
        pytest.fail(result.stdout + result.stderr, pytrace=False)


def test_python_lint():
    _check(sys.executable, "-m", "ruff", "check", "--no-cache", ".")


def test_python_format():
    _check(sys.executable, "-m", "ruff", "format", "--no-cache", "--diff", ".")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shell_syntax(script):
    _check("bash", "-n", script)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shell_lint(script):
    beside_python = Path(sys.executable).parent
    shellcheck = shutil.which("shellcheck", path=f"{beside_python}{os.pathsep}{os.environ['PATH']}")
    if shellcheck is None:
        pytest.skip("shellcheck not installed: pip install -e '.[test]'")
    _check(shellcheck, "--external-sources", script)
