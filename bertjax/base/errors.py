"""Exceptions whose messages are for the user, not for the programmer; and an exit code."""

EXIT_STOPPED = 75  # a signal stopped the run, its state is saved: start it again (EX_TEMPFAIL)


class InputError(ValueError):
    """Bad input: the message names what is wrong, where, and what to do about it.

    The programs under `launch/` print it as one line and exit with code 2. Any other exception is
    a bug and keeps its traceback.
    """


class NonFiniteLoss(FloatingPointError):
    """The loss became infinite or not a number; the message says at which step and batch."""
