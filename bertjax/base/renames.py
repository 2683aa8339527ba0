"""Paths of arrays that were renamed, so that what was written before is read as it would be now."""

import re
from collections.abc import Mapping


def renamed(path: str, pairs: Mapping[str, str]) -> str:
    """A path, "a/b/c", under its other name; itself if it has none.

    `pairs` are subpaths -> what they become. "*" is any one name, at most one in a pair.
    """
    for before, after in pairs.items():
        whole = re.escape(before).replace(r"\*", "([^/]+)")
        path = re.sub(rf"(?<![^/]){whole}(?![^/])", after.replace("*", r"\1"), path)
    return path


def reverse(pairs: Mapping[str, str]) -> dict[str, str]:
    """The pairs that undo these."""
    return {after: before for before, after in pairs.items()}
