"""Makes a site of the documents, and of the docstrings of the public names: python docs/site.py

It lies in build/site: open build/site/index.html. The pages stand where their Markdown stands in
the checkout, so that a relative link leads to the same place on both. What they link to comes with
them: source code as a page, any other file as it is. Every link is followed before the site is
there. It needs `pip install -e '.[site]'`.
"""

import html
import html.parser
import importlib
import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
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
    menu = {page.path: page.title for page in pages}
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
        if wanted not in self._sources:
            self.linked.add(wanted)
        return _relative(_place(wanted), _place(source)) + hash_ + anchor

    @staticmethod
    def _name_headings(tokens: list[Token]) -> None:
        """Gives each heading the anchor that GitHub gives it."""
        for opened, content in zip(tokens, tokens[1:], strict=False):
            if opened.type == "heading_open":
                words = re.sub(r"[^\w -]", "", content.content.lower())
                opened.attrs["id"] = words.replace(" ", "-")


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


def _whole(page: Page, menu: Mapping[Path, str]) -> str:
    items = []
    for path, title in menu.items():
        link, here = html.escape(_relative(path, page.path)), path == page.path
        current = ' aria-current="page"' if here else ""
        items.append(f'<li><a href="{link}"{current}>{html.escape(title)}</a></li>')
    style = _relative(Path("site.css"), page.path)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{html.escape(page.title)}</title><link rel="stylesheet" href="{style}"></head>'
        f"<body><nav><ul>{''.join(items)}</ul></nav><main>{page.content}</main></body></html>\n"
    )


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
