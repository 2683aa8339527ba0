"""Reads what a page of `bertjax.lab.pages` shows: its data, its curves, its tables and its text."""

import html.parser
import json
import re
from typing import Any

_EMPTY = {"img", "meta"}


class Page(html.parser.HTMLParser):
    """A parsed page.

    Attributes:
      elements: (name, attributes) of every element, in order.
      text: all text outside scripts and styles, with spaces between elements.
      data: the page's JSON.
      open: the elements that were never closed.
    """

    def __init__(self, page: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self._texts: list[str] = []
        self._json = ""
        self.feed(page)
        self.text = " ".join(" ".join(self._texts).split())
        self.data: dict[str, Any] = json.loads(self._json)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self._json += data if self.elements[-1][1].get("id") == "data" else ""
        elif self.open and self.open[-1] != "style":
            self._texts.append(data)

    def curve(self, chart: int, name: str) -> tuple[list, list]:
        """The steps and values of a curve of a chart."""
        curves = {each["name"]: each for each in self.data["charts"][chart]["curves"]}
        return curves[name]["steps"], curves[name]["values"]

    def paths(self) -> list[list[tuple[float, float]]]:
        """The points of each drawn curve, in units of its picture, without the legends."""
        drawn = [
            attributes["d"]
            for name, attributes in self.elements
            if name == "path" and (attributes.get("class") or "").startswith("curve")
        ]
        paths = [re.findall(r"[ML]([\d.-]+) ([\d.-]+)", d) for d in drawn if d != "M0 6H26"]
        return [[(float(x), float(y)) for x, y in path] for path in paths]
