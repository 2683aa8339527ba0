"""The one exception that means "the input is wrong, not the program"."""


class InputError(ValueError):
    """Bad input: the message names what is wrong, where, and what to do about it.

    The command-line doors print it as one line and exit with code 2; anything
    else that is raised is a bug and keeps its traceback.
    """
