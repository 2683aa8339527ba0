"""launch/colab_tpu.ipynb: its form is valid, and all cells run with a small model on a CPU."""

import base64
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from IPython import display

from bertjax.base.errors import InputError
from bertjax.programs import fill_mask, notebook
from tests.helpers.checkout import REPOSITORY
from tests.helpers.command_flags import assert_flags_exist
from tests.helpers.glue_files import write_glue
from tests.helpers.tiny_run import tiny_config, write_text
from tests.helpers.xla_flags import xla_flags

NOTEBOOK = REPOSITORY / "launch" / "colab_tpu.ipynb"
PARAMETERS = "parameters"  # the id of the cell with all settings


@pytest.fixture(scope="module")
def content() -> dict:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def _source(cell: dict) -> str:
    return "".join(cell["source"])


def _code(content: dict) -> dict[str, str]:
    """The code cells by id, in order."""
    return {c["id"]: _source(c) for c in content["cells"] if c["cell_type"] == "code"}


def _settings(source: str) -> dict:
    """The variables that a cell of parameters sets."""
    names: dict = {}
    exec(source, names)
    return {name: value for name, value in names.items() if name.isupper()}


# ----------------------------------------------------------------------------- without running


def test_it_is_a_notebook_for_a_tpu_in_colab(content):
    """It follows the rules of nbformat 4.5, and has the metadata that Colab reads."""
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert content.keys() == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert content["metadata"]["kernelspec"] == {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    assert content["metadata"]["accelerator"] == "TPU"
    assert content["metadata"]["colab"]["gpuType"] == "V5E1"
    ids = [cell["id"] for cell in content["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in content["cells"]:
        assert re.fullmatch(r"[\w-]{1,64}", cell["id"])
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert cell.keys() == {"cell_type", "id", "metadata", "source"} | code
        assert cell["cell_type"] in ("code", "markdown")
        assert _source(cell).strip()
        # As in notebooks written by programs, every line except the last has its end.
        assert cell["source"] == _source(cell).splitlines(keepends=True)


def test_nothing_of_a_run_is_in_it(content):
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


def test_every_code_cell_has_its_text(content):
    kinds = [cell["cell_type"] for cell in content["cells"]]
    assert kinds[0] == "markdown"
    assert content["cells"][kinds.index("code")]["id"] == PARAMETERS
    texts = [_source(cell) for cell in content["cells"] if cell["cell_type"] == "markdown"]
    assert [text for text in texts if len(text) > 800] == []


def test_it_installs_before_it_looks_for_the_device(content):
    """It runs as it stands: what it cannot know, it asks for."""
    code = _code(content)
    assert list(code)[:3] == [PARAMETERS, "install", "device"]
    assert _settings(code[PARAMETERS])["REPOSITORY"] == ""
    clone, enter = (code["install"].index(line) for line in ("git clone", "%cd {CHECKOUT}"))
    assert code["install"].index("REPOSITORY or input(") < clone < enter
    assert enter < code["install"].index("pip install")


def _commands(content: dict) -> list[str]:
    """All commands of this project, one on each line, with the settings filled in."""
    code = _code(content)
    settings = _settings(code.pop(PARAMETERS))
    commands = []
    for source in code.values():
        filled = re.sub(
            r"\{([A-Z][\w\[\]]*)\}",
            lambda found: str(eval(found[1], dict(settings))),
            source.replace("\\\n", " "),
        )
        commands += re.findall(r"\b(?:launch|tests/benchmarks)/\w+\.py .*", filled)
    return commands


def test_every_flag_exists(content):
    """Each program, --flag and --config.key exists, with the settings of the notebook."""
    commands = _commands(content)
    assert len(commands) == 9
    for command in commands:
        assert not re.search(r"[{}]", command), f"{command}: a setting that there is not"
        assert_flags_exist(command, REPOSITORY / command.split()[0])


# ----------------------------------------------------------------------------- the helpers


def test_the_kernel_needs_nothing_before_the_installation():
    """The kernel began before the installation, and never uses the TPU."""
    heavy = "{'jax', 'numpy', 'IPython'}"
    program = f"import sys, bertjax.programs.notebook; print({heavy} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("set()\n", "")


def test_a_cpu_is_called_one(capsys, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    notebook.check_device()
    output = capsys.readouterr().out
    assert output.startswith("CPU: JAX computes on 3 x cpu\n")
    assert "Runtime, Change runtime type, Hardware accelerator v5e-1 TPU" in output


@pytest.mark.parametrize("kind", ["TPU v5 lite", "NVIDIA H100"])
def test_other_devices_are_called_by_their_names(kind, capsys, monkeypatch):
    platform = kind.split()[0].lower()
    monkeypatch.setattr(notebook, "_QUESTION", f"print(1, {platform!r}, {kind!r})")
    notebook.check_device()
    assert capsys.readouterr().out == f"{platform.upper()}: JAX computes on 1 x {kind}\n"


def test_no_device(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "nonesuch")
    with pytest.raises(InputError, match="JAX does not start: .*nonesuch"):
        notebook.check_device()


# Prints and draws, and ends by itself, when it is stopped, or with an error.
_PROGRAM = """
import pathlib, signal, sys, time
folder, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
for number in range(25):
    print("line", number)
(folder / "loss.png").write_bytes(b"picture 1")
print("drawn")
while mode == "done" and not (folder / "seen").exists():
    time.sleep(0.01)
(folder / "loss.png").write_bytes(b"picture 2")
print("drawn again", file=sys.stderr)
while mode == "wait" and not stopped:
    time.sleep(0.01)
print("stopped", len(stopped))
sys.exit({"done": 0, "wait": 75, "fail": 2}[mode])
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A function from a mode to the arguments of `run_with_curve`, and the displayed pictures."""
    shown: list = []

    def show(image: display.Image) -> None:
        shown.append(image.data)
        (tmp_path / "seen").touch()

    monkeypatch.setattr(display, "display", show)
    monkeypatch.setattr(display, "clear_output", lambda wait: shown.append("cleared"))
    (tmp_path / "program.py").write_text(_PROGRAM)

    def arguments(mode: str) -> tuple[str, Path]:
        command = f"{sys.executable} '{tmp_path / 'program.py'}' '{tmp_path}' {mode}"
        return command, tmp_path / "loss.png"

    return arguments, shown


def test_lines_and_pictures_are_shown_as_they_come(program, capsys):
    """The program continues only when its first picture is displayed."""
    arguments, shown = program
    notebook.run_with_curve(*arguments("done"))
    assert [each for each in shown if each != "cleared"][0] == b"picture 1"
    assert shown[-2:] == ["cleared", b"picture 2"]
    last = capsys.readouterr().out.splitlines()[-20:]
    assert last == [*(f"line {n}" for n in range(8, 25)), "drawn", "drawn again", "stopped 0"]


def test_a_stopped_cell_stops_the_program_and_waits_for_it(program):
    """The test sends a real signal, like the Stop button."""
    arguments, _ = program
    command, curve = arguments("wait")
    code = (
        "import signal, sys\n"
        "from bertjax.programs import notebook\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # as in a kernel
        "notebook.run_with_curve(*sys.argv[1:])\n"
        "print('the next cell')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, command, curve], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if line.strip() == "drawn again":
            break
    process.send_signal(signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait() == 0
    assert rest.endswith("stopped 1\nthe next cell\n")


def test_a_program_that_fails_stops_the_notebook(program):
    arguments, _ = program
    with pytest.raises(InputError, match="ended with code 2: see its last lines"):
        notebook.run_with_curve(*arguments("fail"))


# ----------------------------------------------------------------------------- all of it

# Runs code cells like a notebook's kernel, with their real programs. It ends if a cell raises or a
# program fails.
_RUNNER = """
import json, sys
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

class Publisher(DisplayPublisher):
    def publish(self, data, *args, **kwargs):
        pictures.append([name, data["image/png"]])

class Shell(InteractiveShell):
    def system(self, command):
        self.system_piped(command)
        if self.user_ns["_exit_code"]:
            raise RuntimeError(f"code {self.user_ns['_exit_code']}: {command}")

cells, pictures = json.load(open(sys.argv[1])), []
Shell.display_pub_class = Publisher
shell = Shell.instance(colors="nocolor")
for name, source in cells.items():
    print(f"\\n=== {name}", flush=True)
    shell.run_cell(source).raise_error()
json.dump(pictures, open(sys.argv[2], "w"))
"""

# Python reads this at its start: all programs of the notebook print every step, so that every curve
# is shown. They do without PyTorch, which each would import for seconds, and Transformers.
_SITECUSTOMIZE = """
import sys
from bertjax.base import progress
progress._SECONDS_BETWEEN_LINES = 0.0
sys.modules |= dict.fromkeys(("torch", "transformers"))
"""

_PNG = b"\x89PNG\r\n\x1a\n"


def _small_settings(folder: Path) -> dict:
    """Settings for a minute: the language of `tiny_run.py`, and a model that learns it."""
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("bertjax", "configs", "launch", "tests"):
        (checkout / name).symlink_to(REPOSITORY / name)
    write_text(folder / "text.txt", documents=320)
    write_glue(folder / "glue", rows=96)
    config = tiny_config(
        "",
        total_steps=160,
        optimizer={"warmup_steps": 16},
        intervals={"log": 10, "evaluate": 40, "checkpoint": 50, "eval_batches": 4},
    )
    (folder / "small.py").write_text(
        f"import ml_collections\n\n\ndef get_config():\n"
        f"    return ml_collections.ConfigDict({config!r})\n"
    )
    made = folder / "made"
    return {
        "REPOSITORY": "https://invalid.invalid/",  # is there already
        "CHECKOUT": str(checkout),
        "FOLDER": str(made),
        "SOURCE": f"text:{folder}/text.txt",
        "PIECES": 300,
        "TIME": "10min",  # not used: the config below has its steps
        "PRETRAINING": f"--config={folder}/small.py",
        "BLANKS": ["Quack [MASK] quack.", "Moo moo moo [MASK].", "[MASK] baa baa."],
        "WORD": "moo",
        "SENTENCES": ["Moo moo.", "Baa moo, baa.", "Baa baa moo baa.", "Quack moo quack quack."],
        "WEIGHTS": str(made / "run"),
        "TASK": "SST-2",
        "DATA": str(folder / "glue"),
        "FINE_TUNING": "--config.grid.batch_size=8 --config.grid.learning_rate=3e-3"
        " --config.grid.epochs=4 --config.max_length=32 --config.buckets=1",
        "REVIEWS": ["baa baa baa", "woof woof woof woof"],
        "TIMED": "--size=tiny --steps=1 --sequences=1",
        "POD": "--config=configs/pretrain_base_16.py --config.layout=fsdp",
    }


@pytest.mark.slow
def test_every_cell(content, tmp_path):
    code, settings = _code(content), _small_settings(tmp_path)
    assert settings.keys() == _settings(code[PARAMETERS]).keys()
    code[PARAMETERS] = "".join(f"{name} = {value!r}\n" for name, value in settings.items())
    (tmp_path / "cells.json").write_text(json.dumps(code))
    (tmp_path / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    result = subprocess.run(
        [sys.executable, "-c", _RUNNER, tmp_path / "cells.json", tmp_path / "pictures.json"],
        cwd=tmp_path,
        env=os.environ
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        | {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
        | {"XLA_FLAGS": xla_flags(1), "IPYTHONDIR": str(tmp_path / "i")},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    output = re.sub(r"\r|\x1b\[[\d;]*[mK]", "", result.stdout)  # without colors
    pieces = re.split(r"^=== (.+)$", output, flags=re.MULTILINE)
    printed = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    assert list(printed) == list(code)
    made = tmp_path / "made"

    assert "CPU: JAX computes on 1 x cpu" in printed["device"]
    assert printed["install"].strip() == settings["CHECKOUT"]  # it is there
    assert re.search(r"^  train: .* 0\.0000% unknown$", printed["corpus"], re.MULTILINE)
    assert (made / "corpus/store/manifest.json").exists()
    assert f"{made}/run: 160 steps done" in printed["pretraining"]

    # The curve was drawn after each of four evaluations and at the end.
    pictures = json.loads((tmp_path / "pictures.json").read_text())
    curves = [base64.b64decode(picture) for name, picture in pictures if name == "pretraining"]
    assert len(set(curves)) >= 4 and all(picture.startswith(_PNG) for picture in curves)
    assert curves[-1] == (made / "run/loss.png").read_bytes()

    # Blanks: the program fills them like the function, and correctly.
    lines = [line.split() for line in printed["blanks"].splitlines() if line.startswith("  ")]
    assert [line[0] for line in lines] == ["quack", "moo", "baa"]

    # One word: its vectors are similar if its neighbours are, and the picture exists.
    rows = re.findall(r"^((?: *-?\d\.\d\d){4})  (.+)$", printed["words"], re.MULTILINE)
    assert [text for _, text in rows] == settings["SENTENCES"]
    cosines = [[float(cosine) for cosine in row.split()] for row, _ in rows]
    assert [cosines[i][i] for i in range(4)] == [1, 1, 1, 1]
    assert cosines[1][2] == max(cosines[i][j] for i in range(4) for j in range(i))
    assert (made / "word.png").read_bytes().startswith(_PNG)

    # A task: it was fine-tuned from the run's weights, and predicts new text.
    results = json.loads((made / "SST-2/results.json").read_text())
    assert "chosen: batch8-rate0.003-" in printed["fine-tuning"]
    assert results["dev"]["dev"]["accuracy"] > 90
    answers = [json.loads(x) for x in printed["prediction"].splitlines() if x.startswith("{")]
    assert [answer["label"] for answer in answers] == ["positive", "negative"]

    # The export: it is packed, and the model is the same.
    assert "read back: " in printed["export"]
    (tmp_path / "elsewhere").mkdir()
    unpack = ["tar", "-xzf", made / "my-bert.tar.gz", "-C", tmp_path / "elsewhere"]
    subprocess.run(unpack, check=True)
    guesses = fill_mask.run(f"hf:{tmp_path}/elsewhere/my-bert", settings["BLANKS"], top=5)
    shown = [f"{guess.token} {guess.probability:.1%}" for guess in guesses[0][0]]
    assert " ".join(lines[0]) == " ".join(shown)

    # The timed step: on a CPU, the kernels' row is computed by einsum and drops the same.
    assert re.search(r"^\| base_16 +\| 128 +\| 1 +\| einsum +\| \d", printed["step"], re.MULTILINE)
    timed = json.loads((made / "tpu_step.json").read_text())["rows"]
    assert [(row["config"], row["length"], row["attention"]) for row in timed] == [
        ("base_16", 512, "kernel"),
        ("modern_base_16", 1024, "kernel"),
        ("base_16", 512, "einsum"),
        ("base_16", 128, "einsum"),
    ]
    assert timed[0]["loss"] == timed[2]["loss"] == pytest.approx(math.log(2 * 30522), abs=0.5)

    # The pod: a device has an eighth of the token embeddings, also in the picture.
    assert "layout 'fsdp' on 8 x cpu: data=8, model=1" in printed["pod"]
    assert re.search(r"embeddings/token .* -, data +11,747,328$", printed["pod"], re.MULTILINE)
    assert "│ CPU 0 │ CPU 1 │ CPU 2 │ CPU 3 │ CPU 4 │ CPU 5 │ CPU 6 │ CPU 7 │" in printed["pod"]
