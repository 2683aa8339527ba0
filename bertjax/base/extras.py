"""What only some users install: the extras of setup.py."""


def install(extra: str) -> str:
    """The command that installs an extra, for a message. No package index has bertjax."""
    return f"pip install -e '.[{extra}]' in the checkout"
