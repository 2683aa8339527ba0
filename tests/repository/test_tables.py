"""The tables of figures in README.md and docs/ are those of the files of results."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bertjax.lab.studies.differences import StandardError, is_clear
from tests.benchmarks import tables
from tests.benchmarks.kernel_times import by_kind


@pytest.mark.parametrize("path", tables.documents(), ids=lambda path: path.name)
def test_tables_are_as_the_program_writes_them(path):
    text = path.read_text(encoding="utf-8")
    assert tables.render(text) == text, "run: python tests/benchmarks/tables.py"


def test_every_table_has_its_place():
    texts = [path.read_text(encoding="utf-8") for path in tables.documents()]
    started = [name for text in texts for name in re.findall(r"<!-- table: (\S+) -->", text)]
    assert sorted(started) == sorted(tables.TABLES)
    assert sum(text.count("<!-- end of table -->") for text in texts) == len(started)


def test_only_what_stands_between_the_marks_is_replaced(tmp_path, monkeypatch):
    (tmp_path / "short.json").write_text("| a |\n| --- |", encoding="utf-8")
    monkeypatch.setitem(
        tables.TABLES, "short", lambda results: (results / "short.json").read_text()
    )
    before, after = "# A\n\n<!-- table: short -->\n", "<!-- end of table -->\n\nB\n"
    shown = tables.render(f"{before}| old |\n{after}", tmp_path)
    assert shown == f"{before}| a |\n| --- |\n{after}"


def test_a_step_by_torch_compile_stands_beside_bertjax(tmp_path):
    ways = {
        name: {"milliseconds": {"minimum": least}}
        for name, least in (("bertjax", 40.5), ("compiled", 30.375))
    }
    content = dict(shapes=dict(layers=12, width=768, batch_size=32, length=512), rounds=3, steps=10)
    content |= dict(gpu="A GPU", versions={"torch": "2.1"}, ways=ways)
    (tmp_path / "train_step_compiled.json").write_text(json.dumps([content]), encoding="utf-8")
    row = "| 32 x 512 | 40.5 | 30.4 | 0.75x as fast |"
    assert tables.train_step_compiled(tmp_path).splitlines()[-1] == row


def test_a_report_of_a_gpu_is_a_table_for_each_kind():
    """A row that measured several ways is several lines; what one row lacks is an empty cell."""
    flash = {"milliseconds": 0.60349, "same_bits": False}
    rows = {
        "step/base_128/auto": {"milliseconds": 25.125, "attention": "by einsum", "losses": [2, 1]},
        "step/base_128/transformers": {"milliseconds": 36.875},
        "attention/modern_8192": {"flash": flash, "cudnn": {"failed": "no"}},
    }
    assert tables.table_of_gpu({"versions": {"jax": "1.2"}, "rows": rows}).splitlines() == [
        *("jax 1.2.", ""),
        *("| step | milliseconds | attention |", "| --- | --- | --- |"),
        "| base_128/auto | 25.12 | by einsum |",
        "| base_128/transformers | 36.88 |  |",
        "",
        *("| attention | milliseconds | same bits | failed |", "| --- | --- | --- | --- |"),
        "| modern_8192, flash | 0.6035 | no |  |",
        "| modern_8192, cudnn |  |  | no |",
    ]


def test_times_of_kernels_are_those_of_the_streams_of_gpus():
    def named(what, name, **of):
        return {"ph": "M", "name": f"{what}_name", "args": {"name": name}, **of}

    def spent(name, milliseconds, pid=5, tid=1):
        return {"ph": "X", "pid": pid, "tid": tid, "name": name, "dur": 1e3 * milliseconds}

    events = [
        *(named("process", "/host:CPU", pid=3), named("process", "/device:GPU:0", pid=5)),
        *(named("thread", "Stream #13", pid=5, tid=1), named("thread", "XLA Ops", pid=5, tid=2)),
        *(spent("nvjet_tst_256x128", 3.0), spent("nvjet_tst_256x128", 5.0)),
        *(spent("flash::wgmma_kernel", 1.0), spent("loop_add_fusion", 0.5)),
        *(spent("input_reduce_fusion", 0.25), spent("cub::sort", 0.125)),
        *(spent("fusion.2", 64.0, tid=2), spent("fusion.2", 64.0, pid=3)),
    ]
    kinds = dict(products=4.0, attention=0.5, elementwise=0.25, reductions=0.125, others=0.0625)
    found = by_kind(events, updates=2)
    largest = dict(list(found.pop("largest").items())[:2])
    assert largest == {"nvjet_tst_256x128": 4.0, "flash::wgmma_kernel": 0.5}
    assert found == kinds | {"copies": 0.0, "all_kernels": 4.9375}


@pytest.mark.parametrize("name", tables.STUDIES)
def test_the_marks_of_a_study_follow_from_its_figures(name):
    text = (tables.RESULTS / f"{name}.json").read_text(encoding="utf-8")
    for row in json.loads(text)["rows"]:
        for cell in row["cells"].values():
            error, freedom = cell["standard_error"], cell["degrees_of_freedom"]
            known = None if error is None else StandardError(error, freedom)
            assert cell["clear"] == is_clear(cell["difference"], known)


def _result(recipe: dict, result: list[dict], reference: list[dict]) -> dict:
    """A task of finetune.json; each seed is {"seconds", and its figures}."""
    grid = {"batch_size": [32], "epochs": [2], "learning_rate": [5e-05]}

    def seeds(rows: list[dict]) -> dict:
        return {
            str(number): {
                "seconds": row["seconds"],
                "dev": {"dev": {name: row[name] for name in row if name != "seconds"}},
            }
            for number, row in enumerate(rows)
        }

    return {
        "recipe": {"grid": grid} | recipe,
        "examples": 1_043,
        "bertjax": seeds(result),
        "transformers": seeds(reference),
    }


def _rows(folder: Path, tasks: dict) -> list[str]:
    facts = {"weights": "W", "machine": "M", "versions": {"jax": "1.2"}, "tasks": tasks}
    (folder / "finetune.json").write_text(json.dumps(facts), encoding="utf-8")
    caption, _, _, _, *rows = tables.finetune(folder).splitlines()
    assert caption == "From W, in float32. M; jax 1.2."
    return rows


def test_scores_and_seconds_of_fine_tuning(tmp_path):
    """The time of an interrupted seed is null; "mean" repeats the other figures."""
    result = [
        {"seconds": 100.0, "f1": 80.0, "accuracy": 70.0, "mean": 75.0},
        {"seconds": 200.0, "f1": 82.0, "accuracy": 71.0, "mean": 76.5},
    ]
    reference = [result[0] | {"seconds": 300.0}, result[1] | {"seconds": None}]
    (row,) = _rows(tmp_path, {"MRPC": _result({}, result, reference)})
    scores = "81.00 ± 1.41, 70.50 ± 0.71"
    assert row == (
        f"| MRPC | 1,043 | F1, accuracy | {scores} | {scores} | 150 | 300 | 2.00x as fast | 2 | "
        "2 epochs, batches of 32, rate 5e-5 |"
    )


def test_parts_of_a_model_and_of_the_data_are_named(tmp_path):
    """The table shows only F1 of entities; a way without a result leaves its cells empty."""
    result = [{"seconds": 90.0, "f1": 87.5, "precision": 88.0, "accuracy": 97.0, "f1_LOC": 91.0}]
    small = {"layers": 3, "train": 4_000}
    tasks = {
        "ner": _result(small, result, [result[0] | {"seconds": 180.0}]),
        "ner-last": _result({"layers": None, "train": None}, result, []),
        "STS-B": _result({}, [{"seconds": 60.0, "spearman": 84.0, "pearson": 83.0}], []),
    }
    assert _rows(tmp_path, tasks) == [
        "| CoNLL-2003, each sentence alone | 1,043 | F1 | 87.50 | 87.50 | 90 | 180 | "
        "2.00x as fast | 1 | 2 epochs, batches of 32, rate 5e-5; the first 3 layers; "
        "the first 4,000 examples to learn from |",
        "| CoNLL-2003, BiLSTM over last | 1,043 | F1 | 87.50 |  | 90 |  |  | 1 | "
        "2 epochs, batches of 32, rate 5e-5 |",
        "| STS-B | 1,043 | Spearman, Pearson | 84.00, 83.00 |  | 60 |  |  | 1 | "
        "2 epochs, batches of 32, rate 5e-5 |",
    ]


@pytest.mark.slow
def test_the_program_for_a_gpu_runs_on_a_cpu(tmp_path, repository):
    """Its small rows, each a process of its own; a second call measures nothing again."""
    rows = (
        "attention/base_128_dropout",
        "attention/modern_1024",
        "bits/auto",
        "step/base_128/auto",
    )
    command = [
        sys.executable,
        str(repository / "tests/benchmarks/gpu.py"),
        "--tiny",
        "--together=0",
    ]
    command += [f"--rows={','.join(rows)}", "--output=gpu.json"]
    for _ in range(2):
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        lines = result.stdout.splitlines()
    assert not any(line.startswith(rows) for line in lines)
    report = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert report["rows"].keys() == set(rows) and not report["failed"]
    assert report["rows"]["bits/auto"]["same_bits"]
    assert report["rows"]["attention/base_128_dropout"].keys() == {"einsum"}
    blocks = report["rows"]["attention/modern_1024"]["blocks, window 64"]
    assert blocks["error"] < 1e-5 and blocks["gradients_error"] < 1e-5
