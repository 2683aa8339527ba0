"""Processes that can import only the packages that setup.py always requires."""

import ast
import functools
import importlib.metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers.checkout import REPOSITORY


def _setup_arguments() -> dict[str, ast.expr]:
    for node in ast.walk(ast.parse((REPOSITORY / "setup.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setup":
            return {keyword.arg: keyword.value for keyword in node.keywords}
    raise AssertionError("setup.py does not call setup()")


# Lines such as "numpy>=2.4" from setup.py; the package need not be installed.
CORE: list[str] = ast.literal_eval(_setup_arguments()["install_requires"])
EXTRAS: dict[str, list[str]] = ast.literal_eval(_setup_arguments()["extras_require"])

# Python imports it when it starts, before any program.
_SITECUSTOMIZE = """
import os, sys
from importlib.machinery import PathFinder

_REFUSED = set(os.environ["REFUSED_MODULES"].split(","))


class Plain(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name in _REFUSED else super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Plain
"""


def plain_environment(folder: Path) -> dict[str, str]:
    """The environment variables of a process; writes a file to `folder` that Python reads first."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    return {"PYTHONPATH": f"{folder}:{REPOSITORY}", "REFUSED_MODULES": ",".join(_refused())}


@functools.cache
def _refused() -> list[str]:
    """The modules of installed packages that a plain installation does not include."""
    asked = {"bertjax"} | _brought_by(CORE)
    packages = importlib.metadata.packages_distributions()
    return sorted(
        module
        for module, owners in packages.items()
        if not asked & {canonicalize_name(owner) for owner in owners}
    )


def _brought_by(lines: list[str]) -> set[str]:
    """The packages that these lines require, with their own requirements."""
    found: set[tuple[str, str]] = set()  # package, and its extra
    todo = [(line, "") for line in lines]
    while todo:
        line, of_extra = todo.pop()
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": of_extra}):
            continue
        for extra in ("", *requirement.extras):
            package = canonicalize_name(requirement.name)
            if (package, extra) not in found:
                found.add((package, extra))
                todo.extend((each, extra) for each in importlib.metadata.requires(package) or [])
    return {package for package, _ in found}
