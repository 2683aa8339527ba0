"""Builds HTML: every text is escaped, in this file and nowhere else."""

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_EMPTY = {"img", "meta"}  # elements without content
_COLUMNS = 8  # of a table of records; more do not fit


class Html(str):
    """A text that is HTML already, and is not escaped again."""


def escaped(value: Any) -> Html:
    """A value as HTML: `Html` stays as it is, and anything else becomes a text."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def joined(values: Iterable[Any]) -> Html:
    """The values as HTML, one after the other."""
    return Html("".join(map(escaped, values)))


def element(name: str, /, *children: Any, **attributes: Any) -> Html:
    """An element with its content; texts that are no `Html` are escaped.

    "_" in the name of an attribute stands for "-", and one at its end is left out (`class_`). One
    that is None is left out.
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY:
        return Html(f"<{name}{attribute_text}>")
    return Html(f"<{name}{attribute_text}>{joined(children)}</{name}>")


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
    """A table with a row for each record, and a column for each key of any that has a value.

    If the keys are too many for columns, and more than the records, each key has a row instead.
    """
    keys = dict.fromkeys(key for record in found for key in record)
    names = [name for name in keys if any(each.get(name) not in (None, "") for each in found)]
    rows = [[record.get(name) for name in names] for record in found if names]
    if len(names) > max(_COLUMNS, len(found)):
        rows = [
            [name, *column] for name, column in zip(names, zip(*rows, strict=True), strict=True)
        ]
        return table(caption, ["", *map(str, range(1, len(found) + 1))], rows)
    return table(caption, names, rows)


def details(summary: str, *content: Any) -> Html:
    """Content that is folded away below a line."""
    return element("details", element("summary", summary), *content)
