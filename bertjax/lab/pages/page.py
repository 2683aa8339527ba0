"""A page: one file of HTML with its style, its script and its data, which needs no network."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertjax.lab.pages.chart import Chart
from bertjax.lab.pages.html import Html, element, joined

_POINTS = 30_000  # of all curves of a page, which is below 2 MB then
_FEWEST, _MOST = 40, 1_500  # of a curve


class Section(NamedTuple):
    """A heading, HTML, and below it charts."""

    title: str
    content: Sequence[Any] = ()
    charts: Sequence[Chart] = ()


def page(
    title: str,
    sections: Sequence[Section],
    *,
    texts: Sequence[Sequence[str]] = (),
    state: str = "",
    renews: float = 0.0,
) -> str:
    """The page as HTML.

    Args:
      texts: the tokens of each text whose attention is shown.
      state: what the page was made from; where it is served, another state means a newer page.
      renews: the seconds between two looks at the state; 0: none is served.
    """
    curves = [each.name for s in sections for chart in s.charts for each in chart.curves]
    most = min(max(_POINTS // max(len(curves), 1), _FEWEST), _MOST)
    places = {name: place for place, name in enumerate(dict.fromkeys(curves))}
    charts: list[Mapping[str, Any]] = []
    body: list[Html] = []
    for section in sections:
        drawn = []
        for chart in section.charts:
            figure, data = chart.html(len(charts), most, places)
            drawn.append(figure)
            charts.append(data)
        heading = element("h2", section.title)
        body.append(element("section", heading, *section.content, *drawn))
    data = {"charts": charts, "texts": list(texts), "state": state, "renews": renews}
    style, script = (_file(name) for name in ("page.css", "page.js"))
    # No other script is run, should a text from a file ever be taken for HTML.
    allowed = (
        f"default-src 'none'; img-src data:; connect-src 'self'; style-src '{_digest(style)}'; "
        f"script-src '{_digest(script)}'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=allowed),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", style),
    )
    whole = element(
        "body",
        element("main", element("h1", title), element("p", "", id="renewal", role="status"), *body),
        element("script", _json(data), type="application/json", id="data"),
        element("script", script),
    )
    return joined([Html("<!DOCTYPE html>\n"), element("html", head, whole, lang="en"), Html("\n")])


def _file(name: str) -> Html:
    return Html(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    """The name of an inline style or script in a Content-Security-Policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _json(data: Any) -> Html:
    """JSON that no text in it can end: "<" is written as an escape."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("<", "\\u003c"))
