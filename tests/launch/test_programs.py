"""The main path of every program of launch/, with only the packages that setup.py requires."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.helpers import task_files
from tests.helpers.conllu import conllu
from tests.helpers.plain_environment import plain_environment
from tests.helpers.tiny_run import REPOSITORY, tiny_config, write_text
from tests.helpers.xla_flags import xla_flags

pytestmark = pytest.mark.slow

# Runs one program after another like `python launch/PROGRAM.py ...`, but in one process, because
# most of the time goes into imports. Prints a line of JSON for each: its exit code and its last
# line.
_RUNNER = """
import contextlib, io, json, runpy, sys
from absl import app, flags, logging  # with flags of their own
for command in json.load(sys.stdin):
    known, sys.argv, output = set(flags.FLAGS), command, io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            runpy.run_path(command[0], run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
    for name in set(flags.FLAGS) - known:
        delattr(flags.FLAGS, name)
    if "jax" in sys.modules:  # it is in use, and only before that a process can join others
        from bertjax.training.sharding import hosts
        hosts.join_processes = lambda: None
    print(json.dumps([code, output.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def said(
    tiny_run, left_to_right_run, fine_tuned, tmp_path_factory, repository
) -> dict[str, tuple[int, str]]:
    """Maps each command to its exit code and its output."""
    folder = tmp_path_factory.mktemp("programs")
    write_text(folder / "text.txt")
    (folder / "lines.txt").write_text("Quack quack.\nMoo moo moo.\n")
    config = tiny_config("", total_steps=4, intervals={"evaluate": 4, "checkpoint": 4})
    (folder / "tiny.py").write_text(
        f"import ml_collections\n\n\ndef get_config():\n"
        f"    return ml_collections.ConfigDict({config!r})\n"
    )
    task_files.write_mrpc(folder / "glue", rows=24)
    task_files.write_squad(folder / "squad", "v2.0", paragraphs=4)
    task_files.write_swag(folder / "swag", rows=24)
    task_files.write_conll(folder / "conll2003", documents=3)
    task_files.write_reviews(folder / "reviews", rows=24)
    task_files.write_minimal_pairs(folder / "minimal.jsonl")
    commands = [
        "prepare_corpus --source=text:text.txt --learn_vocabulary=300 --held_out=0.1 --workers=1"
        " --output=corpus",
        "pretrain --config=tiny.py --config.corpus=corpus --workdir=run",
        "evaluate --model=run --batches=1",
        "fill_mask --model=run --text=[MASK]",
        "score --model=run --data=minimal.jsonl --most=2 --output=scores.json",
        "probe --model=run --data=trees --layer=1 --rank=4 --output=probe.json",
        "scaling --runs=evaluated --output=law.json",
        f"complete --model={left_to_right_run} --text=moo --tokens=3",
        "convert --from=run --to=hf:exported",
        "convert --from=run --to=stablehlo:served",
        "extract_features --model=hf:exported --input=lines.txt --output=vectors.parquet",
        "compare_words --model=run --word=moo --text=Moo --text=moo --output=word.png",
        "watch run --text=moo",
        *(_fine_tuning(task, tiny_run) for task in ("glue", "squad", "swag", "ner", "table")),
        "predict --model=glue-run --input=pairs.txt --output=pairs.jsonl",
        "ensemble --runs=one,other --workdir=together",
        f"study --study={repository}/configs/studies/modern_walk.py --corpus=corpus"
        " --scale=16 --workdir=walk --dry_run",
        "show_sharding --config=tiny.py",
        f"compile_check --config={repository}/configs/pretrain_base_16.py --topology=v5e:4x4",
    ]
    (folder / "pairs.txt").write_text("baa baa ||| moo\n")
    (folder / "trees").mkdir()
    for split in ("train", "dev", "test"):
        sentence = conllu(["moo", "quack", "baa", "."], [2, 0, 2, 2], punctuation=[3])
        (folder / "trees" / f"{split}.conllu").write_text(4 * sentence)
    shutil.copytree(tiny_run, folder / "evaluated")
    (folder / "evaluated" / "masked_text.json").write_text('{"step": 160, "mlm_loss": 1.25}')
    for name in ("one", "other"):
        shutil.copytree(fine_tuned("MRPC")[1], folder / name)
    lines = [command.split() for command in commands]
    process = subprocess.run(
        [sys.executable, "-c", _RUNNER],
        input=json.dumps(
            [[f"{repository}/launch/{program}.py", *rest] for program, *rest in lines]
        ),
        cwd=folder,
        env=os.environ | {"XLA_FLAGS": xla_flags(1)} | plain_environment(folder / "plain"),
        stdout=subprocess.PIPE,
        text=True,
    )
    found = [tuple(json.loads(line)) for line in process.stdout.splitlines()]
    assert len(found) == len(commands), process
    return dict(zip(commands, found, strict=True))


def _fine_tuning(task: str, tiny_run) -> str:
    choice, data, more = {
        "glue": (":MRPC", "glue", ""),
        "squad": (":v2.0", "squad", " --config.task.stride=16 --config.task.max_query_length=4"),
        "swag": ("", "swag", ""),
        "ner": (":finetune", "conll2003", ""),
        "table": (
            ":classification",
            "reviews",
            " --config.task.text=review --config.task.label=stars",
        ),
    }[task]
    return (
        f"finetune --config={REPOSITORY}/configs/finetune_{task}.py{choice}"
        f" --config.data={data} --config.init_from={tiny_run} --workdir={task}-run"
        f" --config.max_length=48 --config.grid.batch_size=8 --config.grid.learning_rate=1e-3"
        f" --config.grid.epochs=1 --config.buckets=1{more}"
    )


def test_every_program_is_tried(said, repository):
    tried = {repository / "launch" / f"{command.split()[0]}.py" for command in said}
    assert tried == set((repository / "launch").glob("*.py"))


def test_every_program_does_its_work(said):
    for command, (code, output) in said.items():
        assert code == (2 if "compile_check" in command else 0), f"{command}\n{output}"


def test_what_an_extra_is_needed_for_says_so(said):
    (output,) = [output for command, (_, output) in said.items() if "compile_check" in command]
    hint = "error: the TPU compiler is not installed: pip install -e '.[tpu]' in the checkout"
    assert output.splitlines()[-1] == hint
