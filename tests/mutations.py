"""Makes small bugs in a file, one at a time, and reports those that no test notices.

  python tests/mutations.py bertjax/data/examples/masking.py [--tests=tests/data/examples] \\
      [--number=20] [--seed=0] [--output=FILE.json]

Each bug is made alone, in a copy of the checkout, where the tests of the file's folder run until
one fails; the tests must pass without a bug first. The same seed makes the same bugs. Look at each
bug that no test noticed: a test is missing, the code is not needed, or the bug changes nothing.
"""

import argparse
import ast
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]

_PAIRS = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq)),
    *((ast.Is, ast.IsNot), (ast.In, ast.NotIn), (ast.And, ast.Or)),
    *((ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.Mult, ast.Div)),
    *(("min", "max"), ("any", "all")),
)
_OTHER = {b: a for a, b in _PAIRS} | {a: b for a, b in _PAIRS}
_BOUNDS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)  # another bound is not the negated comparison


class Mutation(NamedTuple):
    """A bug: the kind of change, its line, the old and the new code there, and the whole file."""

    kind: str
    line: int
    old: str
    new: str
    source: str


def mutations(source: str) -> list[Mutation]:
    """Every bug that the operators make in a file with this source, in the order of its lines."""
    text = source.encode()  # the columns of `ast` count bytes
    starts = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
    found = []
    for node in _code(ast.parse(source)):
        for kind, old, new in _changes(node):
            start = starts[old.lineno - 1] + old.col_offset
            end = starts[old.end_lineno - 1] + old.end_col_offset
            code = ast.unparse(ast.fix_missing_locations(new))
            put = f"({code})" if isinstance(new, ast.expr) else code
            whole = text[:start] + put.encode() + text[end:]
            found.append(Mutation(kind, old.lineno, text[start:end].decode(), code, whole.decode()))
    return sorted(found, key=lambda mutation: mutation.line)


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all nodes below it, without annotations and f-strings, which are messages."""
    yield node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            said = field in ("annotation", "returns") or isinstance(child, ast.JoinedStr)
            if isinstance(child, ast.AST) and not said:
                yield from _code(child)


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    return type(node)(**dict(ast.iter_fields(node)) | fields)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """The operators: kind, old node, new node."""
    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                other = [*ops[:index], _OTHER[type(op)](), *ops[index + 1 :]]
                yield "comparison", node, _with(node, ops=other)
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in _OTHER:
            yield "operator", node, _with(node, op=_OTHER[type(op)]())
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield "operator dropped", node, operand
        case ast.Name(id=name, ctx=ast.Load()) if name in _OTHER:
            yield "function", node, ast.Name(_OTHER[name])
        case ast.Constant(value=bool(value)):
            yield "constant", node, ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant", node, ast.Constant(value + 1)
            yield "constant", node, ast.Constant(value - 1)
        case ast.Constant(value=float(value)):
            yield "constant", node, ast.Constant(2 * value or 1.0)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield from _negated(test)
        case ast.comprehension(ifs=tests):
            for test in tests:
                yield from _negated(test)
        case ast.Call(args=arguments, keywords=keywords):
            for index, (one, two) in enumerate(itertools.pairwise(arguments)):
                if not isinstance(two, ast.Starred) and ast.dump(one) != ast.dump(two):
                    swapped = [*arguments[:index], two, one, *arguments[index + 2 :]]
                    yield "arguments swapped", node, _with(node, args=swapped)
            for dropped in keywords:
                rest = [keyword for keyword in keywords if keyword is not dropped]
                yield "keyword dropped", node, _with(node, keywords=rest)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "result dropped", node, ast.Return(None)
        case (
            ast.Expr(value=ast.Call())
            | ast.Assign(targets=[ast.Attribute() | ast.Subscript()])
            | (ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Continue() | ast.Break())
        ):
            yield "statement dropped", node, ast.Pass()


def _negated(test: ast.expr) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """The negated condition, unless another operator makes the same bug."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            return
        case ast.Compare(ops=[op]) if not isinstance(op, _BOUNDS):
            return
    yield "condition negated", test, ast.UnaryOp(ast.Not(), test)


def folder_of_tests(checkout: Path, file: str) -> str:
    """The folder of tests: of bertjax/X/Y, tests/X/Y or tests/X; of launch/, tests/launch."""
    first, *rest = Path(file).parts
    folders = rest[:-1] if first == "bertjax" else [first]
    while folders and not (checkout / "tests" / Path(*folders)).is_dir():
        folders.pop()
    if not folders:
        sys.exit(f"there is no folder of tests for {file}: name its tests with --tests=PATH")
    return Path("tests", *folders).as_posix()


def try_mutations(
    checkout: Path, file: str, tests: str, drawn: Sequence[Mutation]
) -> Iterator[tuple[str | None, float]]:
    """Yields for each bug the first test that failed, or None; and the seconds that it took."""
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = _copied(checkout, Path(folder))
        near = f"test_{Path(file).stem}"
        paths = sorted((copy / tests).rglob("test_*.py")) or [copy / tests]
        paths.sort(key=lambda path: path.stem != near)  # its own tests first
        start = time.monotonic()
        failed, output = _first_failure(copy, paths)
        if failed:
            sys.exit(f"the tests must pass without a bug:\n{output[-3000:]}")
        limit = 60 + 5 * (time.monotonic() - start)
        whole = (copy / file).read_bytes()
        for mutation in drawn:
            start = time.monotonic()
            (copy / file).write_text(mutation.source, encoding="utf-8")
            failed, _ = _first_failure(copy, paths, limit)
            (copy / file).write_bytes(whole)
            yield failed, round(time.monotonic() - start, 1)


def _copied(checkout: Path, folder: Path) -> Path:
    """Copies all files that git does not ignore, with the shared data next to them."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True)
    copy = folder / "main"
    for name in filter(None, names.stdout.split("\0")):
        if (checkout / name).is_file():  # git also lists deleted files
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, copy / name, follow_symlinks=False)
    if (checkout.parent / "shared").exists():
        (folder / "shared").symlink_to(checkout.parent / "shared")
    return copy


def _first_failure(copy: Path, paths: Sequence[Path], limit: float | None = None):
    """The first test that fails, or how pytest ended, or None; and pytest's output."""
    # Compiled files would be used again for a bug of the same length within the same second.
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "CI": ""}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *paths]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    with subprocess.Popen(
        command, cwd=copy, env=environment, start_new_session=True, **pipes
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return f"the limit of {limit:.0f} s", ""
        finally:  # with the processes that the tests started
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    failed = re.findall(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", output, re.MULTILINE)
    ended = f"pytest's exit code {process.returncode}" if process.returncode else None
    return (failed[0] if failed else ended), output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "file", help="path in the checkout, such as bertjax/data/examples/masking.py"
    )
    parser.add_argument("--tests", metavar="PATH", help="a folder or a file of tests")
    parser.add_argument("--number", type=int, default=20, help="of bugs that are drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="gets what was found")
    options = parser.parse_args()
    file, tests = options.file, options.tests or folder_of_tests(REPOSITORY, options.file)
    made = mutations((REPOSITORY / file).read_text(encoding="utf-8"))
    indices = random.Random(options.seed).sample(range(len(made)), min(options.number, len(made)))
    drawn = [made[index] for index in sorted(indices)]
    found = []
    for mutation, (noticed, seconds) in zip(
        drawn, try_mutations(REPOSITORY, file, tests, drawn), strict=True
    ):
        old, new = (" ".join(code.split()) for code in (mutation.old, mutation.new))
        status = f"noticed by {noticed} in {seconds:.0f} s" if noticed else "NOT NOTICED"
        print(f"{file}:{mutation.line}: {mutation.kind}: {old} -> {new}: {status}", flush=True)
        place = {"file": file, "line": mutation.line, "kind": mutation.kind}
        found.append(place | {"old": old, "new": new, "noticed_by": noticed, "seconds": seconds})
    missed = sum(each["noticed_by"] is None for each in found)
    print(f"{len(found)} of {len(made)} bugs, {missed} of them not noticed")
    if options.output:
        options.output.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
