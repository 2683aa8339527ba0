"""Exit codes and messages of a program of launch/, run as a user runs it."""

import logging
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bertjax.programs import commandline
from tests.helpers.checkout import REPOSITORY

PROGRAM = '''
"""A program for tests."""

import ctypes
import errno
import gc
import os
import threading

from absl import flags

from bertjax.programs import commandline
from bertjax.base.errors import InputError
from bertjax.base.signals import catch_signals

_FULL = ("full_output", "full_output_at_once")
_FAIL = flags.DEFINE_enum(
    *("fail", ""),
    ["", *"input full_disk full_quota no_right missing_file bug code".split()]
    + ["memory", "ctrl_c", "talk", *_FULL],
    "how",
)
_SIGNAL = flags.DEFINE_integer("signal", None, "that comes while the program is at work")
_WHERE = flags.DEFINE_enum("where", "", ["", "collector", "c", "taken"], "what that meets")
_CONFIG = commandline.DEFINE_config()


def main(argv):
    if _FAIL.value == "input":
        raise InputError("words.txt line 3: no [MASK];\\n  add it")
    if _FAIL.value == "full_disk":
        raise OSError(errno.ENOSPC, "No space left on device", "store/0.bin")
    if _FAIL.value == "full_quota":
        raise OSError(errno.EDQUOT, "Disk quota exceeded")
    if _FAIL.value == "no_right":
        raise PermissionError(errno.EACCES, "Permission denied", "run/config.json")
    if _FAIL.value == "memory":
        import jax
        jax.numpy.zeros((2**45,), "int8")
    if _FAIL.value == "missing_file":
        raise FileNotFoundError(errno.ENOENT, "No such file", "x")
    if _FAIL.value == "bug":
        raise KeyError("key")
    if _FAIL.value == "code":
        return 3
    if _FAIL.value == "ctrl_c":
        raise KeyboardInterrupt
    if _FAIL.value in _FULL:
        print("said", flush=_FAIL.value.endswith("at_once"))
    while _FAIL.value == "talk":
        print("more", flush=True)
    if _SIGNAL.value:
        work(_WHERE.value)
    if _CONFIG.value is not None:
        print("steps", _CONFIG.value.steps)


def send(*_):
    os.kill(os.getpid(), _SIGNAL.value)


def work(where):
    """The signal comes; where it is "taken", twice."""
    if where == "collector":  # whose callbacks lose exceptions
        gc.callbacks.append(send)
        gc.collect()
    elif where == "c":  # the main thread stays in C code, as in a long compilation
        threading.Timer(0.1, send).start()
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.CDLL(None).pthread_mutex_lock(mutex)
    elif where == "taken":
        with catch_signals() as came:
            send()
            print("came", came(), flush=True)
            send()
            print("again", flush=True)
    else:
        send()


if __name__ == "__main__":
    commandline.run(main)
'''
CONFIG = """
from bertjax.fine_tuning import __doc__  # where it was once
import ml_collections

def get_config():
    config = ml_collections.ConfigDict()
    config.steps = 10
    config.model = ml_collections.ConfigDict({"layers": 2})
    config.rates = (1.0,)
    config.rate, config.on = 0.5, False
    return config
"""
BROKEN_CONFIG = """
import ml_collections

def get_config():
    return ml_collections.ConfigDict().steps
"""
WORD_CONFIG = """
from bertjax.base.errors import InputError

def get_config(word):
    raise InputError(f"word.py:{word}: must be :bar")
"""
ODD_CONFIG = """
def get_config():
    return int("no number")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.py").write_text(PROGRAM)
    (folder / "config.py").write_text(CONFIG)
    (folder / "broken.py").write_text(BROKEN_CONFIG)
    (folder / "odd.py").write_text(ODD_CONFIG)
    return folder


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return _run_command(folder, sys.executable, "program.py", *arguments)


def _run_shell(folder: Path, command: str) -> subprocess.CompletedProcess:
    return _run_command(folder, "bash", "-c", command)


def _run_command(folder: Path, *command: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        env=_environment(),
        preexec_fn=_defaults,
    )


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(REPOSITORY)}


def _defaults() -> None:
    """Sets signals as on a terminal, even if the suite runs in the background."""
    for number in LINES:
        signal.signal(number, signal.SIG_DFL)


def test_success_is_0(folder):
    result = _run(folder)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_warning_is_a_plain_line():
    """absl's own form begins like "W1127 22:03:14.123456 128 data.py:113] "."""
    record = logging.LogRecord("bertjax.x", logging.WARNING, "data.py", 113, "%s!", ("dev",), None)
    assert commandline._Plain().format(record) == "warning: dev!"


def test_the_code_of_main_is_the_exit_code(folder):
    assert _run(folder, "--fail=code").returncode == 3


@pytest.mark.parametrize(
    "fail, line",
    [
        ("input", "error: words.txt line 3: no [MASK]; add it\n"),
        (
            "full_disk",
            "error: No space left on device (store/0.bin): "
            "free some space, then run the command again\n",
        ),
        ("full_quota", "error: Disk quota exceeded: free some space, then run the command again\n"),
        (
            "no_right",
            "error: Permission denied (run/config.json): "
            "mend that, or name another place, then run the command again\n",
        ),
        (
            "memory",
            "error: cpu is out of memory (32,768.00 GiB more were asked for): "
            "end other programs that use the device\n",
        ),
    ],
)
def test_what_the_user_can_cure_is_one_line_and_2(folder, fail, line):
    result = _run(folder, f"--fail={fail}")
    assert (result.returncode, result.stdout, result.stderr) == (2, "", line)


@pytest.mark.parametrize("fail", ["full_output", "full_output_at_once"])
def test_a_full_disk_under_the_output(folder, fail):
    command = f"PYTHONUNBUFFERED= {sys.executable} program.py --fail={fail} >/dev/full"
    result = _run_shell(folder, command)
    line = "error: No space left on device (standard output): free some space, then run the command"
    assert (result.returncode, result.stderr) == (2, f"{line} again\n")


def test_ctrl_c_is_one_line(folder):
    result = _run(folder, "--fail=ctrl_c")
    line = "interrupted: the same command goes on from what is saved\n"
    assert (result.returncode, result.stdout, result.stderr) == (130, "", line)


LINES = {
    signal.SIGTERM: (75, "stopped by SIGTERM: the same command goes on from what is saved\n"),
    signal.SIGINT: (130, "interrupted: the same command goes on from what is saved\n"),
    signal.SIGHUP: (75, "stopped by SIGHUP: the same command goes on from what is saved\n"),
}


@pytest.mark.parametrize(
    "number, where",
    [*[(number, "") for number in LINES], *[(signal.SIGINT, "collector"), (signal.SIGTERM, "c")]],
)
def test_a_signal_ends_it_with_one_line_wherever_it_is(folder, number, where):
    result = _run(folder, f"--signal={number}", f"--where={where}")
    assert (result.returncode, result.stdout, result.stderr) == (
        LINES[number][0],
        "",
        LINES[number][1],
    )


@pytest.mark.parametrize("number", LINES)
def test_a_signal_that_is_taken_ends_nothing_and_a_second_one_does(folder, number):
    """SIGHUP is an exception, because it comes twice when a terminal is closed."""
    result = _run(folder, f"--signal={number}", "--where=taken")
    stopping = f"stopping after this step ({number.name})\n"
    code, line = LINES[number]
    if number == signal.SIGHUP:
        expected = (0, "came True\nagain\n", stopping * 2)
    else:
        expected = (code, "came True\n", stopping + line)
    errors = re.sub("^warning: ", "", result.stderr, flags=re.MULTILINE)  # of a log
    assert (result.returncode, result.stdout, errors) == expected


def test_a_signal_that_is_ignored_stays_so(folder):
    """`nohup` ignores SIGHUP in this way."""
    command = f"trap '' HUP; exec {sys.executable} program.py --signal=1 --where=taken"
    result = _run_shell(folder, command)
    assert (result.returncode, result.stdout, result.stderr) == (0, "came False\nagain\n", "")


def test_a_terminal_that_is_gone_ends_nothing(folder):
    """A run whose ssh is lost still writes to the terminal, and must save first."""
    terminal, end = pty.openpty()
    command = [sys.executable, "program.py", "--signal=1", "--where=taken"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=_environment(),
        stdin=end,
        stdout=end,
        stderr=end,
        preexec_fn=_defaults,
    )
    os.close(end)
    os.close(terminal)
    assert process.wait() == 0


def test_a_reader_who_has_seen_enough_ends_it_without_a_word(folder):
    for flags, seen in (("--fail=talk", "more\n"), ("--fail=talk 2>&1", "more\n"), ("--help", "")):
        command = f"{sys.executable} program.py {flags} | head -n {len(seen.splitlines())}"
        result = _run_shell(folder, f"{command}; exit ${{PIPESTATUS[0]}}")
        assert (result.returncode, result.stdout, result.stderr) == (141, seen, "")


@pytest.mark.parametrize("fail, last", [("bug", "KeyError: 'key'"), ("missing_file", ": 'x'")])
def test_a_bug_keeps_its_traceback(folder, fail, last):
    result = _run(folder, f"--fail={fail}")
    assert result.returncode == 1
    assert result.stderr.startswith("Traceback (most recent call last):")
    assert result.stderr.rstrip().endswith(last)


def test_config_and_override(folder):
    assert _run(folder, "--config=config.py").stdout == "steps 10\n"
    for order in (
        ["--config=config.py", "--config.steps=7"],
        ["--config.steps=7", "--config=config.py"],
    ):
        assert _run(folder, *order).stdout == "steps 7\n"


def test_the_config_comes_first_among_the_flags():
    argv = ["program", "--b=2", "--config.x=1", "-config=one", "--configs=c", "--", "--config=two"]
    first = ["program", "-config=one", "--b=2", "--config.x=1", "--configs=c", "--", "--config=two"]
    assert commandline._config_first(argv) == first
    assert commandline._config_first(argv[:3]) == argv[:3]


def test_a_key_within_a_number(folder):
    """Other unknown keys are named by the recipe, which knows those that a file leaves out."""
    result = _run(folder, "--config=config.py", "--config.steps.more=7")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: --config has no such key: ")
    assert "more" in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize("override", [[], ["--config.steps=7"]])
def test_missing_config_file(folder, override):
    result = _run(folder, "--config=nowhere.py", *override)
    assert (result.returncode, result.stdout) == (2, "")
    what = "error: --config=nowhere.py: no file and no shipped config of that name"
    assert result.stderr == f"{what}: configs/ has them, such as small\n"


@pytest.mark.parametrize(
    "name, meant",
    [
        ("smal", "small"),
        ("configs/pretrain_tini.py", "pretrain_tiny"),
        ("finetune_glu:RTE", "finetune_glue"),
    ],
)
def test_a_config_s_name_that_is_nearly_right(folder, name, meant):
    result = _run(folder, f"--config={name}")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.endswith(f" of that name: did you mean {meant}?\n")


def test_a_key_that_is_nearly_right(folder):
    result = _run(folder, "--config=config.py", "--config.modle.x=7")
    assert (result.returncode, result.stdout) == (2, "")
    known = "--config=NAME --help lists the keys"
    assert result.stderr == f"error: --config has no such key: modle: did you mean model? {known}\n"


def test_a_tuple_that_is_given_twice(folder):
    """Its values would be joined; of numbers, the last one counts."""
    result = _run(folder, "--config=config.py", "--config.steps=7", "--config.steps=8")
    assert (result.returncode, result.stdout) == (0, "steps 8\n")
    result = _run(folder, "--config=config.py", "--config.rates=2.0", "--config.rates=3.0")
    assert (result.returncode, result.stdout) == (2, "")
    wanted = "error: --config.rates is given 2 times, and the values would add up: give it once, "
    assert result.stderr == f"{wanted}as --config.rates='(A, B)'\n"


# Errors of the system about names and permissions.
def _taken_by_a_file(folder):
    (folder / "file").touch()
    return folder / "file" / "x"


def _a_folder(folder):
    return folder


def _links_in_a_circle(folder):
    (folder / "one").symlink_to(folder / "two")
    (folder / "two").symlink_to(folder / "one")
    return folder / "one"


def _too_long(folder):
    return folder / ("x" * 256)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_taken_by_a_file, "Not a directory"),
        (_a_folder, "Is a directory"),
        (_links_in_a_circle, "Too many levels of symbolic links"),
        (_too_long, "File name too long"),
    ],
)
@pytest.mark.parametrize("mode", ["r", "w"])
def test_system_errors_name_the_path(tmp_path, make, message, mode):
    path = make(tmp_path)
    with pytest.raises(OSError) as caught:
        open(path, mode)
    shown = commandline._user_message(caught.value)
    assert shown == (
        f"{message} ({path}): mend that, or name another place, then run the command again"
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("syntax.py", "def get_config(:\n", "syntax.py, line 1: invalid syntax: correct it"),
        ("bytes.py", b"x = '\xff'\n", "(unicode error) 'utf-8' codec can't decode byte 0xff"),
        (
            *("absent.py", "import os\nfrom bertjax.fine_tuning.nothing import Features\n"),
            "absent.py, line 2: No module named 'bertjax.runs.fine_tuning.nothing': correct the na",
        ),
        ("none.py", "config = 1\n", "no get_config() in none.py: take a file like those in conf"),
        ("config.py:foo", None, "takes 0 positional arguments but 1 was given: write --config=con"),
        ("word.py", WORD_CONFIG, "missing 1 required positional argument: 'word': write --config="),
        ("word.py:foo", WORD_CONFIG, "error: word.py:foo: must be :bar"),
    ],
)
def test_a_file_that_is_no_config(folder, name, text, message):
    file = folder / name.partition(":")[0]
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    result = _run(folder, f"--config={name}", "--config.steps=7")
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: ") and file.name in result.stderr


@pytest.mark.parametrize("name", ["broken.py", "odd.py"])
def test_a_bug_in_a_config_keeps_its_traceback(folder, name):
    result = _run(folder, f"--config={name}", "--config.steps=7")
    assert result.returncode == 1
    assert name in result.stderr and "Traceback" in result.stderr
    assert "FATAL Flags" not in result.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--fail=maybe"], "flag --fail=maybe: value should be one of .*"),
        (["--fial=bug"], r"Unknown command line flag 'fial'\. Did you mean: fail \?"),
        (
            ["--config.steps=7"],
            "--config.steps: no --config is given, whose value that would be: .*",
        ),
        ([f"--signal={10**20}"], "--signal=10{20}: must be at most 2,147,483,647"),
        (["bug"], "'bug' is no flag: write --name=value"),
        # An override before the wrong flag is not blamed.
        (["--config=config.py", "--config.steps=7", "--signal=x"], "flag --signal=x: .*"),
        (
            ["--config=config.py", "--config.model.layers=3", "--config.steps=1e5"],
            "--config.steps=1e5: must be a whole number, such as 10",
        ),
        (
            ["--config=config.py", "--config.on=maybe"],
            "--config.on=maybe: must be True or False, such as False",
        ),
        (
            ["--config=config.py", "--config.rate=1,5e-4: x"],
            "--config.rate=1,5e-4: x: must be a number, such as 0.5",
        ),
        (
            ["--config=config.py", "--config.rates=(1, 2"],
            r"--config\.rates=\(1, 2: Error while parsing string: \(1, 2 as tuple\. .*",
        ),
        (
            ["--config=config.py", "--config.model=x"],
            "--config.model=x: .* 'x' as a ConfigDict: .*",
        ),
    ],
)
def test_a_wrong_flag_is_told_in_one_line(folder, arguments, message):
    result = _run(folder, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(f"error: {message}\n", result.stderr)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["pretain"], "no program 'pretain' (did you mean pretrain?): bertjax --help lists them"),
        (["zzz"], "no program 'zzz': bertjax --help lists them"),
        (["fill_mask", "--model=x"], "no --text: give it; --help has all flags"),
        (["pretrain"], "no --config and no --workdir: give them; --help has all flags"),
    ],
)
def test_the_installed_command_says_what_is_missing(arguments, message):
    command = [sys.executable, "-m", "bertjax", *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"error: {message}\n"


def test_a_system_error_names_the_place_that_a_file_was_moved_to(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as caught:
        os.replace(tmp_path / "file", tmp_path / "folder")
    assert f"Is a directory ({tmp_path}/folder): mend" in commandline._user_message(caught.value)
