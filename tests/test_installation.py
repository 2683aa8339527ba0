"""setup.py, the constraints and the code's imports agree."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parent.parent
CONSTRAINTS = sorted((REPOSITORY / "constraints").glob("python*.txt"))
ACCELERATORS = ("tpu", "cuda")  # extras of jax itself, which the constraints pin

# Import names that are not the name of their distribution.
DISTRIBUTION = {
    "absl": "absl-py",
    "google": "google-cloud-storage",
    "tensorflow": "tensorflow-cpu",
    "orbax": "orbax-checkpoint",
    "sklearn": "scikit-learn",
}


def _setup_arguments() -> dict[str, ast.expr]:
    for node in ast.walk(ast.parse((REPOSITORY / "setup.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setup":
            return {keyword.arg: keyword.value for keyword in node.keywords}
    raise AssertionError("setup.py does not call setup()")


CORE = ast.literal_eval(_setup_arguments()["install_requires"])
EXTRAS = ast.literal_eval(_setup_arguments()["extras_require"])
PINNED_EXTRAS = [
    line for name, lines in EXTRAS.items() if name not in ACCELERATORS for line in lines
]


def _pins(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    pins = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines if line[:1] != "#"]
    assert all(pins), f"{path.name}: every line is a comment or name==version"
    return {canonicalize_name(pin[1]): pin[2] for pin in pins}


def test_a_constraints_file_for_each_supported_python():
    assert [path.name for path in CONSTRAINTS] == ["python3.11.txt", "python3.12.txt"]


@pytest.mark.parametrize("path", CONSTRAINTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("line", [*CORE, *PINNED_EXTRAS])
def test_constraints_pin_what_setup_asks_for(path, line):
    requirement = Requirement(line)
    version = _pins(path)[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(Version(version))


def test_constraints_pin_the_whole_closure():
    """Everything that our requirements bring in, as the installed packages declare it."""
    path = REPOSITORY / "constraints" / "python{}.{}.txt".format(*sys.version_info)
    if not path.exists():
        pytest.skip(f"no {path.name}")
    pins, seen = _pins(path), set()
    todo = [(Requirement(line).name, "") for line in [*CORE, *PINNED_EXTRAS]]
    while todo:
        name, extra = todo.pop()
        if (canonicalize_name(name), extra) in seen:
            continue
        seen.add((canonicalize_name(name), extra))
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra that is not installed here
        if Version(package.version).public != pins.get(canonicalize_name(name)):
            continue  # not the pinned version: its requirements say nothing about the pins
        for requirement in map(Requirement, package.requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                todo.extend((requirement.name, wanted) for wanted in ("", *requirement.extras))
    missing = {name for name, _ in seen} - pins.keys()
    # The libraries of a CUDA build of PyTorch differ by machine.
    assert {
        name for name in missing if not name.startswith(("nvidia-", "cuda-", "triton"))
    } == set()


def test_every_import_is_declared():
    declared = {canonicalize_name(Requirement(line).name) for line in [*CORE, *PINNED_EXTRAS]}
    imported = set()
    for path in (REPOSITORY / "bertjax").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.split(".")[0])
    outside = imported - sys.stdlib_module_names - {"bertjax"}
    undeclared = {m for m in outside if canonicalize_name(DISTRIBUTION.get(m, m)) not in declared}
    assert undeclared == set()


# Stands in for an environment's interpreter: notes how it is called, fails where told to.
STAND_IN = """#!/usr/bin/env bash
echo "$*" >>"$NOTES"
[[ "$*" == *version_info* ]] && echo 3.12
[[ "$*" == *"pip install"* && -n "${FAIL-}" ]] && exit 1
exit 0
"""


@pytest.fixture
def use_environment(tmp_path):
    """Calls the shell function of that name; gives its exit code and the installs it made."""
    folder, notes = tmp_path / "an environment", tmp_path / "notes"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(STAND_IN)
    (folder / "bin" / "python").chmod(0o755)
    script = 'set -euo pipefail; source "$0"; use_environment "$@"; echo "$PYTHON"'

    def call(*extras: str, **environment: str) -> tuple[int, list[str]]:
        notes.write_text("")
        result = subprocess.run(
            ["bash", "-c", script, REPOSITORY / "launch" / "environment.sh", *extras],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=os.environ | {"BERTJAX_VENV": folder.name, "NOTES": str(notes)} | environment,
        )
        if result.returncode == 0:
            assert result.stdout == f"{folder / 'bin' / 'python'}\n"
        return result.returncode, [
            line for line in notes.read_text().splitlines() if "pip install" in line
        ]

    return call


def test_environment_installs_once_with_the_tested_versions(use_environment):
    constraint = f"--constraint {REPOSITORY}/constraints/python3.12.txt"
    code, (install,) = use_environment("test", "peers")
    assert code == 0
    assert f"--editable {REPOSITORY}[test,peers] {constraint}" in install
    for extras in (["test", "peers"], ["peers"], []):
        assert use_environment(*extras) == (0, [])
    code, (install,) = use_environment("beam")
    assert f"--editable {REPOSITORY}[beam] {constraint}" in install


def test_environment_tries_again_after_a_failed_install(use_environment):
    code, installs = use_environment(FAIL="yes")
    assert (code, len(installs)) == (1, 1)
    code, (install,) = use_environment()
    assert code == 0
    assert f"--editable {REPOSITORY} --constraint" in install
