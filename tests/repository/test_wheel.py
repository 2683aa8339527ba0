"""The wheel, installed away from the checkout: its modules, the command, the configs by name."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from tests.helpers.patience import PATIENCE
from tests.helpers.plain_environment import plain_environment
from tests.helpers.tiny_run import write_text

pytestmark = pytest.mark.slow

_ENVIRONMENT = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": ""}  # without the checkout


@pytest.fixture(scope="module")
def installed(tmp_path_factory, repository) -> Path:
    """A folder with a new environment that has the wheel, and the packages of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("bertjax", "configs", "launch"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(repository / name, source / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(repository / name, source)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source]
    subprocess.run([*pip, *build], env=_ENVIRONMENT, check=True, timeout=PATIENCE)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    install = ["--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run([*pip, *install], env=_ENVIRONMENT, check=True, timeout=PATIENCE)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "theirs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shutil.rmtree(source)
    write_text(folder / "text.txt", documents=120)
    return folder


def said(folder: Path, command: str) -> str:
    """What `bertjax COMMAND` prints, in the folder, with what setup.py requires."""
    done = subprocess.run(
        [folder / "venv" / "bin" / "bertjax", *command.split()],
        cwd=folder,
        env=_ENVIRONMENT | plain_environment(folder / "plain") | {"PYTHONPATH": f"{folder}/plain"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_is_in_it(installed, repository):
    (package,) = installed.glob("venv/lib/python*/site-packages/bertjax")
    modules = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    folders = (repository / name for name in ("bertjax", "configs", "launch"))
    files = (path.relative_to(repository) for each in folders for path in each.rglob("*.py"))
    assert modules == {path.as_posix().removeprefix("bertjax/") for path in files}


def test_the_programs_are_listed(installed, repository):
    lines = said(installed, "").splitlines()
    listed = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(listed) == sorted(file.stem for file in (repository / "launch").glob("*.py"))
    assert listed[:5] == ["prepare_corpus", "pretrain", "finetune", "predict", "convert"]
    assert said(installed, "--help").splitlines() == lines


def test_from_text_to_an_exported_model(installed):
    corpus = "--source=text:text.txt --learn_vocabulary=300 --held_out=0.1 --workers=1"
    said(installed, f"prepare_corpus {corpus} --output=corpus")
    small = (
        "--config.model.num_hidden_layers=1 --config.model.hidden_size=64 --config.total_steps=6"
        " --config.optimizer.warmup_steps=2 --config.optimizer.decay_steps=2"
        " --config.intervals.eval_batches=1"
    )
    told = said(
        installed, f"pretrain --config=modern_tiny {small} --config.corpus=corpus --workdir=run"
    )
    assert "6 steps done" in told
    assert (installed / "run" / "config.json").exists()
    said(installed, "convert --from=run --to=hf:exported")
    assert (installed / "exported" / "model.safetensors").exists()


def test_a_study_finds_its_configs(installed):
    """Its file and those that it names are in the package."""
    flags = "--corpus=corpus --workdir=ladder --scale=16 --dry_run"  # which measures nothing
    told = said(installed, f"study --study=ladder {flags}")
    assert "ladder-" in told
