"""The exceptions that tell the user something, rather than the programmer."""


class InputError(ValueError):
    """Bad input: the message names what is wrong, where, and what to do about it.

    The command-line doors print it as one line and exit with code 2; anything
    else that is raised is a bug and keeps its traceback.
    """


class NonFiniteLoss(FloatingPointError):
    """The loss became infinite or not a number; the message says at which step and batch."""
