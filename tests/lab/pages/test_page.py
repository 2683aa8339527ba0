"""A page: what is escaped, and that it needs nothing else."""

import base64
import hashlib
import re

from bertjax.base.figures import Curve
from bertjax.lab.pages.chart import Chart
from bertjax.lab.pages.html import Html, element, number, records, table
from bertjax.lab.pages.page import Section, page
from tests.helpers.page_data import Page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"'"


def test_every_text_is_escaped():
    chart = Chart(EVIL, [Curve.of(EVIL, [(1, 1.0), (2, 3.0)])])
    content = [
        element("p", EVIL, title=EVIL),
        table(EVIL, [EVIL, "b"], [[EVIL, EVIL]]),
        records(EVIL, [{EVIL: EVIL}, {"b": 3}]),
    ]
    text = page(EVIL, [Section(EVIL, content, [chart])], texts=[[EVIL]], state=EVIL)
    shown = Page(text)
    assert [name for name, _ in shown.elements if name in ("script", "img")] == ["script"] * 2
    assert shown.text.count(EVIL) > 10
    assert shown.data["texts"] == [[EVIL]] and shown.data["state"] == EVIL
    assert shown.curve(0, EVIL) == ([1, 2], [1, 3])
    (title,) = [a["title"] for name, a in shown.elements if name == "p" and "title" in a]
    assert title == EVIL


def test_a_page_needs_no_network_and_runs_only_its_own_script():
    text = page("A page", [])
    assert not re.search(r'(?:src|href|url)\s*[=(]\s*["\']?(?!data:)', text)
    shown = Page(text)
    (policy,) = [a["content"] for name, a in shown.elements if name == "meta" and "http-equiv" in a]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    for kind, each in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")


def test_what_is_html_already_is_not_escaped_again():
    inner = element("b", "1 < 2")
    assert element("p", inner, " & ", Html("<br>")) == "<p><b>1 &lt; 2</b> &amp; <br></p>"
    assert element("i", class_="a b", aria_hidden="true", none=None) == (
        '<i class="a b" aria-hidden="true"></i>'
    )


def test_figures_are_short():
    shown = map(number, (12_345_678, 12_345.6, 999, 0.000123456789, 5.0, True, None, "<b>", 1e12))
    assert list(shown) == [
        *("12,345,678", "12,346", "999", "0.00012346", "5", "True", "", "<b>", "1e+12")
    ]


def test_records_with_other_keys():
    shown = Page(
        page("", [Section("", [records("all", [{"a": 1, "b": 2.5}, {"b": 3, "c": "x"}])])])
    )
    assert "all a b c 1 2.5 3 x" in shown.text


def test_records_with_many_keys():
    """A key is a row if there are more of them than columns fit, and than records."""
    keys, nothing = [f"k{n}" for n in range(9)], {"empty": "", "none": None}
    one = {key: n for n, key in enumerate(keys)}

    def text(*found):
        return Page(page("", [Section("", [records("all", [*found])])])).text

    turned = " ".join(f"{key} {n} {n + 1}" for n, key in enumerate(keys))
    assert text(one | nothing, {key: n + 1 for n, key in enumerate(keys)}) == f"all 1 2 {turned}"
    assert text(nothing, {}) == "all"
    eight = {key: one[key] for key in keys[:8]} | nothing
    assert text(eight) == "all k0 k1 k2 k3 k4 k5 k6 k7 0 1 2 3 4 5 6 7"
    assert text(*[one] * 9) == f"all {' '.join(keys)}" + " 0 1 2 3 4 5 6 7 8" * 9
