"""Where programs of launch/ keep what JAX has compiled."""

import os
import subprocess
import sys

import pytest

from bertjax.base.cache_folder import keep_compiled_programs

_DIR, _SIZE = "JAX_COMPILATION_CACHE_DIR", "JAX_COMPILATION_CACHE_MAX_SIZE"


@pytest.fixture
def variables(monkeypatch, tmp_path):
    """The environment of a user who has set only the folder."""
    monkeypatch.delenv(_DIR)
    monkeypatch.setenv(_SIZE, "1")
    monkeypatch.delenv(_SIZE)  # what is set later is removed again
    monkeypatch.setenv("BERTJAX_CACHE", str(tmp_path / "cache"))
    return os.environ


def test_the_folder_is_made_by_who_compiles(variables, tmp_path):
    keep_compiled_programs()
    assert variables[_DIR] == str(tmp_path / "cache" / "compiled")
    assert int(variables[_SIZE]) == 4 * 2**30
    assert not (tmp_path / "cache").exists()


def test_the_variables_of_jax_take_precedence(variables, monkeypatch):
    monkeypatch.setenv(_SIZE, "7")
    keep_compiled_programs()
    assert variables[_SIZE] == "7"
    monkeypatch.setenv(_DIR, "elsewhere")
    keep_compiled_programs()
    assert variables[_DIR] == "elsewhere"


def test_a_folder_that_cannot_be_written_is_a_warning(variables, tmp_path, capsys):
    (tmp_path / "cache").write_text("a file")
    keep_compiled_programs()
    assert _DIR not in variables
    assert capsys.readouterr().err == (
        f"warning: {tmp_path / 'cache'} is not a folder that this user may write to: every start "
        "compiles its programs anew; set BERTJAX_CACHE to a folder\n"
    )


_PROGRAM = """
from bertjax.programs import commandline

def main(_):
    import jax

    events = []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
    for power in (2, 3, 2, 4, 2, 3):
        jax.clear_caches()
        events.clear()
        value = jax.jit(lambda x: x**power + jax.lax.erf(x))(2.0)
        print(round(float(value)), "/jax/compilation_cache/cache_hits" in events)

commandline.run(main)
"""


def test_a_program_reads_what_it_kept_and_the_oldest_is_deleted(variables):
    """There is room for two of the programs, which have 3 kB each."""
    small = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", _SIZE: "8000"}
    run = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(run, env=variables | small, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        *("5 False", "9 False", "5 True", "17 False"),
        *("5 True", "9 False"),  # the program for 9 was not used for longest
    ]
    assert done.stderr == ""
