"""docs/troubleshooting.md quotes messages that the package has, and exit codes that it uses."""

import ast
import re

import pytest

from bertjax.base import errors, signals
from bertjax.programs import commandline
from tests.helpers.checkout import REPOSITORY, parsed

_VALUE = "…"  # in the page and below, what a message says of the case


@pytest.fixture(scope="module")
def page() -> str:
    return (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def texts() -> set[str]:
    """The texts in the code of the package, with … for what an f-string or a log puts in."""
    found = set()
    for path in sorted((REPOSITORY / "bertjax").rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.JoinedStr):
                texts = [
                    each.value if isinstance(each, ast.Constant) else _VALUE for each in node.values
                ]
                found.add("".join(texts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(re.sub(r"%\w", _VALUE, node.value))
    return {" ".join(text.split()) for text in found}


def _quoted(page: str) -> list[str]:
    """The messages in the first column of the tables of messages."""
    section = page.partition("## By message")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.+?`) \| ", section, re.MULTILINE)
    return [message for cell in cells for message in re.findall("`([^`]+)`", cell)]


def test_every_quoted_message_is_in_the_package(page, texts):
    quoted = _quoted(page)
    assert len(quoted) > 30
    missing = []
    for message in quoted:
        started, _, rest = message.partition(_VALUE)
        pattern = ".*".join(map(re.escape, message.split(_VALUE)))
        if not any(re.search(pattern, text) for text in texts):
            missing.append(message)
        assert len((started + rest).replace(_VALUE, "").strip(" :,")) > 8, message
    assert missing == []


def test_a_message_that_is_not_there_is_found(texts):
    assert not any(re.search("no such corpse", text) for text in texts)
    assert any(re.search(r"…: no such corpus: name a folder", text) for text in texts)


def test_exit_codes(page):
    section = page.partition("## Exit codes")[2]
    codes = set(map(int, re.findall(r"^\| (\d+) \|", section, re.MULTILINE)))
    own = {errors.EXIT_STOPPED, signals.EXIT_INTERRUPTED}
    assert codes == own | {0, 1, commandline.EXIT_BAD_INPUT, commandline.EXIT_NOT_READ}
