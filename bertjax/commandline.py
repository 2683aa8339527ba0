"""How every door under `launch/` starts: absl flags in, one exit code out.

A door imports what is heavy inside its `main`, so that `--help` answers at once.
"""

import collections
import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from absl import app, flags, logging

from bertjax.errors import InputError, NonFiniteLoss

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # as shells have it

# What the system refuses, and the user can cure. A file that is not there is not among them: where
# it may be absent, the program that looks for it says so.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # the disk is full; the user's quota is
_NO_PLACE = (
    *(errno.EACCES, errno.EPERM, errno.EROFS),  # no right to it
    *(errno.ENOTDIR, errno.EISDIR, errno.EEXIST),  # a file for a folder, or a folder for a file
    *(errno.ELOOP, errno.ENAMETOOLONG),  # links in a circle, over 255 characters
    *(errno.EBUSY, errno.ENXIO, errno.EIO, errno.ESTALE),  # in use, or the device does not answer
)


def run(main: Callable[[Sequence[str]], int | None]) -> NoReturn:
    """Parses the command line and exits with what `main(argv)` returns (None is 0).

    What the user can cure (`InputError`, a full disk, a file that may not be read or cannot be
    made, a missing --config file, an unknown --config.key) becomes one line "error: ..." on
    standard error and exit code 2. Any other exception is a bug and keeps its traceback. Wrong
    flags and `--help` end as absl ends them, with exit code 1.
    """
    app.run(
        lambda argv: _guarded(_without_arguments(main), argv),
        flags_parser=lambda argv: _guarded(_parse_flags, argv),
    )


def _parse_flags(argv: Sequence[str]) -> list[str]:
    arguments = app.parse_flags_with_usage(argv)
    if flags.FLAGS["verbosity"].using_default_value:
        # absl would take INFO, at which the libraries tell every file they write.
        flags.FLAGS.verbosity = logging.WARNING
    _refuse_sums(argv)
    return arguments


def _refuse_sums(argv: Sequence[str]) -> None:
    """A tuple of the config that is given twice would be both, one behind the other."""
    given = collections.Counter(
        each.partition("=")[0].lstrip("-") for each in argv if each[:1] == "-"
    )
    for name, times in given.items():
        repeated = times > 1 and name.startswith("config.") and name in flags.FLAGS
        if repeated and isinstance(flags.FLAGS[name], flags.MultiFlag):
            raise InputError(
                f"--{name} is given {times} times, and the values would add up: give it once, as "
                f"--{name}='(A, B)'"
            )


def _without_arguments(main: Callable) -> Callable:
    def checked(argv: Sequence[str]) -> int | None:
        if len(argv) > 1:
            raise app.UsageError(f"{argv[1]!r} is no flag: write --name=value")
        return main(argv)

    return checked


def _guarded(function: Callable, argv: Sequence[str]):
    try:
        return function(argv)
    except KeyboardInterrupt:
        message = "interrupted: the same command goes on from what is saved"
        print(message, file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        message = _for_the_user(error)
        if message is None:
            raise
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(EXIT_BAD_INPUT)


def _for_the_user(error: Exception) -> str | None:
    """What to tell of an error that the user can cure; None for a bug."""
    if isinstance(error, InputError | NonFiniteLoss):
        return str(error)
    if isinstance(error, OSError) and error.errno in (*_NO_ROOM, *_NO_PLACE):
        where = f" ({error.filename})" if error.filename else ""
        cure = "free some space" if error.errno in _NO_ROOM else "mend that, or name another place"
        return f"{os.strerror(error.errno)}{where}: {cure}, then run the command again"
    # config_flags reports a missing file and an unknown key with plain exceptions; the
    # place they come from tells them from a bug in a config file.
    frames = [f.f_globals["__name__"] for f, _ in traceback.walk_tb(error.__traceback__)]
    if frames[-1] == "ml_collections.config_flags.config_flags" and isinstance(error, OSError):
        return f"--config: {error}"
    if "ml_collections.config_flags.config_path" in frames:
        while isinstance(error.args[0], Exception):  # an AttributeError around a KeyError
            error = error.args[0]
        return f"--config has no such key: {error.args[0]}"
    return None
