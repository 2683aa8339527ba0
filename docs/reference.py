"""Makes docs/config.md, and fills what the documents take from the code: python docs/reference.py

In README.md and docs/, `<!-- generated: NAME -->` and `<!-- end of generated -->` enclose a table
that is made from the code; NAME is a key of `BLOCKS`. What stands there is replaced.
"""

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bertjax.__main__ import GROUPS, summary
from bertjax.interop.published.registry import PUBLISHED
from bertjax.programs.config_page import page
from bertjax.training.sharding.rules import LAYOUTS

CHECKOUT = Path(__file__).resolve().parents[1]
CONFIG_PAGE = CHECKOUT / "docs" / "config.md"

_MARKED = re.compile(
    r"^(<!-- generated: (\S+) -->\n).*?^(<!-- end of generated -->)$", re.DOTALL | re.MULTILINE
)


def main() -> None:
    """Writes config.md and the blocks of the other documents."""
    for path, text in rendered().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(CHECKOUT)}: written anew")


def rendered() -> dict[Path, str]:
    """The text of config.md and of each document that has blocks, as the code makes them."""
    documents = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]
    found = {CONFIG_PAGE: config_page()}
    for path in documents:
        text = path.read_text(encoding="utf-8")
        if path != CONFIG_PAGE and _MARKED.search(text):
            found[path] = render(text, path.parent)
    return found


def render(text: str, folder: Path) -> str:
    """The text of a document that lies in `folder`, with its blocks made from the code."""

    def block(marks: re.Match[str]) -> str:
        return f"{marks[1]}{_linked(BLOCKS[marks[2]](), folder)}\n{marks[3]}"

    return _MARKED.sub(block, text)


# ------------------------------------------------------------------------------- programs


class Flag(NamedTuple):
    """A flag of a program: its name, what a value may be, its default, and its explanation."""

    name: str
    values: str
    default: str
    what: str


_KINDS = {
    "string": "text",
    "integer": "whole number",
    "float": "number",
    "bool": "True or False",
    "boolean": "True or False",
    "list": "names with commas between",
    "multi_string": "text, perhaps several times",
    "multi_integer": "whole number, perhaps several times",
}
_CONFIG_FLAG = Flag(
    "config",
    "a file, or the name of one of `configs/`",
    "must be given",
    "`--config.KEY=VALUE` changes a value of it.",
)


def flags_of(program: Path) -> list[Flag]:
    """The flags that a file of launch/ defines, read from its code."""
    tree = ast.parse(program.read_text(encoding="utf-8"))
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    named = {ast.unparse(call.func).rpartition(".")[2]: call for call in calls}
    required = {
        each.value
        for name in ("mark_flag_as_required", "mark_flags_as_required")
        for each in ast.walk(named.get(name, ast.Constant("")))
        if isinstance(each, ast.Constant)
    }
    found = []
    for call in sorted(calls, key=lambda each: each.lineno):
        kind = ast.unparse(call.func).partition("DEFINE_")[2]
        if kind == "config":
            found.append(_CONFIG_FLAG)
        elif kind:
            found.append(_flag(kind, call, required))
    return found


def _flag(kind: str, call: ast.Call, required: set[str]) -> Flag:
    name, default, *rest = map(ast.literal_eval, call.args)
    given = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    values = _KINDS.get(kind, "")
    if kind == "enum":
        values = f"one of {', '.join(rest.pop(0))}"
    what, *bounds = rest
    bound = bounds[0] if bounds else given.get("lower_bound")
    if bound is not None:
        values += f", at least {bound}"
    shown = "" if default is None or default == [] or default == "" else f"`{default}`"
    if name in required or given.get("required"):
        shown = "must be given"
    return Flag(name, values, shown, what)


def programs() -> str:
    """The programs of launch/: those of the usual way first, then by what one wants."""
    rows = []
    for group, names in GROUPS.items():
        for n, name in enumerate(names):
            link = f"[`{name}`](docs/config.md#bertjax-{name})"
            rows.append((group * (n == 0), link, summary(_program(name))))
    return _table(("for", "program", "what it does"), rows)


def _program(name: str) -> Path:
    return CHECKOUT / "launch" / f"{name}.py"


# -------------------------------------------------------------------------------- configs


def configs(kind: str) -> str:
    """The configs of a kind: what each is, for which hardware, and what to expect."""
    rows = []
    for name, text in docstrings(kind).items():
        link = f"[`{name.removeprefix('pretrain_')}`](#{name})"
        first = re.split(r": |, in minutes|\.?\n", text)[0]
        rows.append((link, first, _clause(text, "Hardware"), _clause(text, "Expected")))
    return _table(("config", "what", "hardware", "expected"), rows)


def docstrings(kind: str) -> dict[str, str]:
    """The docstring of each config of a kind, those for the least hardware first."""
    paths = sorted((CHECKOUT / "configs").glob(f"{kind}_*.py"))
    texts = {
        path.stem: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        for path in paths
    }

    def hardware(name: str) -> int:
        said = _clause(texts[name], "Hardware")
        return min(n for n, word in enumerate(("CPU core", "GPU", "CPU", "TPU")) if word in said)

    return {name: texts[name] for name in sorted(texts, key=hardware)}


def _clause(docstring: str, name: str) -> str:
    """What a docstring says after "Hardware:" or "Expected:", to the first semicolon or point."""
    started = re.search(rf"^{name}: (.*?)(?=\n\n|\Z)", docstring, re.DOTALL | re.MULTILINE)
    if not started:
        raise ValueError(f"no line {name}: in the docstring {docstring.splitlines()[0]!r}")
    words = " ".join(started[1].split())
    unknown = "; not yet run" if name == "Expected" and "Not yet run" in words else ""
    return re.split(r"[;.](?:\s|$)", words)[0] + unknown


# ------------------------------------------------------------------------------ config.md


_ABOUT_FLAGS = """\
`bertjax pretrain --flag=value` from any folder is `python launch/pretrain.py --flag=value` in the
checkout, and so for every program."""
_ABOUT_CONFIGS = """\
`--config=NAME` takes a file of `configs/`, also without `pretrain_` or `finetune_`: `--config=tiny`
is `--config=configs/pretrain_tiny.py`. Their docstrings:"""
_ABOUT_LAYOUTS = "What `config.layout` splits over the devices:"
_ABOUT_CLASSES = "These classes of `transformers` are read and written:"
_ABOUT_EXTRAS = "`pip install -e '.[NAME]'` in the checkout installs what only some need:"


def config_page() -> str:
    """The page of every key of a config, of the configs, and of every flag of a program."""
    sections = [page().rstrip("\n"), "## Flags of the programs", _ABOUT_FLAGS]
    for name in (each for names in GROUPS.values() for each in names):
        rows = [(f"`--{flag}`", *rest) for flag, *rest in flags_of(_program(name))]
        sections += [f"### bertjax {name}", f"{summary(_program(name))}."]
        sections.append(_table(("flag", "values", "default", ""), rows))
    sections += ["## The configs", _ABOUT_CONFIGS]
    for kind in ("pretrain", "finetune"):
        sections.append(configs(kind))
    for kind in ("pretrain", "finetune"):
        for name, text in docstrings(kind).items():
            sections += [f"### {name}", f"```text\n{text}\n```"]
    sections += ["## Layouts", _ABOUT_LAYOUTS, layouts()]
    sections += ["## Classes of transformers", _ABOUT_CLASSES, classes()]
    return "\n\n".join([*sections, "## Extras", _ABOUT_EXTRAS, extras()]) + "\n"


# -------------------------------------------------------------- weights, layouts and extras


def classes() -> str:
    """The classes of transformers that are read and written, by model_type."""
    rows = []
    for name, names in PUBLISHED.items():
        known = list(dict.fromkeys(names.classes.values()))
        if known:
            prefix = os.path.commonprefix(known[:2])  # DeBERTa's discriminator has another
            ends = [each.removeprefix(prefix) for each in known]
            rows.append((f"`{name}`", f"`{prefix}`", ", ".join(each or "alone" for each in ends)))
    return _table(("`model_type`", "class", "with the endings"), rows)


def layouts() -> str:
    """The layouts of config.layout, with the comments of their table."""
    source = (CHECKOUT / "bertjax/training/sharding/rules.py").read_text(encoding="utf-8")
    said = dict(_commented(source, "LAYOUTS"))
    return _table(("layout", "what is split"), [(f"`{name}`", said[name]) for name in LAYOUTS])


def extras() -> str:
    """The extras of setup.py, with their comments there."""
    source = (CHECKOUT / "setup.py").read_text(encoding="utf-8")
    rows = [(f"`{name}`", what) for name, what in _commented(source, "extras")]
    return _table(("extra", "for"), rows)


def _commented(source: str, name: str) -> Iterator[tuple[str, str]]:
    """Yields each key of a dict of several lines, with the comment before it."""
    listed = source[source.index(name) :]
    for comments, key in re.findall(r"((?:^ +#.*\n)+)^ +\"([\w-]+)\": ", listed, re.MULTILINE):
        words = " ".join(line.strip(" #") for line in comments.splitlines())
        yield key, words.rstrip(".")


# ---------------------------------------------------------------------------------- tables


def _table(titles: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """The text of a cell, in which Markdown changes nothing but code and links."""
    return re.sub(r"([|*<])", r"\\\1", text)


def _linked(text: str, folder: Path) -> str:
    """The text with its links, and with the pages and files that it names, as links from there."""
    text = re.sub(r"(?<![(/\w])docs/([\w/]+)\.md", r"[\1](docs/\1.md)", text)

    def link(found: re.Match[str]) -> str:
        path, hash_, anchor = found[1].partition("#")
        return f"]({Path(os.path.relpath(CHECKOUT / path, folder)).as_posix()}{hash_}{anchor})"

    return re.sub(r"\]\(([^)]+)\)", link, text)


BLOCKS: dict[str, Callable[[], str]] = {
    "programs": programs,
}

if __name__ == "__main__":
    main()
