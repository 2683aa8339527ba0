"""docs/site.py: the site of the documents, its API page, and its search for dead links."""

import importlib.util
import inspect
import re
import shutil

import pytest

from bertjax.inference.features.compute import Options
from bertjax.library import TextModel
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
    """On the site as on GitHub: pages, anchors, pictures, code, folders."""
    first = (site / "index.html").read_text(encoding="utf-8")
    training = (site / "docs" / "training.html").read_text(encoding="utf-8")
    assert 'href="docs/training.html#a-run"' in first and 'id="a-run"' in training
    assert 'href="../index.html#your-own-text"' in training and 'id="your-own-text"' in first
    picture = "tests/benchmarks/results/enwiki_mini.png"
    assert f'src="{picture}"' in first and f'src="../{picture}"' in training
    assert (site / picture).read_bytes() == (REPOSITORY / picture).read_bytes()
    code = (site / "bertjax" / "config.py.html").read_text(encoding="utf-8")
    assert 'href="../bertjax/config.py.html"' in training and "<h1>bertjax/config.py</h1>" in code
    folder = (site / "bertjax/models/encoders/elmo/index.html").read_text(encoding="utf-8")
    assert '<li><a href="spec.py.html">spec.py</a></li>' in folder


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
    (copy / "docs" / "grammar.html").unlink()
    training = copy / "docs" / "training.html"
    training.write_text(training.read_text().replace('id="a-run"', ""), encoding="utf-8")
    (copy / "more.html").write_text(
        '<img src="nowhere.png"><a href="docs">folder</a><a href="#here"></a>'
        '<a href="LICENSE#x"></a><a href="https://example.org/x"></a><p id="there">'
    )
    dead = program.dead_links(copy)
    assert {"index.html: docs/grammar.html", "index.html: docs/training.html#a-run"} < set(dead)
    assert [each for each in dead if each.startswith("more.html")] == [
        "more.html: nowhere.png",
        *("more.html: docs", "more.html: #here", "more.html: LICENSE#x"),
    ]


def test_markdown_that_leads_nowhere(program, tmp_path, monkeypatch):
    """A file that is missing does not stop the site; its link is reported."""
    monkeypatch.setattr(program, "CHECKOUT", tmp_path)
    monkeypatch.setattr(program, "PUBLIC", ())
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "site.css").write_text("")
    (tmp_path / "README.md").write_text("# One\n\n[a](docs/a.md#b-c-d) [b](gone.py) <b>x</b>\n")
    (tmp_path / "WORKSPACE.md").write_text("# Two\n\n[c](README.md)\n\n|a|b|\n|---|---|\n|`x`|y|\n")
    (tmp_path / "docs" / "a.md").write_text("# Three\n\n## B `c`, d!\n\n```tree\na < b\n```\n")
    program.build(tmp_path / "site")
    assert program.dead_links(tmp_path / "site") == ["index.html: gone.py.html"]
    shown = (tmp_path / "site" / "WORKSPACE.html").read_text()
    assert "<td><code>x</code></td>" in shown and '<a href="index.html">c</a>' in shown
    assert "a &lt; b" in (tmp_path / "site" / "docs" / "a.html").read_text()
