"""A study as data: what its stages share, what it refuses, and what its shipped files say."""

import dataclasses
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.lab.studies import checks
from bertjax.lab.studies.files import StudyFiles, read_study
from bertjax.lab.studies.scales import SCALES, columns
from bertjax.lab.studies.study import PREVIOUS, Column, Row, Stage, Study
from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.recipe import Recipe
from bertjax.tasks.classification import TextPair
from bertjax.tasks.multi_label import MultiLabel

BASE = Stage("base", "pretrain", "a.py", {"seed": 1})
OTHER = Stage("other", "pretrain", "a.py", {"seed": 2})
TUNED = Stage("tuned", "finetune", "b.py", start=(BASE,))
COLUMN = Column("F1", "task", "dev/f1")


def _study(*rows, table=(COLUMN,), **fields):
    return Study("T", rows, table, **fields)


def test_stages_come_once_and_after_those_that_they_need():
    joined = Stage("joined", "ensemble", start=(TUNED, dataclasses.replace(TUNED, name="again")))
    study = _study(Row("a", {"task": joined}), Row("b", {"task": TUNED, "more": OTHER}))
    names = [stage.name for stage in study.stages()]
    assert sorted(names) == ["again", "base", "joined", "other", "tuned"]
    assert names.index("base") < min(names.index("tuned"), names.index("again"))
    assert max(names.index("tuned"), names.index("again")) < names.index("joined")
    assert [stage.name for stage in study.stages(study.rows[1])] == ["base", "tuned", "other"]


def test_parts_of_one_run_are_one_stage():
    rows = [Row(name, {"task": dataclasses.replace(TUNED, part=name)}) for name in ("a", "b")]
    assert [stage.name for stage in _study(*rows).stages()] == ["base", "tuned"]
    assert "part" not in rows[0].of("task")[0].as_dict()


def test_only_some_columns():
    table = (COLUMN, Column("accuracy", "other", "dev/accuracy"))
    study = _study(Row("a", {"task": TUNED, "other": OTHER}), table=table)
    assert study.only(()) == study
    assert [column.name for column in study.only(["other"]).columns] == ["accuracy"]
    assert study.only(["other"]).stages() == [OTHER]
    with pytest.raises(InputError, match="--only: no column of 'MNLI'; there are task, other"):
        study.only(["MNLI"])


def test_rows_are_compared_with_the_first_or_with_the_one_above():
    rows = [Row(name, {"task": TUNED}) for name in "abc"]
    assert [_study(*rows).compared_with(n) for n in range(3)] == [0, 0, 0]
    assert [_study(*rows, against=PREVIOUS).compared_with(n) for n in range(3)] == [0, 0, 1]


@pytest.mark.parametrize(
    "rows, fields, message",
    [
        ([], {}, "the study has no row"),
        ([("a", "task"), ("", "task")], {}, "row 2 has no name of one line"),
        ([("a\nb", "task")], {}, "row 1 has no name of one line"),
        ([("a", "task"), ("a", "task")], {}, "two rows have the name 'a'"),
        ([("a", "other")], {}, "column 'F1': no row has a stage 'task'; there are other"),
        ([("a", "task")], dict(table=()), "the study has no column"),
        ([("a", "task")], dict(table=(COLUMN, COLUMN)), "two columns have the name 'F1'"),
        ([("a", "task")], dict(against="last"), "against='last': must be one of first, previous"),
        (
            [("a", "task")],
            dict(table=(dataclasses.replace(COLUMN, published={"b": 1.0}),)),
            "column 'F1': published: no row 'b'",
        ),
    ],
)
def test_what_is_no_study_is_refused(rows, fields, message):
    with pytest.raises(InputError, match=message):
        _study(*(Row(name, {key: TUNED}) for name, key in rows), **fields)


@pytest.mark.parametrize("name", ["", " ", "..", "a/b", "a\nb", "a\0", "n" * 201, "\udcff"])
def test_a_stage_has_the_plain_name_of_a_folder(name):
    with pytest.raises(InputError, match="name=.* must be (the plain name|a text)"):
        Stage(name, "pretrain")


def test_two_stages_of_one_name_are_refused():
    changed = dataclasses.replace(BASE, settings={"seed": 3})
    rows = Row("a", {"task": TUNED}), Row("b", {"task": changed})
    with pytest.raises(InputError, match="two stages have the name 'base' and differ"):
        _study(*rows)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "name, rows",
    {
        **{"table_1": 2, "table_2": 5, "table_3": 2, "table_4": 2, "table_5": 4, "table_6": 6},
        **{"table_7": 7, "table_7.py:elmo:weights": 8},
        **{"table_8": 6, "figure_5": 2, "modern_walk": 11},
    }.items(),
)
def test_shipped_studies(repository, name, rows, scale):
    name = name if ".py" in name else f"{name}.py"
    study = read_study(f"{repository}/configs/studies/{name}", SCALES[scale])
    missing = 2 if (name, scale) == ("table_2.py", "cpu") else 0  # the rows of TriviaQA
    assert len(study.rows) == rows - missing
    for row in study.rows:
        assert any(row.of(column.stage) for column in study.columns)
    files = StudyFiles(f"{repository}/configs/studies/{name}", "corpus", "data", Path("study"))
    recipes = {"pretrain": Recipe, "finetune": TaskRecipe}
    for stage in study.stages():
        if stage.program in recipes:
            recipes[stage.program].from_config(files.config(stage))


def test_studies_of_one_folder_share_their_runs(repository):
    """Stages of one name are the same in all studies that can."""
    for scale in SCALES.values():
        found = {}
        for path in sorted((repository / "configs/studies").glob("*.py")):
            for stage in read_study(str(path), scale).stages():
                assert found.setdefault(stage.name, stage) == stage, (path.name, scale.name)


def test_the_metrics_of_each_family_are_known():
    assert checks._METRICS.keys() == TASK_LOSSES.keys()
    examples = [TextPair("0", "a", None, ("x",), "here")]
    for metric in MultiLabel(("x",)).score(examples, [np.ones(1)], {}):
        assert re.fullmatch(checks._METRICS[MultiLabel.objective], metric)


def test_the_tables_show_the_papers_figures(repository):
    study = read_study(f"{repository}/configs/studies/table_5.py", SCALES["16"])
    published = {column.name: column.published for column in study.columns}
    assert published["SQuAD F1"] == {
        **{"BERT": 88.5, "No NSP": 87.9, "LTR & No NSP": 77.8, "+ BiLSTM": 84.9}
    }
    assert [column.name for column in columns(("CoLA", "SQuAD 2.0"))] == [
        *("CoLA Matthews", "SQuAD 2.0 F1")
    ]


def test_a_file_that_names_modules_where_they_were(tmp_path):
    text = """
import bertjax.studies
import bertjax.corpus.shards as shards
from bertjax.fine_tuning import recipe
from bertjax.studies.study import Column, Row, Stage, Study

def get_study(scale):
    from bertjax.examples.masking import MaskingRule

    assert bertjax.studies.study.Study is Study
    names = shards.__name__, recipe.__name__, MaskingRule.__module__
    stage = Stage("run", "pretrain", "configs/pretrain_tiny.py")
    return Study(" ".join(names), [Row("row", {"run": stage})], [Column("a", "run", "loss")])
"""
    (tmp_path / "study.py").write_text(text, encoding="utf-8")
    finders = list(sys.meta_path)
    study = read_study(str(tmp_path / "study.py"), SCALES["cpu"])
    assert study.title.split() == [
        f"bertjax.{name}"
        for name in ("data.corpus.shards", "runs.fine_tuning.recipe", "data.examples.masking")
    ]
    assert isinstance(study, Study) and sys.meta_path == finders


def test_a_file_that_is_no_study(tmp_path):
    for text, message in {
        "": r"study.py: no get_study\(\) in it",
        "get_study = 3": r"study.py: no get_study\(\) in it",
        "def get_study(): pass": r"study.py: get_study\(\): too many positional arguments",
        "def get_study(scale): return 3": "get_study returned 3: it must return a Study",
        "def get_study(": "study.py, line 1: .* correct it",
        "\nimport no_such": "study.py, line 2: No module named 'no_such': correct the name, or in",
        "from bertjax.studies.study import Srow": "study.py, line 1: cannot import name 'Srow'",
        "def get_study(scale): import bertjax.probes.x": "No module named 'bertjax.lab.probes.x'",
    }.items():
        (tmp_path / "study.py").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            read_study(str(tmp_path / "study.py"), SCALES["cpu"])
    with pytest.raises(InputError, match="nowhere.py: no such file"):
        read_study("nowhere.py", SCALES["cpu"])
