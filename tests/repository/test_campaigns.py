"""The short forms of the campaigns: all their findings are named as meant."""

import subprocess
import sys

import pytest

CAMPAIGNS = ("bad_input", "damage", "crashes", "library")


@pytest.mark.slow
@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_short_form_finds_nothing(name, repository):
    command = [sys.executable, repository / "tests" / "campaigns" / f"{name}.py", "--minutes=1"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, result.stdout
