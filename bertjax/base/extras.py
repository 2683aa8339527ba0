"""The extras of setup.py, which only some users install."""


def install(extra: str) -> str:
    """The command that installs an extra, for a message. No package index has bertjax."""
    return f"pip install -e '.[{extra}]' in the checkout"
