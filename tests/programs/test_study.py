"""A whole study: pre-training, evaluation, fine-tuning and an ensemble, by its own processes."""

import dataclasses
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.store import open_tokenizer
from bertjax.lab.studies import provenance
from bertjax.lab.studies.estimates import Pace, Work, work_of
from bertjax.lab.studies.files import StudyFiles, read_study
from bertjax.lab.studies.scales import SCALES
from bertjax.programs import study
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.recipe import Recipe
from tests.helpers import task_files
from tests.helpers.task_files import tiny_finetuning
from tests.helpers.tiny_run import tiny_config

STUDY = """
from bertjax.lab.studies.study import Column, Row, Stage, Study

ROWS = ["plain", "masked"]

def get_study(scale):
    rows = []
    for name in ROWS:
        settings = {"model.hidden_act": "gelu_tanh"}
        if name != "plain":
            settings["objective"] = "masked_lm"
        run = Stage(name, "pretrain", "CONFIG:pretrain", settings)
        tuned = [
            Stage(f"CoLA-{name}-{seed}", "finetune", "CONFIG:finetune", {"seed": seed},
                  (run,), 5 if seed else None, "cola")
            for seed in (0, 1)
        ]
        rows.append(Row(name, {
            "loss": Stage(f"evaluate-{name}", "evaluate", "", {"batches": 2}, (run,)),
            "CoLA": tuple(tuned),
            "both": Stage(f"both-{name}", "ensemble", "", {"by": "votes"}, tuple(tuned)),
        }))
    columns = [
        Column("loss", "loss", "32/mlm_loss", {"plain": 1.5}),
        Column("CoLA", "CoLA", "dev/accuracy"),
        Column("ensemble", "both", "dev/accuracy"),
    ]
    return Study("Two ways", rows, columns, source="a test")
"""
CONFIG = """
import ml_collections

CONFIGS = {configs!r}

def get_config(word):
    return ml_collections.ConfigDict(CONFIGS[word])
"""


@pytest.fixture(scope="module", autouse=True)
def no_byte_code():
    """Python takes that of a file which changed within its second, if its length is the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        yield


def _files(folder: Path, corpus: Path) -> Path:
    """The study's file, with its config next to it."""
    config = folder / "config.py"
    pretrain = tiny_config(corpus, keep_checkpoint_every=5)
    task = dict(kind="glue", name="CoLA")
    finetune = tiny_finetuning("", "", task=task, grid=dict(epochs=(1,)))
    configs = {"pretrain": pretrain, "finetune": finetune.to_dict()}
    config.write_text(CONFIG.format(configs=configs), encoding="utf-8")
    file = folder / "two_ways.py"
    file.write_text(STUDY.replace("CONFIG", str(config)), encoding="utf-8")
    task_files.write_cola(folder / "data" / "cola", rows=64)
    return file


@pytest.fixture
def arguments(tiny_corpus, tmp_path):
    """The arguments of `study.run` for the study above."""
    file = _files(tmp_path, tiny_corpus)
    return (str(file), "cpu", str(tiny_corpus), str(tmp_path / "data"), str(tmp_path / "study"))


def _stages(arguments):
    return read_study(arguments[0], SCALES["cpu"]).stages()


@pytest.fixture
def a_known_pace(monkeypatch):
    """A machine of 1e6 operations a second, whose programs start in 10 seconds."""
    monkeypatch.setattr(study, "measured_pace", lambda stage, files, at_once: Pace(1e6, 10.0))


def _dry_run(arguments, **options):
    return study.run(*arguments, program="nowhere", dry_run=True, **options)


def test_the_plan_says_what_runs_and_how_long(arguments, a_known_pace, capsys):
    assert _dry_run(arguments) == 0
    printed = capsys.readouterr().out.splitlines()
    assert not Path(arguments[4]).exists()
    begin = printed.index(next(line for line in printed if line.startswith("plain: ")))
    assert [line.split(":")[0] for line in printed[begin + 1 : begin + 6]] == [
        *("  plain", "  evaluate-plain", "  CoLA-plain-0", "  CoLA-plain-1", "  both-plain")
    ]
    # Of 12 updates, 9 have 16 rows of 32 tokens, and 3 have 8 of 64.
    plain, evaluated, tuned, _, both = _stages(arguments)[:5]
    files = StudyFiles(arguments[0], *arguments[2:4], Path(arguments[4]))
    spec = Recipe.from_config(files.config(plain)).spec(
        open_tokenizer(arguments[2]).vocabulary_size
    )
    predicted = {32: 5, 64: 10}
    by_hand = sum(
        tokens * spec.flops_per_token(length, predicted[length])
        for length, tokens in {32: 9 * 16 * 32, 64: 3 * 8 * 64}.items()
    )
    assert work_of(plain, files) == Work(pytest.approx(by_hand), programs=2)  # one for a length
    assert f"  plain: {(by_hand / 1e6 + 2 * 10) / 60:,.0f} min" in printed
    # One epoch of training, and the prediction of dev.
    of_train, of_dev = (
        sum(texts) * spec.flops_per_token(round(sum(texts) / len(texts)), 0)
        for texts in (_lengths_of_texts(arguments, split) for split in ("train", "dev"))
    )
    recipe = TaskRecipe.from_config(files.config(tuned))
    assert work_of(tuned, files) == Work(pytest.approx(of_train + of_dev / 3), recipe.buckets)
    assert work_of(both, files).operations == pytest.approx(2 * of_dev / 3)
    assert work_of(evaluated, files) == Work()


def test_chips_share_the_work_and_not_the_start():
    assert (
        Work(operations=6e12, programs=2).seconds(Pace(rate=1e12, start=5.0), chips=3) == 2 * 5 + 2
    )


def test_the_plan_of_stages_that_run_at_a_time(arguments, a_known_pace, capsys):
    _dry_run(arguments)
    alone = capsys.readouterr().out.splitlines()[-2]
    _dry_run(arguments, at_once=3)
    together = capsys.readouterr().out.splitlines()[-2]
    assert together.startswith(alone + "; 3 at a time, ")
    minutes, least = (int(re.search(r"(\d+) min", each)[1]) for each in together.split(";"))
    assert least == pytest.approx(minutes / 3, abs=1)


def _lengths_of_texts(arguments, split):
    """The tokens of every example of a split of CoLA, with [CLS] and [SEP]."""
    tokenizer, file = open_tokenizer(arguments[2]), Path(arguments[3], "cola", "CoLA")
    lines = (file / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
    texts = [line.split("\t")[3] for line in lines]
    return [len(ids) + 2 for ids in tokenizer.encode(texts)]


@pytest.mark.parametrize(
    "wrong, message",
    {
        "corpus": "nowhere",
        "data": "cola",
        "rows": "the study began with the rows plain, masked, and now has plain, other",
        "settings": "two_ways.plan.json: the stage plain began with other settings",
        "config": "stage plain: config.model.hidden_act='nothing': .*; stage masked: .*='nothing'",
        "ensemble": "stage both-plain: its runs are of different tasks: an ensemble is of one task",
        "no fine-tuning": "stage both-plain: plain is no fine-tuning",
        "times": "times.json: damaged",
        "stage": "--stage=other: must be one of plain, evaluate-plain, CoLA-plain-0",
    }.items(),
    ids=lambda value: value if " " not in value else "",
)
def test_bad_input_is_told_before_anything_starts(arguments, a_known_pace, wrong, message):
    file, scale, corpus, data, folder = arguments
    text = Path(file).read_text(encoding="utf-8")
    if wrong == "corpus":
        arguments = (file, scale, "nowhere", data, folder)
    elif wrong == "data":
        shutil.rmtree(data)
    elif wrong in ("rows", "settings"):
        plan = read_study(file, SCALES[scale]).as_dict()
        Path(folder).mkdir()
        Path(folder, "two_ways.plan.json").write_text(json.dumps(plan), encoding="utf-8")
        old, new = ('"masked"]', '"other"]') if wrong == "rows" else ('"gelu_tanh"', '"gelu"')
        Path(file).write_text(text.replace(old, new), encoding="utf-8")
    elif wrong == "config":
        Path(file).write_text(text.replace('"gelu_tanh"', '"nothing"'), encoding="utf-8")
    elif wrong == "ensemble":
        changed = text.replace(
            '{"seed": seed}', '{"seed": seed, "task.name": ["CoLA", "RTE"][seed]}'
        )
        Path(file).write_text(changed, encoding="utf-8")
        shutil.copytree(Path(data, "cola", "CoLA"), Path(data, "cola", "RTE"))
    elif wrong == "times":
        Path(folder).mkdir()
        Path(folder, "times.json").write_text('{"plain": 1', encoding="utf-8")
    elif wrong == "no fine-tuning":
        Path(file).write_text(text.replace("tuple(tuned))", "(run, tuned[0]))"), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        if wrong == "stage":
            study.run_stage(*arguments, (), "other")
        else:
            _dry_run(arguments)


_MISTAKES = {
    # What the file of the study has, what stands there instead, and the error.
    "name ..": ('Stage(name, "pre', 'Stage("..", "pre', "stage '..': name='..': must be the plain"),
    "absolute": ('Stage(name, "pre', 'Stage("/a", "pre', "stage '/a': name='/a': must be"),
    "path": ('Stage(name, "pre', 'Stage("a/../../b", "pre', "name='a/../../b': must be the plain"),
    "NUL": ('Stage(name, "pre', 'Stage("a\\0", "pre', r"stage 'a\\x00': name='a\\x00': must be"),
    "number": ('Stage(name, "pre', 'Stage(3, "pre', "stage 3: name=3: must be a text"),
    "program": (
        '"pretrain", "',
        '"train", "',
        "stage plain: program='train': must be one of pretr",
    ),
    "one run": ("tuple(tuned))", "(tuned[0],))", "stage both-plain: start: has CoLA-plain-0: ense"),
    "twice": ("tuple(tuned))", "(tuned[0],) * 2)", "start: has CoLA-plain-0 twice"),
    "by": ('"votes"', '"odd"', "stage both-plain: settings: by='odd': must be one of proba"),
    "no by": ('{"by": "votes"}', "{}", "stage both-plain: settings={}: ensemble .* these: by"),
    "batches": ('{"batches": 2}', '{"batches": 0}', "evaluate-plain: settings: batches=0: must"),
    "flag": ('{"batches": 2}', '{"steps": 2}', "settings={'steps': 2}: evaluate .* batches"),
    "never saved": ("5 if seed", "7 if seed", "CoLA-plain-1: step=7: plain .* are 5, 10, 12"),
    "not kept": ("5 if seed", "6 if seed", "step=6: plain keeps no checkpoint of it"),
    "step": ("5 if seed", "0.5 if seed", "stage 'CoLA-plain-1': step=0.5: expected `int"),
    "step of nothing": ("(run,), 5 if", "(), 5 if", "step=5: only a stage that starts from a pre"),
    "length": ("32/mlm_loss", "33/mlm_loss", "figure='33/mlm_loss': stage evaluate-plain has LE"),
    "metric": ("32/mlm_loss", "32/mlmloss", "row 'plain', column 'loss': figure='32/mlmloss'"),
    "split": ('"dev/accuracy")', '"def/accuracy")', "column 'CoLA': figure='def/accuracy': stage"),
    "score": ('"dev/accuracy")', '"dev/acuracy")', "figure='dev/acuracy': stage CoLA-plain-0 has"),
    "no figures": ('"CoLA": tuple(tuned)', '"CoLA": run', "stage plain has none"),
    "part": ('"cola")', '"cola", "last")', "stage CoLA-plain-0 has no part 'last'"),
    "rows": ("rows, columns,", "dict.fromkeys(ROWS), columns,", "rows={'plain': None, .*: must be"),
    "stages": ('"CoLA": tuple(tuned)', '"CoLA": "run"', "row 'plain': stages: 'CoLA'='run': must"),
    "no stages": (
        "rows.append(Row(name, {",
        "rows.append(Row(name, None) or ({",
        "row 'plain': sta",
    ),
    "start": ("(run,), 5", "[run], 5", "stage 'CoLA-plain-0': start=.*: must be a tuple of stages"),
    "none": ('{"batches": 2}', "None", "stage 'evaluate-plain': settings=None: must be a dict"),
    "set": ('{"batches": 2}', '{"batches"}', "stage 'evaluate-plain': settings={'batches'}: must"),
    "numpy": (
        '"seed": seed',
        '"seed": __import__("numpy").int64(seed)',
        "'seed'=np.int64.0.: must",
    ),
    "kind": ('"seed": seed', '"seed": "one"', "stage CoLA-plain-0: settings: 'seed'='one'"),
    "section": ('"seed": seed', '"seed.more": seed', "settings: 'seed.more'=0: "),
    "cycle": (
        *("rows.append(Row(", "object.__setattr__(run, 'start', (tuned[0],)); rows.append(Row("),
        "stage '.*': start: it needs itself",
    ),
    "published": ("1.5}", '"high"}', "column 'loss': published: 'plain'='high': must be a number"),
    "not finite": ("1.5}", 'float("nan")}', "published: 'plain'=nan: must be a number"),
    "no dict": ('{"plain": 1.5}', "1.5", "column 'loss': published=1.5: must be a dict"),
}


@pytest.mark.parametrize("old, new, message", _MISTAKES.values(), ids=_MISTAKES)
def test_mistakes_in_a_study_are_told_before_anything_starts(
    arguments, a_known_pace, old, new, message
):
    file = Path(arguments[0])
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError, match=message) as raised:
        _dry_run(arguments)
    assert "two_ways.py: " in str(raised.value)
    assert not Path(arguments[4]).exists()


def test_all_missing_files_are_named(arguments, a_known_pace):
    for split in ("train", "dev"):
        Path(arguments[3], "cola", "CoLA", f"{split}.tsv").unlink()
    with pytest.raises(InputError) as raised:
        _dry_run(arguments)
    assert "train.tsv" in str(raised.value) and "dev.tsv" in str(raised.value)


@pytest.fixture
def finished(arguments):
    """A study whose "plain" is pre-trained, evaluated and fine-tuned once, as far as files say."""
    files = StudyFiles(arguments[0], *arguments[2:4], Path(arguments[4]))
    plain, evaluated, tuned, *_ = stages = _stages(arguments)
    runs = files.folder / "runs"
    (runs / "plain" / "checkpoints" / "12").mkdir(parents=True)
    trial = runs / tuned.name / "trials" / "one"
    trial.mkdir(parents=True)
    for path, content in {
        runs / "plain" / "config.json": {"total_steps": 12},
        runs / "plain" / "evaluation.json": {"step": 12, "32": {"mlm_loss": 2.5}},
        runs / tuned.name / "config.json": {"seed": 0},
        runs / tuned.name / "results.json": {"dev": {"dev": {"accuracy": 50.0}}},
        trial / "resampled.json": {"dev": {"accuracy": [50.0, 51.0]}},
    }.items():
        path.write_text(json.dumps(content), encoding="utf-8")
    for stage in (plain, evaluated, tuned):
        provenance.remember(stage, files, provenance.made_from(stage, files))
    yield files, stages
    provenance._data.cache_clear()


def test_what_is_done_is_known_by_what_it_was_made_from(finished):
    files, stages = finished
    assert study._finished_stages(stages, files) == {"plain", "evaluate-plain", "CoLA-plain-0"}
    (files.folder / "made" / "CoLA-plain-0.json").unlink()  # its program looks at it again
    assert study._finished_stages(stages, files) == {"plain", "evaluate-plain"}
    (files.folder / "made" / "plain.json").unlink()
    assert study._finished_stages(stages, files) == set()


@pytest.mark.parametrize(
    "file, old, new, message",
    [
        (
            "study/runs/CoLA-plain-0/results.json",
            "50",
            "99",
            "CoLA-plain-0: .*results.json changed",
        ),
        ("study/runs/CoLA-plain-0/config.json", "0", "1", "CoLA-plain-0: .*config.json changed"),
        (
            "study/runs/CoLA-plain-0/trials/one/resampled.json",
            "51",
            "61",
            "one/resampled.json chan",
        ),
        (
            "study/runs/plain/evaluation.json",
            "2.5",
            "1.5",
            "evaluate-plain: .*evaluation.json chan",
        ),
        ("study/runs/plain/config.json", "12", "12 ", "CoLA-plain-0: the results of plain changed"),
        ("config.py", "'seed': 0", "'seed': 7", "stage plain: config.seed was 0, is 7"),
        (
            "config.py",
            "'epochs': (1,)",
            "'epochs': (3,)",
            r"CoLA-plain-0: .*epochs was \[1\], is \[3",
        ),
        ("config.py", "'log': 2", "'log': 4", ""),  # how often it looks
        # What is left to the device stays as it was chosen before it was left to it.
        (
            "study/made/CoLA-plain-0.json",
            '"compute_dtype": "auto"',
            '"compute_dtype": "float32"',
            "",
        ),
        (
            "config.py",
            "'compute_dtype': 'auto'",
            "'compute_dtype': 'float32'",
            "CoLA-plain-0: config.model.compute_dtype was 'auto', is 'float32'",
        ),
        (
            "data/cola/CoLA/train.tsv",
            "\t1\t",
            "\t0\t",
            "stage CoLA-plain-0: the train data changed",
        ),
        ("data/cola/CoLA/dev.tsv", "\t1\t", "\t0\t", "CoLA-plain-0: the dev data changed"),
    ],
)
def test_what_no_longer_fits_is_told(finished, tmp_path, file, old, new, message):
    files, stages = finished
    assert study._finished_stages(stages, files)
    provenance._data.cache_clear()  # the next command is another process
    path = tmp_path / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    if not message:
        assert study._finished_stages(stages, files)
        return
    with pytest.raises(InputError, match=f"{message}.*: undo the change; or remove the folder"):
        study._finished_stages(stages, files)


def test_other_text_is_told(finished, tiny_corpus, tmp_path):
    files, stages = finished
    other = tmp_path / "other"
    shutil.copytree(tiny_corpus, other)
    moved = dataclasses.replace(files, corpus=str(other))
    assert study._finished_stages(stages, moved)  # where it lies is free
    twice = dataclasses.replace(files, corpus=f"{other},{tiny_corpus}")
    with pytest.raises(InputError, match="stage plain: the train text changed; .*heldout text"):
        study._finished_stages(stages, twice)


@pytest.mark.slow
def test_a_whole_study(arguments, repository, capfd):
    """Two rows by their own processes; the second command has nothing left to run."""
    program = str(repository / "launch" / "study.py")
    assert study.run(*arguments, program=program, at_once=2) == 0
    folder = Path(arguments[4])
    table = json.loads((folder / "two_ways.json").read_text(encoding="utf-8"))
    cells = {row["name"]: row["cells"] for row in table["rows"]}
    for name in ("plain", "masked"):
        evaluation = json.loads((folder / "runs" / name / "evaluation.json").read_text("utf-8"))
        assert cells[name]["loss"]["mean"] == evaluation["32"]["mlm_loss"]
        results = [
            json.loads((folder / "runs" / f"CoLA-{name}-{seed}/results.json").read_text("utf-8"))
            for seed in (0, 1)
        ]
        values = [each["dev"]["dev"]["accuracy"] for each in results]
        assert cells[name]["CoLA"]["values"] == values
        both = json.loads((folder / "runs" / f"both-{name}/results.json").read_text("utf-8"))
        assert cells[name]["ensemble"]["values"] == [both["dev"]["dev"]["accuracy"]]
        assert results[1]["init_from"].endswith(f"{name}@5")
    cell, first = (cells[name]["CoLA"] for name in ("masked", "plain"))
    assert cell["difference"] == pytest.approx(cell["mean"] - first["mean"])
    over_seeds = np.var(np.subtract(cell["values"], first["values"]), ddof=1) / 2
    over_examples = _variance(folder, "CoLA-{}-0", "CoLA-{}-1")
    by_hand = np.sqrt(over_seeds + over_examples)
    assert cell["standard_error"] == pytest.approx(by_hand)
    assert cells["masked"]["ensemble"]["standard_error"] == pytest.approx(
        np.sqrt(_variance(folder, "both-{}"))
    )
    assert (folder / "two_ways.txt").read_text(encoding="utf-8").startswith("Two ways\n\n| ")
    assert (folder / "two_ways.png").stat().st_size > 1_000
    capfd.readouterr()
    assert study.run(*arguments, program="nowhere") == 0
    printed = capfd.readouterr().out
    assert "begins" not in printed and printed.count(": done") == len(_stages(arguments))
    results = folder / "runs" / "CoLA-plain-0" / "results.json"
    results.write_text(results.read_text("utf-8").replace("accuracy", "acuracy"), encoding="utf-8")
    with pytest.raises(InputError, match="stage CoLA-plain-0: .*results.json changed"):
        study.run(*arguments, program="nowhere")


def _variance(folder, *runs):
    """Over the samples of dev: of the difference of "masked" and "plain", each the mean of runs."""
    means = []
    for name in ("masked", "plain"):
        files = [
            path
            for run in runs
            for path in (folder / "runs" / run.format(name)).rglob("resampled.json")
        ]
        assert len(files) == len(runs)
        samples = [json.loads(path.read_text("utf-8"))["dev"]["accuracy"] for path in files]
        means.append(np.mean(samples, axis=0))
    return np.var(np.subtract(*means), ddof=1)
