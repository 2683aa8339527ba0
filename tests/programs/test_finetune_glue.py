"""All tasks of GLUE with one command, and the leaderboard's zip file."""

import json
import zipfile

import ml_collections
import pytest

from bertjax.base.errors import InputError
from bertjax.lab.studies.estimates import Pace
from bertjax.lab.studies.files import read_study
from bertjax.lab.studies.outcome import is_done
from bertjax.lab.studies.scales import SCALES
from bertjax.programs import finetune, finetune_task, study
from bertjax.runs.fine_tuning.search import NothingScored
from bertjax.tasks import glue
from bertjax.tasks.glue import SETS, SUBMITTED
from tests.helpers.glue_files import TESTED, small_submission, write_glue
from tests.helpers.task_files import tiny_finetuning


@pytest.fixture
def small(monkeypatch):
    """Gives the official test sets the size of the small ones here."""
    monkeypatch.setattr(glue, "SUBMITTED", small_submission())


@pytest.fixture
def asked(monkeypatch):
    """The tasks that would have been run, in order; they are only recorded."""
    names = []

    def run(config, workdir):
        assert workdir.endswith(f"/{config.task.name}")
        names.append(config.task.name)
        return 0

    monkeypatch.setattr(finetune_task, "run", run)
    return names


def _config(init_from, data):
    config = tiny_finetuning(init_from, data, task=dict(kind="glue", name="all"))
    config.grid.update(batch_size=(8,), epochs=(1,))
    return config


@pytest.mark.slow
def test_all_tasks_and_the_zip(tiny_run, tmp_path, small):
    config = _config(tiny_run, write_glue(tmp_path / "data"))
    run = tmp_path / "run"
    assert finetune.run(config, str(run)) == 0
    assert config.task.name == "all"
    assert {path.name for path in run.iterdir()} == {*SETS, "submission.zip", "results.json"}
    for name in SETS:
        results = json.loads((run / name / "results.json").read_text())
        assert results["task"] == name
        dev = ["dev_matched", "dev_mismatched"] if name == "MNLI" else ["dev"]
        assert list(results["dev"]) == dev
        assert (run / name / "model" / "config.json").exists()
    with zipfile.ZipFile(run / "submission.zip") as archive:
        files = {name: archive.read(name).decode().splitlines() for name in archive.namelist()}
    assert sorted(files) == sorted(
        [
            *("AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "MRPC.tsv", "QNLI.tsv"),
            *("QQP.tsv", "RTE.tsv", "SST-2.tsv", "STS-B.tsv", "WNLI.tsv"),
        ]
    )
    for name, (header, *rows) in files.items():
        assert header == "index\tprediction", name
        assert [row.split("\t")[0] for row in rows] == [str(n) for n in range(TESTED)], name
        words = {row.split("\t")[1] for row in rows}
        if name in ("AX.tsv", "MNLI-m.tsv", "MNLI-mm.tsv"):
            assert words <= {"neutral", "entailment", "contradiction"}
        elif name in ("QNLI.tsv", "RTE.tsv"):
            assert words <= {"not_entailment", "entailment"}
        elif name == "STS-B.tsv":
            assert all(0 <= float(word) <= 5 for word in words)
        else:
            assert words <= {"0", "1"}
    # The same command again runs nothing, and gives the same file.
    before = (run / "submission.zip").read_bytes()
    (run / "submission.zip").unlink()
    times = {path: path.stat().st_mtime_ns for path in run.glob("*/trials/*/results.json")}
    assert finetune.run(config, str(run)) == 0
    assert (run / "submission.zip").read_bytes() == before
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_one_task_is_one_run(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(finetune_task, "run", lambda *arguments: asked.append(arguments) or 3)
    config = tiny_finetuning("none", "none", task=dict(kind="glue", name="RTE"))
    assert finetune.run(config, "folder") == 3
    assert asked == [(config, "folder", None, None)]


def test_a_config_of_no_task():
    config = ml_collections.ConfigDict({"corpus": "none"})
    with pytest.raises(InputError, match="config.task.kind=None: must be one of glue"):
        finetune.run(config, "folder")


def test_a_run_that_is_stopped_stops_all(tmp_path, monkeypatch, small):
    asked = []

    def run(config, workdir):
        asked.append((config.task.name, workdir))
        return 75 if len(asked) == 3 else 0

    monkeypatch.setattr(finetune_task, "run", run)
    config = _config("none", write_glue(tmp_path / "data"))
    assert finetune.run(config, str(tmp_path / "run")) == 75
    wanted = list(SETS)[:3]
    assert asked == [(name, str(tmp_path / "run" / name)) for name in wanted]
    assert not (tmp_path / "run").exists()


def test_tasks_that_diverge_are_named_at_the_end(tmp_path, monkeypatch, small, capsys):
    """The other tasks are still run."""
    asked = []

    def run(config, workdir):
        asked.append(config.task.name)
        if config.task.name in ("CoLA", "QNLI"):
            raise NothingScored("no trial gave a score")
        return 0

    monkeypatch.setattr(finetune_task, "run", run)
    config = _config("none", write_glue(tmp_path / "data"))
    with pytest.raises(InputError, match="every trial of CoLA, QNLI diverged, so there is no res"):
        finetune.run(config, str(tmp_path / "run"))
    assert asked == list(SETS)
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        f"{n}: no trial gave a score: going on with the next task" for n in ("CoLA", "QNLI")
    ]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("missing", ["WNLI/test", "MNLI/test_mismatched", "diagnostic/diagnostic"])
def test_a_missing_test_file_is_refused_before_anything_is_run(tmp_path, asked, small, missing):
    config = _config("none", write_glue(tmp_path / "data"))
    (tmp_path / "data" / f"{missing}.tsv").unlink()
    split = missing.partition("/")[2]
    with pytest.raises(InputError, match=f"has no {split}, which the leaderboard wants predicted"):
        finetune.run(config, str(tmp_path / "run"))
    assert asked == [] and not (tmp_path / "run").exists()


def test_a_test_set_that_is_not_the_official_one_is_refused(tmp_path, asked):
    config = _config("none", write_glue(tmp_path / "data"))
    with pytest.raises(InputError, match=f"CoLA test has {TESTED} rows, but the official file has"):
        finetune.run(config, str(tmp_path / "run"))
    assert asked == []


def test_a_mistake_in_the_last_file_is_found_first(tmp_path, asked, small):
    config = _config("none", write_glue(tmp_path / "data"))
    with open(tmp_path / "data" / "WNLI" / "dev.tsv", "a") as file:
        file.write("24\tbaa\t1\n")
    with pytest.raises(InputError, match="dev.tsv line 26: 3 columns, but WNLI dev has 4"):
        finetune.run(config, str(tmp_path / "run"))
    assert asked == []


@pytest.mark.parametrize(
    ("workdir", "message"), [("", "--workdir is empty"), ("gs://bucket/run", "not a folder; mount")]
)
def test_an_invalid_workdir_is_refused(tmp_path, asked, small, monkeypatch, workdir, message):
    monkeypatch.chdir(tmp_path)
    config = _config("none", write_glue(tmp_path / "data"))
    with pytest.raises(InputError, match=message):
        finetune.run(config, workdir)
    assert asked == [] and [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.fixture
def of_table_1(repository, tiny_corpus, tmp_path):
    """The arguments of Table 1 with the files of all tasks."""
    file, data = f"{repository}/configs/studies/table_1.py", tmp_path / "data"
    write_glue(data / "glue")
    return (file, "chip", str(tiny_corpus), str(data), str(tmp_path / "study"))


def test_table_1_has_the_zip_of_each_row(of_table_1, tmp_path, small):
    runs = tmp_path / "study" / "runs"
    for (name, _), (file, rows) in small_submission().items():
        predicted = runs / f"{name}-large" / "predictions"
        predicted.mkdir(parents=True, exist_ok=True)
        lines = ["index\tprediction", *(f"{row}\t{len(file)}" for row in range(rows))]
        (predicted / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert study.run_stage(*of_table_1, (), "submission-large") == 0
    with zipfile.ZipFile(runs / "submission-large" / "submission.zip") as archive:
        assert set(archive.namelist()) == {file for file, _ in SUBMITTED.values()}
        assert archive.read("AX.tsv") == (runs / "MNLI-large/predictions/AX.tsv").read_bytes()
    stages = {stage.name: stage for stage in read_study(of_table_1[0], SCALES["chip"]).stages()}
    done = {name for name, stage in stages.items() if is_done(stage, tmp_path / "study")}
    assert done == {"submission-large"}
    assert [run.name for run in stages["submission-large"].start] == [
        f"{name}-large"
        for name in ("MNLI", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE", "WNLI")
    ]


def test_table_1_wants_the_test_files_before_it_starts(of_table_1, monkeypatch, small, tmp_path):
    monkeypatch.setattr(study, "measured_pace", lambda *_: Pace(1e9, 0.0))
    (tmp_path / "data" / "glue" / "WNLI" / "test.tsv").unlink()
    with pytest.raises(InputError, match="stage submission-base: .* WNLI has no test, which the l"):
        study.run(*of_table_1, program="nowhere", dry_run=True)
