"""Runs the programs under `launch/`: parses their absl flags and returns an exit code.

A program imports heavy modules inside its `main`, so that `--help` answers at once.
"""

import collections
import errno
import os
import re
import select
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from logging import Formatter, LogRecord
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from absl import app, flags, logging

from bertjax.base.cache_folder import keep_compiled_programs
from bertjax.base.errors import InputError, NonFiniteLoss
from bertjax.base.no_tpu import tell_libtpu_where_none_is
from bertjax.base.shipped import config_path, near_configs
from bertjax.base.signals import end, end_by_signals
from bertjax.base.user_imports import user_imports
from bertjax.base.validation import check_numbers

flags.disclaim_key_flags()  # flags that are defined here are in the --help of the caller

T = TypeVar("T")

_CONFIG = re.compile("--?config=")
EXIT_BAD_INPUT = 2
EXIT_NOT_READ = 141  # the exit code in shells of a program whose output is closed

# The user can correct these system errors. ENOENT is not among them: if a file may be missing, the
# program that looks for it raises an InputError.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # the disk is full, or the user's quota
_NO_PLACE = (
    *(errno.EACCES, errno.EPERM, errno.EROFS),  # no permission
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST),  # a file instead of a folder, or vice versa
    *(errno.ELOOP, errno.ENAMETOOLONG),  # links in a circle, over 255 characters
    errno.EFBIG,  # over the size of a file that the user or the file system may have
    *(errno.EBUSY, errno.ENXIO, errno.EIO, errno.ESTALE),  # in use, or the device does not answer
)


def DEFINE_config() -> flags.FlagHolder:
    """Defines --config=FILE, and a flag --config.KEY for every key, for the caller.

    A key that the file lacks may be given, too: the recipe knows all keys.
    """
    from ml_collections.config_flags import config_flags

    class Parser(config_flags.ConfigFileFlagParser):
        def parse(self, path: str) -> Any:
            try:
                config = super().parse(path)
                getattr(config, "get", None)  # raises if the file is missing
            except Exception as error:
                made_a_text = isinstance(error, TypeError | ValueError)  # by the parser above
                raised = (error.__context__ if made_a_text else None) or error
                raise _RaisedByFile from _wrong_in_config(path, raised) or raised
            return config

    defined = config_flags.DEFINE_config_file(
        "config",
        None,
        "A file such as those of configs/, or the name of one. --config.KEY=VALUE changes a value, "
        "as --config.seed=7; with --help, all keys are listed.",
        lock_config=False,
        accept_new_attributes=True,
    )
    flags.FLAGS["config"].parser = Parser("config", lock_config=False)
    return defined


class _RaisedByFile(Exception):
    """The file of --config has raised its cause. Of a ValueError, absl would make a wrong flag."""


def run(main: Callable[[list[str]], int | None], names: str = "") -> NoReturn:
    """Parses the command line and exits with what `main(arguments)` returns (None is 0).

    The arguments are the words that are no flags. Only a program that says by `names` what they
    are, such as "RUN", takes any, and it needs at least one.

    An error that the user can correct becomes one line "error: ..." on standard error, with exit
    code 2: an `InputError`, a wrong flag, a full disk, too little memory of a device, a file that
    cannot be read or made, a --config file that is missing or not a config, an unknown
    --config.key. Any other exception is a bug and keeps its traceback. SIGTERM, SIGINT and SIGHUP
    end it with one line (`bertjax.base.signals`). If its output is closed (`| head`), it ends
    without a message.
    """
    end_by_signals()
    tell_libtpu_where_none_is()
    keep_compiled_programs()
    sys.argv = _config_first(sys.argv)
    try:
        try:
            app.run(
                lambda argv: _guarded(partial(_with_arguments, main, names), argv),
                flags_parser=lambda argv: _guarded(_parse_flags, argv),
            )
        finally:
            if error := _failure_of_output():  # otherwise Python flushes later, and prints it
                _end_with(_user_message(error) or str(error))
    except BrokenPipeError:
        if not _reader_has_gone():
            raise
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        sys.exit(EXIT_NOT_READ)


def _reader_has_gone() -> bool:
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _failure_of_output() -> OSError | None:
    """The error of standard output if it does not take what was printed, as on a full disk."""
    try:
        print(end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        error.filename = "standard output"
        return error
    return None


def _parse_flags(argv: Sequence[str]) -> list[str]:
    argv = [_with_path(each) for each in argv]
    with user_imports():
        arguments = _parsed(argv)
    if flags.FLAGS["verbosity"].using_default_value:
        # absl's default is INFO, at which the libraries log every file that they write.
        logging.set_verbosity(logging.WARNING)
    logging.get_absl_handler().setFormatter(_Plain())
    _refuse_sums(argv)
    for name in flags.FLAGS:  # those of a config are checked with the whole of it
        if flags.FLAGS[name].present and not name.startswith("config."):
            check_numbers(f"--{name}", flags.FLAGS[name].value)
    return arguments


def _parsed(argv: Sequence[str]) -> list[str]:
    """The words that are no flags; what the file of --config raises is raised."""
    try:
        return flags.FLAGS(argv)
    except SystemExit:  # after --help, with 1
        if "config" in flags.FLAGS and flags.FLAGS["config"].value is not None:
            from bertjax.programs import config_page

            print("\n" + config_page.text(flags.FLAGS["config"].value), flush=True)
        sys.exit()
    except _RaisedByFile as error:
        assert error.__cause__
        raise error.__cause__ from None
    except flags.Error as error:
        raise InputError(_wrong_flag(error)) from error
    except (LookupError, AttributeError) as error:  # of ml_collections, which looks up --config.KEY
        raise InputError(_unknown_key(error)) from error


def _unknown_key(error: LookupError | AttributeError) -> str:
    """The message of ml_collections about a key that a config lacks, as one of this project."""
    message = str(error.args[0]) if error.args else str(error)
    if near := re.match(r"'(.+?)'\s+Did you mean \"(.+?)\"", message):
        message = f"{near[1]}: did you mean {near[2]}?"
    return f"--config has no such key: {message} --config=NAME --help lists the keys"


def _config_first(argv: Sequence[str]) -> list[str]:
    """The words with --config=FILE at the beginning, because it defines the flags --config.KEY."""
    end = argv.index("--") if "--" in argv else len(argv)
    return [argv[0], *sorted(argv[1:end], key=lambda word: not _CONFIG.match(word)), *argv[end:]]


class _Plain(Formatter):
    """Shows a record of a log as "warning: MESSAGE", without the line of code that wrote it."""

    def format(self, record: LogRecord) -> str:
        return f"{record.levelname.lower()}: {super().format(record)}"


def _with_path(argument: str) -> str:
    flag, _, name = argument.partition("=")
    return f"{flag}={config_path(name)}" if _CONFIG.match(argument) else argument


def _wrong_flag(error: flags.Error) -> str:
    """The message of an error in the flags; for a value of the config, it says what is right."""
    if missing := re.findall(r"flag (--\w+)=None: Flag --\w+ must have a value", str(error)):
        hint = "give it" if len(missing) == 1 else "give them"
        return f"no {' and no '.join(missing)}: {hint}; --help has all flags"
    unknown = error.flagname if isinstance(error, flags.UnrecognizedFlagError) else ""
    if unknown.startswith("config.") and "config" in flags.FLAGS:
        return f"--{unknown}: no --config is given, whose value that would be: give it"
    match = re.match(r"flag --(config\.[^=]+)=", str(error))
    if not match or match[1] not in flags.FLAGS:
        return str(error)
    value = str(error)[match.end() :].removesuffix(f": {error.__context__}")
    flag = flags.FLAGS[match[1]]
    words = {bool: "True or False", int: "a whole number", float: "a number"}
    if word := words.get(type(flag.default)):
        return f"--{match[1]}={value}: must be {word}, such as {flag.default}"
    return f"--{match[1]}={value}: {error.__context__}"


def _refuse_sums(argv: Sequence[str]) -> None:
    """Raises InputError if a tuple of the config is given twice: the values would be joined."""
    flag_counts = collections.Counter(
        each.partition("=")[0].lstrip("-") for each in argv if each[:1] == "-"
    )
    for name, times in flag_counts.items():
        repeated = times > 1 and name.startswith("config.") and name in flags.FLAGS
        if repeated and isinstance(flags.FLAGS[name], flags.MultiFlag):
            raise InputError(
                f"--{name} is given {times} times, and the values would add up: give it once, as "
                f"--{name}='(A, B)'"
            )


def refuse(why: str, *names: str) -> None:
    """Raises InputError if one of these flags is given, which mean nothing, and says why."""
    for name in names:
        if flags.FLAGS[name].present:
            raise InputError(f"--{name} would be ignored, because {why}: leave it out")


def _with_arguments(
    main: Callable[[list[str]], int | None], names: str, argv: Sequence[str]
) -> int | None:
    arguments = list(argv[1:])
    if arguments and not names:
        raise InputError(f"{arguments[0]!r} is no flag: write --name=value")
    if names and not arguments:
        raise InputError(f"no {names} is given: write it after the program's name")
    return main(arguments)


def _guarded(function: Callable[[Sequence[str]], T], argv: Sequence[str]) -> T:
    try:
        return function(argv)
    except KeyboardInterrupt:  # a library has restored Python's own handler
        end(signal.SIGINT)
    except Exception as error:
        message = _user_message(error)
        if message is None:
            raise
    _end_with(message)


def _end_with(message: str) -> NoReturn:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)


def _user_message(error: Exception) -> str | None:
    """The message of an error that the user can correct; None for a bug."""
    if isinstance(error, InputError | NonFiniteLoss):
        return str(error)
    if isinstance(error, OSError) and error.errno in (*_NO_ROOM, *_NO_PLACE):
        named = error if error.filename else _failure_of_output() or error
        path = named.filename2 or named.filename  # the second is where a file was to be moved
        where = f" ({path})" if path else ""
        hint = "free some space" if error.errno in _NO_ROOM else "mend that, or name another place"
        return f"{os.strerror(error.errno or 0)}{where}: {hint}, then run the command again"
    if "jax" in sys.modules:
        from bertjax.training.memory import is_out_of_memory, out_of_memory

        if is_out_of_memory(error):
            return out_of_memory(error)
    return None


def _wrong_in_config(config: str, error: BaseException) -> InputError | None:
    """The error if a file is not a config; None if it is a config with a bug."""
    file, colon, _ = config.partition(":")
    if isinstance(error, SyntaxError):
        place = f"{error.filename}, line {error.lineno}"
        return InputError(f"--config={config}: {place}: {error.msg}: correct it")
    if isinstance(error, OSError):
        if not Path(file).exists():
            near = "".join(f": did you mean {name}?" for name in near_configs(file))
            hint = near or ": configs/ has them, such as small"
            return InputError(
                f"--config={config}: no file and no shipped config of that name{hint}"
            )
        return InputError(f"--config: {error}")
    if isinstance(error, AttributeError) and error.name == "get_config":
        what = f"no get_config() in {file}"
        return InputError(f"--config={config}: {what}: take a file like those in configs/")
    if isinstance(error, TypeError) and re.match(r"get_config\(\) (takes|missing) ", str(error)):
        hint = f"write --config={file}" if colon else f"write --config={file}:WORD"
        return InputError(f"--config={config}: {error}: {hint}")
    return None
