"""Builds HTML: every text is escaped, in this file and nowhere else."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_EMPTY = {"img", "meta"}  # elements without content


class Html(str):
    """A text that is HTML already, and is not escaped again."""


def escaped(value: Any) -> Html:
    """A value as HTML: `Html` stays as it is, and anything else becomes a text."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def joined(parts: Iterable[Any]) -> Html:
    """The parts as HTML, one after the other."""
    return Html("".join(map(escaped, parts)))


def element(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element.

    Args:
      children: its content; texts that are no `Html` are escaped.
      attributes: "_" in a name stands for "-", and one at its end is left out (`class_`). None:
        the element has no such attribute.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY:
        return Html(f"<{name}{given}>")
    return Html(f"<{name}{given}>{joined(children)}</{name}>")


def number(value: Any) -> str:
    """A figure for people to read: at most 5 significant digits, thousands apart."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else str(value)
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return f"{value:,.0f}" if 10_000 <= abs(value) < 1e9 else f"{value:.5g}"


def table(caption: str, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Html:
    """A table with a caption; the first cell of a row is its heading."""
    head = element("tr", *(element("th", name, scope="col") for name in names))
    body = [
        element("tr", element("th", number(first), scope="row"), *map(_cell, rest))
        for first, *rest in rows
    ]
    whole = element(
        "table",
        element("caption", caption),
        element("thead", head),
        element("tbody", *body),
    )
    return element("div", whole, class_="wide")


def _cell(value: Any) -> Html:
    if isinstance(value, Html):
        return element("td", value)
    figure = isinstance(value, int | float) and not isinstance(value, bool)
    return element("td", number(value), class_="figure" if figure else None)


def records(caption: str, found: Sequence[Mapping[str, Any]]) -> Html:
    """A table with a row for each record, and a column for each key of any."""
    names = list(dict.fromkeys(key for record in found for key in record))
    return table(caption, names, [[record.get(name) for name in names] for record in found])


def details(summary: str, *content: Any) -> Html:
    """Content that is folded away below a line."""
    return element("details", element("summary", summary), *content)
