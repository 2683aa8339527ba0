"""The commands of README.md, run as they stand there, with what a plain installation brings."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
import task_files
from command_flags import assert_flags_exist
from plain_environment import plain_environment
from xla_flags import xla_flags

from bertjax import convert

# What makes a run of seconds out of one of hours.
_SMALL = [
    "--config.total_steps=4",
    "--config.phase_1.batch_size=8",
    "--config.phase_2.batch_size=8",
    "--config.eval_batch_size=8",
    "--config.intervals.eval_batches=1",
    "--config.optimizer.warmup_steps=1",
    "--config.model.size=tiny",
    "--config.model.compute_dtype=float32",
]


def _commands(readme: str) -> list[str]:
    """The lines of every block fenced with ```bash, comments cut off."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    lines = [line.split("   #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.fixture(scope="module")
def commands(repository) -> list[str]:
    return _commands((repository / "README.md").read_text(encoding="utf-8"))


def _run(command: str, folder: Path, repository: Path, extra=(), plain: bool = True) -> str:
    """Runs a README command from `folder`, beside which `launch` and `configs` are found.

    Args:
      plain: nothing can be imported but what setup.py always asks for.
    """
    for name in ("launch", "configs"):
        link = folder / name
        if not link.exists():
            link.symlink_to(repository / name)
    result = subprocess.run(
        ["bash", "-c", " ".join([command, *extra])],
        cwd=folder,
        env=os.environ
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        | {"XLA_FLAGS": xla_flags(1), "BERTJAX_VENV": sys.prefix}
        | (plain_environment(folder / "plain") if plain else {}),
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def test_every_command_is_known(commands):
    """So that a new command in the README gets its test here."""
    programs = [command.split()[1] for command in commands]
    known = {
        "launch/quickstart.sh",
        "launch/test.sh",
        "launch/prepare_corpus.py",
        "launch/pretrain.py",
        "launch/fill_mask.py",
        "launch/evaluate.py",
        "launch/convert.py",
        "launch/extract_features.py",
        *(f"launch/finetune_{task}.py" for task in ("glue", "squad", "swag", "ner", "table")),
        "launch/predict.py",
        "launch/compile_check.py",
        "launch/show_sharding.py",
        "tests/benchmarks/bfloat16.py",
        "tests/benchmarks/extract_features.py",
        "tests/benchmarks/tokenization.py",
        "tests/benchmarks/finetune.py",
        "tests/benchmarks/input_pipeline.py",
        "tests/benchmarks/train_step.py",
    }
    assert set(programs) == known


def test_every_flag_exists(commands, repository):
    """Each --flag and each --config.key of the README."""
    for command in commands:
        assert_flags_exist(command, repository / command.split()[1])


@pytest.mark.slow
def test_your_own_text_in_three_commands(commands, repository, tmp_path):
    prepare = next(c for c in commands if "my_text" in c)
    pretrain = next(c for c in commands if "pretrain_small" in c)
    fill_mask = next(c for c in commands if "fill_mask" in c)
    (tmp_path / "my_text").mkdir()
    documents = [
        f"The capital of country {n} is city {n}. It has {n * 7} houses. They are old. " * 3
        for n in range(300)
    ]
    (tmp_path / "my_text" / "a.txt").write_text("\n\n".join(documents), encoding="utf-8")

    assert "held" in _run(prepare, tmp_path, repository)
    assert "4 steps done" in _run(pretrain, tmp_path, repository, _SMALL)
    output = _run(fill_mask, tmp_path, repository)
    assert output.splitlines()[0] == "The capital of France is [MASK]."
    assert output.splitlines()[1].count("%") == 5

    (tmp_path / "sentences.txt").write_text("The capital of country 7.\n\nOld houses.\n")
    convert, fill_mask, extract, go_on, serve = _weights(commands)
    assert "read back: " in _run(convert, tmp_path, repository)
    assert _run(fill_mask, tmp_path, repository).splitlines()[1:] == output.splitlines()[1:]
    _run(extract, tmp_path, repository)
    table = pyarrow.parquet.read_table(tmp_path / "sentences.parquet")
    assert (table.num_rows, len(table["features"][0])) == (3, 128)
    assert "4 steps done" in _run(go_on, tmp_path, repository, _SMALL)
    assert "the artifact: " in _run(serve, tmp_path, repository)
    assert (tmp_path / "served" / "model.stablehlo").exists()


# What makes runs of seconds with the model of `tiny_run`.
_SMALL_TASK = [
    "--config.max_length=48",
    "--config.grid.batch_size=8",
    "--config.grid.learning_rate=1e-3",
    "--config.grid.epochs=1",
]


@pytest.mark.slow
def test_fine_tuning_commands(commands, repository, tiny_run, tmp_path):
    convert.run(str(tiny_run), f"hf:{tmp_path / 'my-bert'}")
    task_files.write_mrpc(tmp_path / "glue", rows=24)
    task_files.write_squad(tmp_path / "squad", "v2.0", paragraphs=8)
    task_files.write_swag(tmp_path / "swag", rows=24)
    task_files.write_conll(tmp_path / "conll2003", documents=3)
    task_files.write_reviews(tmp_path / "reviews", rows=24)
    (tmp_path / "pairs.txt").write_text("baa baa ||| moo\nwoof ||| woof woof\n")
    first = next(i for i, c in enumerate(commands) if "finetune_glue" in c)
    squad = ["--config.task.stride=16", "--config.task.max_query_length=4"]
    for command in commands[first : first + 5]:
        extra = _SMALL_TASK + (squad if "squad" in command else [])
        assert "chosen: batch8-rate0.001-" in _run(command, tmp_path, repository, extra), command
    predict, convert_command = commands[first + 5 : first + 7]
    _run(predict, tmp_path, repository)
    lines = (tmp_path / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["text_b"] for line in lines] == ["moo", "woof woof"]
    assert "read back: " in _run(convert_command, tmp_path, repository)
    trials = json.loads((tmp_path / "mrpc" / "results.json").read_text())["trials"]
    assert [trial["seed"] for trial in trials] == [0, 1, 2, 3, 4]


def test_a_pod_is_shown(commands, repository, tmp_path):
    show = next(c for c in commands if c.split()[1] == "launch/show_sharding.py")
    assert "optimizer state: 840.5 MiB" in _run(show, tmp_path, repository)


@pytest.mark.slow
@pytest.mark.needs("libtpu")
def test_a_pod_is_compiled_for(commands, repository, tmp_path):
    check = next(c for c in commands if c.split()[1] == "launch/compile_check.py")
    small = ["--config.model.size=tiny", "--config.phase_1.share=1", "--config.phase_2.share=0"]
    assert "1,000,000 steps: " in _run(check, tmp_path, repository, small, plain=False)
    assert (tmp_path / "base_16_v5e.json").exists() and (tmp_path / "base_16_v5e.png").exists()


def _weights(commands: list[str]) -> list[str]:
    """The commands of the section "Weights in and out"."""
    first = next(i for i, c in enumerate(commands) if "launch/convert.py" in c)
    return commands[first : first + 5]


@pytest.mark.slow
def test_quickstart_runs_and_reuses_what_is_there(commands, repository, tmp_path):
    if not (Path(sys.prefix) / ".bertjax-package").exists():
        pytest.skip("this environment was not made by launch/environment.sh")
    command = next(c for c in commands if "quickstart" in c)
    extra = [str(tmp_path / "out"), *_SMALL]
    first = _run(command, repository, repository, extra, plain=False)
    assert "4 steps done" in first
    assert "Where everything is" in first
    shards = sorted((tmp_path / "out" / "corpus" / "store").glob("*.bin"))
    assert shards
    made = [shard.stat().st_mtime_ns for shard in shards]
    again = _run(command, repository, repository, extra, plain=False)
    assert [shard.stat().st_mtime_ns for shard in shards] == made
    assert "going on from step 4" in again
