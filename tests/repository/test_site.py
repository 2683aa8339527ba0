"""docs/site.py: the site of the documents, its API page, and its search for dead links."""

import importlib.util
import inspect
import json
import re
import shutil

import pytest

from bertjax.inference.features.compute import Options
from bertjax.library import TextModel
from tests.helpers.browser import browser
from tests.helpers.checkout import REPOSITORY

pytestmark = pytest.mark.needs("pdoc", "markdown_it")


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("site_of_docs", REPOSITORY / "docs" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(program, tmp_path_factory):
    """The site; a test that changes it makes a copy."""
    folder = tmp_path_factory.mktemp("site") / "site"
    program.build(folder)
    return folder


def test_no_link_is_dead(program, site):
    assert program.dead_links(site) == []
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    sources = (REPOSITORY / "docs").rglob("*.md")
    documents = {path.relative_to(REPOSITORY).with_suffix(".html").as_posix() for path in sources}
    assert documents | {"index.html", "WORKSPACE.html", "api.html"} <= pages


def test_relative_links_lead_to_the_same_places(site):
    """On the site as on GitHub: pages, anchors, files."""
    first = (site / "index.html").read_text(encoding="utf-8")
    gpu = (site / "docs" / "gpu.html").read_text(encoding="utf-8")
    assert 'href="docs/gpu.html#install"' in first and 'id="install"' in gpu
    assert 'href="../index.html#your-own-text"' in gpu and 'id="your-own-text"' in first
    index = (site / "docs" / "index.html").read_text(encoding="utf-8")
    notebook = "launch/colab_tpu.ipynb"
    assert f'href="../{notebook}"' in index
    assert (site / notebook).read_bytes() == (REPOSITORY / notebook).read_bytes()


def test_the_menu_has_every_page_once(program, site):
    page = (site / "docs" / "gpu.html").read_text(encoding="utf-8")
    menu = re.search('<div class="menu">(.*?)</div></nav>', page)[1]
    links = re.findall('<li><a href="([^"#]+)"', menu)
    shown = {(site / "docs" / link).resolve().relative_to(site).as_posix() for link in links}
    documents = [path.relative_to(REPOSITORY) for path in (REPOSITORY / "docs").rglob("*.md")]
    own = {path.with_suffix(".html").as_posix() for path in documents}
    assert shown == own | {"index.html", "WORKSPACE.html", "api.html"}
    assert len(links) == len(shown)
    for_users = {path.stem for path in documents if len(path.parts) == 2}
    listed = [name for names in program.MENU.values() for name in names]
    assert sorted(listed) == sorted(for_users | {"README", "api"})
    assert 'aria-current="page"' in menu and '<a href="#install">Install</a>' in menu


def test_the_search_has_sections_and_rows(program, site):
    text = (site / "search.js").read_text(encoding="utf-8")
    entries = json.loads(text.removeprefix("window.ENTRIES = ").removesuffix(";\n"))
    keys = [entry for entry in entries if entry[2] == "optimizer.clip_norm"]
    assert keys[0][0] == "docs/config.html" and keys[0][3] == "Every key and flag: Every config"
    assert "number, above 0 1.0 the gradient" in keys[0][4]
    page = (site / "docs" / "config.html").read_text(encoding="utf-8")
    assert f'<tr id="{keys[0][1]}">' in page
    assert any(entry[:3] == ["docs/gpu.html", "install", "Install"] for entry in entries)
    assert not any(entry[0].endswith(".py.html") for entry in entries)


def test_equal_headings_have_anchors_of_their_own(program):
    document = program.Documents(set())
    tokens = document._markdown.parse("# A\n\n## B c\n\n## B c\n")
    document._name_headings(tokens)
    assert [t.attrs["id"] for t in tokens if t.type == "heading_open"] == ["a", "b-c", "b-c-1"]


def test_the_site_in_a_browser(site):
    """At the width of a desk and of a phone: nothing is wider than the screen; the search finds."""
    with browser() as opened:
        for width in (1280, 390):
            page = opened.new_page(viewport={"width": width, "height": 800})
            errors: list[str] = []
            page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
            for name in ("index.html", "docs/config.html", "docs/troubleshooting.html"):
                page.goto(f"file://{site / name}")
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.is_visible(".menu") == (width == 1280)
            page.keyboard.press("/")
            page.keyboard.type("clip_norm")
            page.wait_for_selector("#found a")
            page.keyboard.press("Enter")
            page.wait_for_url("**/docs/config.html#row-*")
            assert "optimizer.clip_norm" in page.inner_text("tr:target")
            page.fill("#search", "xyzzy")
            page.wait_for_function(
                "document.getElementById('found').textContent.includes('Nothing')"
            )
            assert errors == []


def test_the_api_page_has_the_public_names_and_no_others(program, site):
    page = (site / "api.html").read_text(encoding="utf-8")
    names = re.findall(r'<h[23] id="[\w.]+">([\w.]+)</h', page)
    own = [
        name
        for name, member in vars(TextModel).items()
        if inspect.isfunction(member) and not name.startswith("_")
    ]
    methods = [name for name in names if "." not in name]
    assert [name for name in names if "." in name] == list(program.PUBLIC)
    assert methods == [*own, "of_model"]  # a method of `Options`
    text = re.sub(r"<[^>]+>", "", page)
    assert "load(source: str) -&gt; bertjax.library.TextModel" in text
    assert "fill(text: str, top: int = 5)" in text.replace("\n", "")
    assert all(f"{name}:" in text for name in Options.__dataclass_fields__)


def test_what_is_dead_is_found(program, site, tmp_path):
    copy = shutil.copytree(site, tmp_path / "site")
    (copy / "docs" / "library.html").unlink()
    gpu = copy / "docs" / "gpu.html"
    gpu.write_text(gpu.read_text().replace('id="install"', ""), encoding="utf-8")
    (copy / "more.html").write_text(
        '<img src="nowhere.png"><a href="docs">folder</a><a href="#here"></a>'
        '<a href="LICENSE#x"></a><a href="https://example.org/x"></a><p id="there">'
    )
    dead = program.dead_links(copy)
    assert {"index.html: docs/library.html", "index.html: docs/gpu.html#install"} < set(dead)
    assert [each for each in dead if each.startswith("more.html")] == [
        "more.html: nowhere.png",
        *("more.html: docs", "more.html: #here", "more.html: LICENSE#x"),
    ]


def test_pictures_code_folders_and_what_is_missing(program, tmp_path, monkeypatch):
    """A file that is missing does not stop the site; its link is reported."""
    monkeypatch.setattr(program, "CHECKOUT", tmp_path)
    monkeypatch.setattr(program, "PUBLIC", ())
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "site.css").write_text("")
    (tmp_path / "README.md").write_text("# One\n\n[a](docs/a.md#b-c-d) [b](gone.py) <b>x</b>\n")
    (tmp_path / "WORKSPACE.md").write_text("# Two\n\n[c](README.md)\n\n|a|b|\n|---|---|\n|`x`|y|\n")
    text = "# Three\n\n## B `c`, d!\n\n```tree\na < b\n```\n\n![p](../p.png) [code](../code)\n"
    (tmp_path / "docs" / "a.md").write_text(text)
    (tmp_path / "p.png").write_bytes(b"picture")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "one.py").write_text("print(1)\n")
    program.build(tmp_path / "site")
    assert program.dead_links(tmp_path / "site") == ["index.html: gone.py.html"]
    shown = (tmp_path / "site" / "WORKSPACE.html").read_text()
    assert "<td><code>x</code></td>" in shown and '<a href="index.html">c</a>' in shown
    third = (tmp_path / "site" / "docs" / "a.html").read_text()
    assert "a &lt; b" in third and 'src="../p.png"' in third
    assert 'href="../code/index.html"' in third
    assert (tmp_path / "site" / "p.png").read_bytes() == b"picture"
    listed = (tmp_path / "site" / "code" / "index.html").read_text()
    assert '<li><a href="one.py.html">one.py</a></li>' in listed
    assert "<h1>code/one.py</h1>" in (tmp_path / "site" / "code" / "one.py.html").read_text()
