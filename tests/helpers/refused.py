"""Mistakes in configs, as rows of tables."""

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from bertjax.base.errors import InputError


def changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a config with other values of some keys, which are named as in a flag."""
    result = copy.deepcopy(config)
    for key, value in changes.items():
        *sections, last = key.split(".")
        section = result
        for name in sections:
            section = section.setdefault(name, {})
        section[last] = value
    return result


def assert_refused(
    read: Callable, config: Mapping[str, Any], changes: Mapping[str, Any], message: str
) -> None:
    """Asserts that a config with these changes is refused.

    Args:
      message: how the message begins, with * for any text. Before one that is empty, or begins
        with a colon or a space, stands "config.KEY=VALUE" of the first change.
    """
    if not message or message[0] in ": ":
        key, value = next(iter(changes.items()))
        message = f"config.{key}={value!r}{message}"
    with pytest.raises(InputError, match="^" + re.escape(message).replace(r"\*", ".*")):
        read(changed(config, changes))
