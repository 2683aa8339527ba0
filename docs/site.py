"""Makes a site of the documents, and of the docstrings of the public names: python docs/site.py

It lies in build/site: open build/site/index.html. The pages stand where their Markdown stands in
the checkout, so that a relative link leads to the same place on both. What they link to comes with
them: source code as a page, any other file as it is. Every link and anchor is followed before the
site is there. Its search runs in the browser, without a server. It needs
`pip install -e '.[site]'`.
"""

import html
import html.parser
import importlib
import inspect
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pdoc.doc
import pdoc.docstrings
import pygments
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

CHECKOUT = Path(__file__).resolve().parents[1]
# What other programs may use: `bertjax.load`, what it returns, and what that takes and returns.
PUBLIC = (
    "bertjax.load",
    "bertjax.library.TextModel",
    "bertjax.programs.fill_mask.Guess",
    "bertjax.inference.features.compute.Options",
)
# What the reader wants -> the pages for it, by their names in docs/.
MENU = {
    "Start": ("README", "gpu", "colab", "tpu"),
    "Pre-train": ("corpus", "pretraining", "recipes", "own_model"),
    "Fine-tune": ("fine_tuning", "embeddings"),
    "Measure": ("evaluation", "studies"),
    "Use a model": ("weights", "library", "migration", "api"),
    "Look up": ("index", "config", "troubleshooting"),
}
MORE = {"Results": "docs/results", "For developers": "docs/dev"}  # folders
_API = Path("api.html")
_CODE = {".py": "python", ".sh": "bash"}  # files that become pages


class Page(NamedTuple):
    """A page: its file in the site, its title, and its content as HTML."""

    path: Path
    title: str
    content: str


def main() -> int:
    """Makes the site."""
    site = CHECKOUT / "build" / "site"
    shutil.rmtree(site, ignore_errors=True)
    build(site)
    if dead := dead_links(site):
        print(*dead, sep="\n", file=sys.stderr)
        return 1
    print(site / "index.html")
    return 0


def build(site: Path) -> None:
    """Writes the site to a new folder."""
    sources = [*(CHECKOUT / name for name in ("README.md", "WORKSPACE.md"))]
    sources += sorted((CHECKOUT / "docs").rglob("*.md"))
    document = Documents(set(sources))
    pages = [document.page(source) for source in sources]
    pages.append(Page(_API, "API", api()))
    menu, searched = menu_of(pages), list(pages)  # without the pages of code
    done: set[Path] = set()
    while document.linked - done:  # a folder's page links to the files in it
        for source in sorted(document.linked - done):
            done.add(source)
            if found := _of_file(source, document):
                pages.append(found)
            elif source.exists():  # else `dead_links` reports it
                target = site / source.relative_to(CHECKOUT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    for page in pages:
        target = site / page.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_whole(page, menu), encoding="utf-8")
    (site / "search.js").write_text(f"window.ENTRIES = {json.dumps(entries(searched))};\n")
    shutil.copyfile(Path(__file__).with_name("site.js"), site / "site.js")
    styles = (CHECKOUT / "docs" / "site.css").read_text(encoding="utf-8") + _colors()
    (site / "site.css").write_text(styles, encoding="utf-8")


# ------------------------------------------------------------------------------ documents


class Documents:
    """Turns Markdown into pages.

    Attributes:
      linked: the other files and folders of the checkout that the pages link to.
    """

    def __init__(self, sources: set[Path]):
        self.linked: set[Path] = set()
        self._sources = sources
        self._markdown = MarkdownIt("commonmark", {"highlight": _highlighted}).enable("table")
        self._markdown.add_render_rule("table_open", lambda *_: '<div class="wide"><table>')
        self._markdown.add_render_rule("table_close", lambda *_: "</table></div>")

    def page(self, source: Path) -> Page:
        """The page of a Markdown file."""
        tokens = self._markdown.parse(source.read_text(encoding="utf-8"))
        self._name_headings(tokens)
        self._name_rows(tokens)
        for token in tokens:
            for child in token.children or ():
                for key in ("href", "src"):
                    if key in child.attrs:
                        child.attrs[key] = self.target(source, str(child.attrs[key]))
        title = next(t.content for n, t in enumerate(tokens) if tokens[n - 1].tag == "h1")
        content = self._markdown.renderer.render(tokens, self._markdown.options, {})
        return Page(_place(source), title, content)

    def target(self, source: Path, link: str) -> str:
        """Where a link of a file leads in the site."""
        if re.match("[a-z]+:", link) or link.startswith("#"):
            return link
        path, hash_, anchor = link.partition("#")
        wanted = (source.parent / path).resolve()
        if wanted / "index.md" in self._sources:
            wanted /= "index.md"
        if wanted not in self._sources:
            self.linked.add(wanted)
        return _relative(_place(wanted), _place(source)) + hash_ + anchor

    @staticmethod
    def _name_headings(tokens: list[Token]) -> None:
        """Gives each heading the anchor that GitHub gives it."""
        used: dict[str, int] = {}
        for opened, content in zip(tokens, tokens[1:], strict=False):
            if opened.type == "heading_open":
                name = re.sub(r"[^\w -]", "", content.content.lower()).replace(" ", "-")
                number = used[name] = used.get(name, -1) + 1
                opened.attrs["id"] = f"{name}-{number}" if number else name

    @staticmethod
    def _name_rows(tokens: list[Token]) -> None:
        """Gives each row of a table that begins with code an anchor, for the search."""
        number = 0
        for opened, _, content in zip(tokens, tokens[1:], tokens[2:], strict=False):
            first = (content.children or [None])[0]
            if opened.type == "tr_open" and first and first.type in ("code_inline", "link_open"):
                number += 1
                opened.attrs["id"] = f"row-{number}"


def _place(source: Path) -> Path:
    """The file in the site of a file or folder of the checkout."""
    path = source.relative_to(CHECKOUT)
    if path == Path("README.md"):
        return Path("index.html")
    if source.is_dir():
        return path / "index.html"
    if path.suffix == ".md":
        return path.with_suffix(".html")
    return path.with_name(f"{path.name}.html") if path.suffix in _CODE else path


def _relative(target: Path, page: Path) -> str:
    return Path(os.path.relpath(target, page.parent)).as_posix()


def _of_file(source: Path, document: Documents) -> Page | None:
    """The page of a folder or of source code; None for a file that is copied."""
    name = source.relative_to(CHECKOUT).as_posix()
    if source.is_dir():
        files = sorted(file for file in source.iterdir() if file.is_file())
        items = "".join(
            f'<li><a href="{html.escape(document.target(source / "x", file.name))}">'
            f"{html.escape(file.name)}</a></li>"
            for file in files
        )
        return Page(_place(source), name, f"<h1>{html.escape(name)}/</h1><ul>{items}</ul>")
    if source.suffix not in _CODE or not source.exists():
        return None
    code = _highlighted(source.read_text(encoding="utf-8"), _CODE[source.suffix], "")
    return Page(_place(source), name, f"<h1>{html.escape(name)}</h1><pre>{code}</pre>")


def _highlighted(code: str, language: str, _: str) -> str:
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return html.escape(code)
    return pygments.highlight(code, lexer, HtmlFormatter(nowrap=True))


def _colors() -> str:
    """The colors of code, light and dark."""
    light, dark = (HtmlFormatter(style=s).get_style_defs("pre") for s in ("default", "monokai"))
    dark = f"@media (prefers-color-scheme: dark) {{\n{dark}\n}}"
    return re.sub(r"background: #\w+;? ?", "", f"{light}\n{dark}\n")


# ------------------------------------------------------------------------------------ API


def api() -> str:
    """The public names: their signatures and docstrings, as HTML."""
    found = ["<h1>API</h1>"]
    for name in PUBLIC:
        module, _, last = name.rpartition(".")
        member = getattr(importlib.import_module(module), last)  # `bertjax.load` lies elsewhere
        documented = pdoc.doc.Module(inspect.getmodule(member)).members[last]
        found.append(_described(documented, name, 2))
        if isinstance(documented, pdoc.doc.Class):
            found += [_described(each, each.name, 3) for each in _methods(documented)]
    return "\n".join(found)


def _methods(documented: pdoc.doc.Class) -> Iterator[pdoc.doc.Function]:
    """Yields the public methods of a class; its docstring has its attributes."""
    for each in documented.own_members:
        if isinstance(each, pdoc.doc.Function) and not each.name.startswith("_"):
            yield each


def _described(documented: pdoc.doc.Doc[Any], title: str, level: int) -> str:
    markdown = pdoc.docstrings.convert(documented.docstring, "google", None)
    markdown = re.sub("(?m)^#+ (.+)$", r"**\1**", markdown)  # "Arguments:" is no heading
    signature = ""
    if isinstance(documented, pdoc.doc.Function):
        of_method = "." in documented.qualname
        given = documented.signature_without_self if of_method else documented.signature
        signature = f"<pre>{_highlighted(f'{documented.name}{given}', 'python', '')}</pre>"
    heading = f'<h{level} id="{html.escape(documented.fullname)}">{html.escape(title)}</h{level}>'
    return heading + signature + MarkdownIt("commonmark").render(markdown)


# ---------------------------------------------------------------------------------- pages


class Item(NamedTuple):
    """A page in the menu."""

    path: Path
    title: str


def menu_of(pages: list[Page]) -> dict[str, list[Item]]:
    """The groups of the menu: the pages of `MENU`, and of the folders of `MORE`."""
    by_name = {_name(page.path): Item(page.path, page.title) for page in pages}
    groups = {title: [by_name[n] for n in names if n in by_name] for title, names in MENU.items()}
    for title, folder in MORE.items():
        groups[title] = [
            Item(page.path, page.title) for page in pages if page.path.parent == Path(folder)
        ]
    listed = {item.path for items in groups.values() for item in items}
    groups["For developers"] += [
        Item(page.path, page.title) for page in pages if page.path not in listed
    ]
    return {title: items for title, items in groups.items() if items}


def _name(path: Path) -> str:
    """The name of a page in `MENU`."""
    return (
        "README"
        if path == Path("index.html")
        else path.with_suffix("").as_posix().removeprefix("docs/")
    )


def _whole(page: Page, menu: Mapping[str, list[Item]]) -> str:
    root = "../" * (len(page.path.parts) - 1)
    groups = "".join(_group(page, title, items) for title, items in menu.items())
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(page.title)}</title>"
        f'<link rel="stylesheet" href="{root}site.css"></head><body data-root="{root}">'
        f'<nav><div class="bar"><a class="home" href="{root}index.html">bertjax</a>'
        '<input id="search" type="search" placeholder="Search ( / )" aria-label="Search" '
        'autocomplete="off"><label class="open" for="open">Menu</label></div>'
        '<input id="open" type="checkbox" aria-label="Menu"><ol id="found" hidden></ol>'
        f'<div class="menu">{groups}</div></nav><main>{page.content}</main>'
        f'<script src="{root}site.js"></script></body></html>\n'
    )


def _group(page: Page, title: str, items: list[Item]) -> str:
    """A group of the menu; those of `MORE` are closed where the page is not in them."""
    lines = "".join(_item(page, item) for item in items)
    if title not in MORE:
        return f"<h2>{html.escape(title)}</h2><ul>{lines}</ul>"
    here = " open" if any(item.path == page.path for item in items) else ""
    return f"<details{here}><summary>{html.escape(title)}</summary><ul>{lines}</ul></details>"


def _item(page: Page, item: Item) -> str:
    """A line of the menu; below that of the page itself, its sections."""
    link, title = html.escape(_relative(item.path, page.path)), html.escape(item.title)
    if item.path != page.path:
        return f'<li><a href="{link}">{title}</a></li>'
    sections = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', page.content)
    lines = "".join(
        f'<li><a href="#{anchor}">{re.sub("<[^>]+>", "", name)}</a></li>'
        for anchor, name in sections
    )
    return (
        f'<li><a href="{link}" aria-current="page">{title}</a>'
        f'<ul class="sections">{lines}</ul></li>'
    )


# --------------------------------------------------------------------------------- search


class _Entries(html.parser.HTMLParser):
    """What the search finds in a page: its sections, and the named rows of its tables.

    Attributes:
      found: each as its anchor, its title, its text, and the title of the section that it is in.
    """

    def __init__(self, page: Page):
        super().__init__()
        self._section = self._entry = ["", page.title, "", ""]
        self._of_title = ""  # the element whose text is the title
        self.found = [self._entry]
        self.feed(page.content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        anchor = dict(attrs).get("id") or ""
        self._entry[2] += " "
        if tag in ("h1", "h2", "h3", "h4"):
            self._section = self._begin(anchor)
            self._section[3] = ""
            self._of_title = tag
        elif tag == "tr" and anchor:
            self._begin(anchor)
        elif tag == "td" and self._entry is not self._section and not self._entry[1]:
            self._of_title = tag

    def _begin(self, anchor: str) -> list[str]:
        self._entry = [anchor, "", "", self._section[1]]
        self.found.append(self._entry)
        return self._entry

    def handle_endtag(self, tag: str) -> None:
        if tag == self._of_title:
            self._of_title = ""
        if tag == "tr":
            self._entry = self._section

    def handle_data(self, data: str) -> None:
        self._entry[1 if self._of_title else 2] += data


def entries(pages: Iterable[Page]) -> list[list[str]]:
    """The entries of the search: page, anchor, title, where it is, text."""
    found = []
    for page in pages:
        for anchor, title, text, section in _Entries(page).found:
            where = f"{page.title}: {section}" if section else page.title
            words = [" ".join(each.split()) for each in (title, where, text)]
            if words[-1]:
                found.append([page.path.as_posix(), anchor, *words])
    return found


# ---------------------------------------------------------------------------------- links


class _Links(html.parser.HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("href", "src"):
                self.links.append(value or "")
            elif key == "id":
                self.anchors.add(value or "")


def dead_links(site: Path) -> list[str]:
    """The links of a site that lead nowhere in it; links to other sites are not followed."""
    pages = {
        path: _Links(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))
    }
    dead = []
    for page, found in pages.items():
        for link in found.links:
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            outside = link.startswith(("https:", "mailto:"))
            there = target.is_file() and (not anchor or anchor in _anchors(target, pages))
            if not outside and not there:
                dead.append(f"{page.relative_to(site)}: {link}")
    return dead


def _anchors(target: Path, pages: Mapping[Path, _Links]) -> set[str]:
    return pages[target].anchors if target in pages else set()


if __name__ == "__main__":
    sys.exit(main())
