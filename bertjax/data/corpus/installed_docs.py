"""The source `installed-docs`: the English documentation that every installation contains.

Each source file of the standard library and of the installed packages is a document: its
docstrings. Each topic of `help()` is one, too. No file is imported.
"""

import ast
import hashlib
import inspect
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from bertjax.base.files import atomic_write
from bertjax.base.progress import Progress
from bertjax.data.corpus.workers import worker_pool

_LEAST_WORDS = 8
_NOT_DOCUMENTATION = {"test", "tests", "testing", "idlelib", "lib2to3", "__pycache__"}


def write_installed_docs(path: str | os.PathLike, workers: int) -> None:
    """Writes this installation's documentation for `text:` sources: always the same bytes."""
    seen: set[bytes] = set()
    skipped = 0
    files = _python_files()
    with (
        atomic_write(path, "w") as output,
        worker_pool(workers) as pool,
        Progress("reading installed documentation", len(files), " files") as progress,
    ):
        for documents in pool.map(_documents_of_file, files, chunksize=64):
            skipped += documents is None
            for document in documents or ():
                digest = hashlib.blake2b(document.encode(), digest_size=16).digest()
                if digest not in seen:
                    seen.add(digest)
                    output.write(f"{document}\n\n")
            note = f"{len(seen):,} documents; skipped {skipped} files: unreadable or not Python 3"
            progress.update(1, note)


def _python_files() -> list[Path]:
    """Source files with documentation: the standard library, then the packages, sorted."""
    paths = sysconfig.get_paths()
    packages = dict.fromkeys([paths["purelib"], paths["platlib"]])
    files = []
    for root in dict.fromkeys([paths["stdlib"], *packages]):
        skipped = _NOT_DOCUMENTATION | ({"site-packages"} if root not in packages else set())
        for folder, folders, names in os.walk(root):
            # os.walk visits what is left in this list, in its order.
            folders[:] = sorted(set(folders) - skipped)
            files += [Path(folder, name) for name in sorted(names) if name.endswith(".py")]
    return files


def _documents_of_file(path: Path) -> list[str] | None:
    """The documents of one source file; None if it cannot be read or is not Python 3."""
    try:
        source = path.read_bytes()
    except OSError:  # an installation may hold links whose targets are gone
        return None
    if b'"""' not in source and b"'''" not in source:
        return []
    try:
        with warnings.catch_warnings():  # other packages may have invalid escapes
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            if path.parts[-2:] == ("pydoc_data", "topics.py"):
                texts = _topics(tree)
            else:
                texts = [inspect.cleandoc(text) for text in _docstrings(tree)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # ast.parse documents these
        return None
    documents = ("\n".join(_prose(text)) for text in texts)
    return [document for document in documents if len(document.split()) >= _LEAST_WORDS]


def _docstrings(tree: ast.Module) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, documented) and (text := ast.get_docstring(node, clean=False)):
            # Escapes can make lone surrogates, which UTF-8 cannot encode.
            yield text.encode("utf-8", "replace").decode()
        stack += [
            child
            for child in reversed(getattr(node, "body", []))
            if isinstance(child, (*documented, ast.If, ast.Try))
        ]


def _topics(tree: ast.Module) -> list[str]:
    """The texts of pydoc_data/topics.py, which holds them in one dict."""
    values = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    return list(ast.literal_eval(values[0]).values())


_ROLE = re.compile(r":[\w:+-]+:`~?([^`<]*?)(?: *<[^`>]*>)?`")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d+[.)]|:\w[^:]*:)\s+")


def _prose(text: str) -> Iterator[str]:
    """The prose of reStructuredText or Markdown, each paragraph on one line."""
    literal = fenced = False
    for block in re.split(r"\n\s*\n", text.expandtabs()):
        lines = block.strip("\n").split("\n")
        fences = sum(line.lstrip().startswith("```") for line in lines)
        was_fenced, fenced = fenced, fenced ^ bool(fences % 2)
        indented = lines[0].startswith(" ")
        literal = literal and indented
        if literal or was_fenced or fences or lines[0].lstrip().startswith((">>>", "$ ", ".. ")):
            continue
        literal = lines[-1].rstrip().endswith("::")
        for paragraph in _paragraphs(lines):
            if _is_prose(paragraph):
                yield paragraph


def _paragraphs(lines: list[str]) -> Iterator[str]:
    """Joins the lines of a block; list items, described names and headings stay separate."""
    joined: list[str] = []
    last_indent = 0
    for line in lines:
        indent = len(line) - len(line.lstrip())
        item = _ITEM.match(line)
        underline = not re.search(r"\w", line)
        if underline and joined:
            joined.pop()
        if joined and (underline or item or indent < last_indent or joined[-1].endswith(":")):
            yield " ".join(joined)
            joined = []
        line = _ITEM.sub("", line, count=1) if item else line
        line = _ROLE.sub(r"\1", line).replace("`", "").replace("**", "").strip()
        if line and not underline:
            joined.append(line)
        last_indent = indent
    if joined:
        yield re.sub(r"::$", ":", " ".join(joined))


def _is_prose(paragraph: str) -> bool:
    words = paragraph.split()
    letters = sum(map(str.isalpha, paragraph)) + len(words) - 1
    return len(words) >= 3 and letters >= 0.85 * len(paragraph) and ">>>" not in paragraph
