"""Several tasks in one run: their results, models, and what goes on from them."""

import statistics

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.models.encoders import head_types
from bertjax.programs import convert, ensemble, finetune
from bertjax.runs.fine_tuning import job
from bertjax.runs.fine_tuning.fine_tuned import open_fine_tuned
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.run_folder import read_results
from bertjax.runs.source import open_model
from configs import finetune_together
from tests.helpers.built_once import built_once
from tests.helpers.closeness import LOGITS, rounding
from tests.helpers.task_files import FAMILIES, tiny_finetuning
from tests.helpers.tiny_run import rows_of

pytestmark = pytest.mark.slow

_TASKS = {
    **{"CoLA": "CoLA", "numbers": "own numbers", "tags": "own tags", "asked": "own questions"},
    "MRPC": "MRPC",
}
_OWN = {"MRPC": dict(answer_steps=3)}  # fields besides those of the family


def _config(tiny_run, folder, tasks=_TASKS, **changes):
    """The config of tasks by name, each with data in a folder of its own."""
    config = tiny_finetuning(tiny_run, "none", accumulate=1, **changes)
    del config.task, config.data
    config.tasks = {
        name: dict(FAMILIES[family].task, data=str(folder / name), **_OWN.get(name, {}))
        for name, family in tasks.items()
    }
    return config


@pytest.fixture
def together(tiny_run):
    """The config of a finished run, and its folder; do not write into it."""

    def build(folder):
        for name, family in _TASKS.items():
            FAMILIES[family].write(folder / name)
        assert finetune.run(_config(tiny_run, folder), str(folder / "run")) == 0

    folder = built_once("together", build)
    return _config(tiny_run, folder), folder / "run"


def test_every_task_learns_and_has_the_files_of_a_run_of_it_alone(together):
    config, run = together
    tasks = TaskRecipe.from_config(config).tasks
    values = []
    for name, task in tasks.items():
        results = read_results(run / name)
        assert (results["task"], results["metric"]) == (task.name, task.metric)
        assert results["together"] == list(tasks)
        values.append(results["dev"][task.dev_splits[0]][task.metric])
        assert values[-1] >= FAMILIES[_TASKS[name]].least, name
        (trial,) = results["trials"]
        assert trial["value"] == values[-1] == results["summary"][0]["mean"]
        assert results["predictions"].keys() == FAMILIES[_TASKS[name]].predictions.keys()
    whole = read_results(run)
    assert (whole["metric"], whole["task"]) == ("mean", "CoLA, MRPC, asked, numbers, tags")
    assert whole["trials"][0]["value"] == pytest.approx(statistics.mean(values))
    assert whole["dev"]["CoLA dev"] == read_results(run / "CoLA")["dev"]["dev"]
    train = rows_of(run, "train")
    names = set().union(*train)
    assert {"CoLA/accuracy", "asked/accuracy", "tags/accuracy", "numbers/task_loss"} <= names
    assert "numbers/accuracy" not in names


def test_the_models_have_one_encoder_and_serve_their_tasks(together, tmp_path):
    config, run = together
    tasks = TaskRecipe.from_config(config).tasks
    models = {name: open_model(str(run / name)) for name in tasks}
    shared = open_model(str(run))
    assert set(shared.params) == {"bert", "pooler"} and shared.classes == ()
    for name, model in models.items():
        for branch in set(shared.params) & set(model.params):
            jax.tree.map(np.testing.assert_array_equal, model.params[branch], shared.params[branch])
        own = {"asked": "span", "MRPC": "answer_network"}.get(name, "classifier")
        assert set(model.params) - set(shared.params) == {own}
    # A model predicts as it did when it was trained.
    for name in ("CoLA", "tags", "MRPC"):
        task, served = tasks[name], open_fine_tuned(str(run / name))
        dev = task.read("dev")
        score = task.score(dev, served.predict(dev, "dev"), served.settings)
        assert score == pytest.approx(read_results(run / name)["dev"]["dev"], abs=1e-3)
    found = convert.run(str(run / "tags"), f"hf:{tmp_path / 'tags'}")
    assert max(found.values()) < rounding(LOGITS)
    card = (tmp_path / "tags" / "README.md").read_text(encoding="utf-8")
    assert "CoLA" in card
    assert open_fine_tuned(str(run / "MRPC")).family == tasks["MRPC"].family
    with pytest.raises(InputError, match="transformers has no such model .*an answer network"):
        convert.run(str(run / "MRPC"), f"hf:{tmp_path / 'MRPC'}")
    for use in (open_fine_tuned, lambda source: convert.run(source, f"hf:{tmp_path / 'all'}")):
        with pytest.raises(InputError, match="name one of its tasks: .*run/CoLA, .*run/tags"):
            use(str(run))
    with pytest.raises(InputError, match="name the folder of one of them, as RUN/TASK"):
        ensemble.run([str(run), str(run / "CoLA")], str(tmp_path / "both"), "votes")


def test_a_task_alone_goes_on_from_the_shared_weights(together):
    """From RUN, its output layer is new; from RUN/TASK it goes on with that of the run."""
    _, run = together
    for source, branches in (
        (run, {"bert", "pooler"}),
        (run / "CoLA", {"bert", "pooler", "classifier"}),
    ):
        pretrained = open_model(str(source))
        started = pretrained.beginning(
            head_types.SEQUENCE_CLASSIFICATION, ("unacceptable", "acceptable")
        )
        assert set(started) == branches


def _same_twice(config):
    config.tasks.other = config.tasks.CoLA.to_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.tasks.CoLA.update(data="nowhere"), "nowhere.*: no such folder"),
        (
            lambda c: c.tasks.CoLA.update(data=""),
            "config.tasks.CoLA.data is empty: name the folder",
        ),
        (lambda c: c.tasks.CoLA.update(kind="cola"), "config.tasks.CoLA.kind='cola': must be one"),
        (lambda c: c.tasks.tags.update(labels="x"), "config.tasks.tags.labels: unknown key"),
        (lambda c: c.update(tasks={"a/b": c.tasks.CoLA}), "config.tasks.a/b: the name of a task"),
        (lambda c: c.update(share_power=1.5), "config.share_power=1.5: must be from 0 to 1"),
        (
            lambda c: c.tasks.CoLA.update(answer_steps=2),
            "config.tasks.CoLA.answer_steps=2: .*, and CoLA has none: set it to 0",
        ),
        (_same_twice, "config.tasks: CoLA and other are the same task on the same data"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_compiled(
    together, tmp_path, change, message, monkeypatch
):
    config, _ = together
    monkeypatch.setattr(job, "Trials", None)  # which compiles
    change(config)
    with pytest.raises(InputError, match=message):
        finetune.run(config, str(tmp_path / "run"))


def test_one_task_alone_is_no_list(together, tmp_path):
    config, _ = together
    for name in ("asked", "numbers", "tags", "MRPC"):
        del config.tasks[name]
    with pytest.raises(InputError, match="config.tasks names CoLA: name two or more; one task"):
        finetune.run(config, str(tmp_path / "run"))


def test_the_words_behind_the_colon():
    tasks = finetune_together.get_config("STS-B,squad,stars=classification").tasks
    answers = dict(answer_steps=0, answer_dropout=0.1)
    assert tasks.STS_B.to_dict() == dict(kind="glue", name="STS-B", data="", **answers)
    of_both = finetune_together.get_config("RTE,WiC").tasks  # GLUE's RTE
    assert [each.kind for each in of_both.values()] == ["glue", "superglue"]
    assert (tasks.squad.kind, tasks.squad.version) == ("squad", "v1.1")
    assert (tasks.stars.kind, tasks.stars.problem) == ("table", "classification")
    with pytest.raises(InputError, match="'mrpc': a task must be one of CoLA, .*; one of squad, "):
        finetune_together.get_config("RTE,mrpc")
