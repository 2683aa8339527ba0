"""Configs of fine-tuning: the shipped ones load, and errors are named."""

import importlib
import math

import pytest

from bertjax.base.errors import InputError
from bertjax.config import finetune_config
from bertjax.runs.fine_tuning.recipe import TASKS, TaskRecipe
from bertjax.tasks import superglue
from bertjax.tasks.glue import SETS
from tests.helpers.refused import assert_refused

# configs/finetune_KEY.py -> the possible words after its colon; None: no word.
ARGUMENTS = {
    "glue": (None, *SETS),
    "glue_16": ("MRPC", "MNLI"),
    "superglue": (None, *superglue.SETS),
    "squad": (None, "v1.1", "v2.0"),
    "triviaqa": (None,),
    "swag": (None,),
    "ner": (None, "finetune", "features"),
    "student": (None,),
    "table": (None, "classification", "multi_label", "regression", "tagging", "questions"),
}
_OTHER_NAMES = {"glue_16": "glue", "student": "table"}  # of configs, and their kinds of task


def _config(name: str, argument: str | None):
    module = importlib.import_module(f"configs.finetune_{name}")
    config = module.get_config(*[] if argument is None else [argument])
    config.data, config.init_from = "DIR", "NAME"
    return config


def test_every_config_is_here(repository):
    files = repository.glob("configs/finetune_*.py")
    names = {file.stem.removeprefix("finetune_") for file in files}
    contrastive = {"embeddings", "embeddings_16", "reranker"}  # tests/runs/contrastive has them
    several = {"together"}  # tests/programs/test_finetune_together.py has it
    assert names - contrastive - several == set(ARGUMENTS) == {*TASKS, *_OTHER_NAMES}


@pytest.mark.parametrize(
    ("name", "argument"), [(name, each) for name in ARGUMENTS for each in ARGUMENTS[name]]
)
def test_every_config_loads(name, argument):
    config = _config(name, argument)
    recipe = TaskRecipe.from_config(config)
    assert isinstance(recipe.task, TASKS[_OTHER_NAMES.get(name, name)])
    assert recipe.task.data == "DIR"
    assert recipe.init_from == "NAME"
    assert (recipe.features is not None) == (argument == "features")
    assert (
        TaskRecipe.from_config(recipe.config_dict).trials() == recipe.trials()
    )  # the form of config.json
    if argument in {*SETS, *superglue.SETS, "v1.1", "v2.0"}:
        assert argument in (getattr(recipe.task, "version", ""), recipe.task.name)


@pytest.mark.parametrize(
    ("name", "argument"),
    [("glue", "SST2"), ("superglue", "AX"), ("squad", "v3"), ("ner", "feature"), ("table", "text")],
)
def test_an_unknown_word_behind_the_colon_is_refused(name, argument):
    with pytest.raises(ValueError, match=argument):  # InputError is one
        TaskRecipe.from_config(_config(name, argument))


@pytest.mark.parametrize(
    ("name", "argument", "batch", "rates", "epochs"),
    [
        ("glue", "MRPC", 32, (5e-5, 4e-5, 3e-5, 2e-5), 3),
        ("glue_16", "MRPC", 32, (5e-5, 4e-5, 3e-5, 2e-5), 3),
        ("superglue", "WiC", 4, (1e-5,), 10),
        ("squad", "v1.1", 32, (5e-5,), 3),
        ("squad", "v2.0", 48, (5e-5,), 2),
        ("swag", None, 16, (2e-5,), 3),
    ],
)
def test_the_papers_values(name, argument, batch, rates, epochs):
    """The values of sections 4.1 to 4.4."""
    trials = TaskRecipe.from_config(_config(name, argument)).trials()
    assert [each.learning_rate for each in trials] == list(rates)
    assert {(each.batch_size, each.epochs, each.seed) for each in trials} == {(batch, epochs, 0)}


def test_the_grid_of_the_appendix():
    """Section A.3: batches of 16 and 32, three rates, 2 to 4 epochs; each restart has a seed."""
    config = finetune_config()
    config.task, config.data, config.init_from = dict(kind="swag"), "DIR", "NAME"
    config.seed = 5
    config.grid = dict(batch_size=(16, 32), learning_rate=(5e-5, 3e-5, 2e-5), epochs=(2, 3, 4))
    config.grid.restarts = 2
    trials = TaskRecipe.from_config(config).trials()
    assert len(trials) == len(set(trials)) == len({each.name for each in trials}) == 36
    assert {each.seed for each in trials} == {5, 6}
    assert trials[0].name == "batch16-rate5e-05-epochs2-seed5"


def test_a_grid_of_single_numbers():
    grid = dict(batch_size=8, learning_rate=1e-3, epochs=2)
    (trial,) = TaskRecipe.from_config(_config("swag", None).to_dict() | {"grid": grid}).trials()
    assert (trial.batch_size, trial.learning_rate, trial.epochs, trial.seed) == (8, 1e-3, 2, 0)


def test_warm_up_is_a_share_of_the_steps():
    recipe = TaskRecipe.from_config(_config("swag", None))
    for steps, warmup in ((100, 10), (99, 9), (5, 0)):  # int(steps * 0.1), as run_classifier.py
        assert recipe.optimizer.warmup_of(steps) == warmup


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("a.b=classification,RTE", "'a.b=classification': the name of a task must have letters"),
        ("RTE,=classification", "'=classification': the name of a task must"),
        ("RTE,1st=tagging", "'1st=tagging': the name of a task must"),
        ("RTE,MRPC,RTE", "the name RTE is taken"),
        ("RTE,items=regression", "the name items is taken"),  # a method of the config
    ],
)
def test_a_name_that_a_task_cannot_have(tasks, message):
    with pytest.raises(InputError, match=message):
        _config("together", tasks)


_SQUAD = {"kind": "squad"}
_COLA = {"kind": "glue", "name": "CoLA"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid.epochs": (2.5,)}, "config.grid.epochs[0]=2.5: expected `int`"),
        ({"grid.batch_size": (0,)}, "config.grid.batch_size[0]=0: must be at least 1"),
        ({"grid.batch_size": (8, 10**9)}, "config.grid.batch_size[1]=1000000000: must be at most"),
        ({"grid.learning_rate": ()}, ": must be one or more positive"),
        ({"grid.learning_rate": [1e-4, 0]}, "config.grid.learning_rate[1]=0: must be abo"),
        ({"grid.learning_rate": (1e-3, math.inf)}, "config.grid.learning_rate=inf: must"),
        ({"grid.restarts": 2.0}, ": expected `int`"),
        ({"grid.restarts": 10**9}, ": must be at most 1,000"),
        ({"grid.size": 1}, "config.grid.size: unknown key: there are batch_size, lea"),
        ({"data": ""}, "config.data is empty: name the folder"),
        ({"seed": -1}, ": must be at least 0"),
        ({"seed": 3.5}, ": expected `int`"),
        (
            {"seed": 2**31 - 1, "grid.restarts": 2},
            "the last trial's config.seed=2147483648: must be at most",
        ),
        ({"max_length": 0}, ": must be at least 1"),
        ({"batch_tokens": -1}, ": must be at least 0"),
        ({"buckets": 0}, ": must be at least 1"),
        ({"batch": 5}, "config.batch: unknown key: there are *batch_tokens"),
        ({"layout": "rows"}, "*layout='rows': must be one of data"),
        ({"share_power": 1.5}, ": must be from 0 to 1"),
        ({"optimizer.name": "sgd"}, ""),
        ({"optimizer.epsilon": math.inf}, ": must be 0, or"),
        ({"optimizer.learning_rate": 1e-5}, "*rate: give it as config.grid.learning_rate"),
        ({"tasks": {}}, "config.task and config.tasks: leave one out"),
        ({"task.kind": ["swag"]}, ": must be one of glue"),
        ({"task": _SQUAD | {"n_best": None}}, "config.task.n_best=None: expected `int`"),
        ({"task": _SQUAD | {"n_bets": 3}}, "config.task.n_bets: *mean n_best?"),
        ({"task": _SQUAD | {"stride": 0}}, "config.task.stride=0: must be at lea"),
        ({"task.n": 5}, "config.task.n: unknown key: there are data"),
        ({"task.answer_steps": 5}, "config.task.answer_steps: unknown key"),
        (
            {"task": _COLA | {"answer_steps": 5}},
            "config.task.answer_steps=5: an answer network reads pairs *, and CoLA has none",
        ),
        ({"features.choices": ["top"]}, "config.features.choices=*must be one or more of"),
        ({"features.hidden": 0, "features.choices": ["last"]}, ": must be at"),
        ({"bilstm.hidden": -1}, ": must be at least 0"),
        ({"bilstm.width": 768}, "config.bilstm.width: unknown key: there are hidden, "),
        ({"bilstm.depth": 1}, "config.bilstm=*'depth': 1*: with hidden=0 there is no"),
        (
            {"bilstm.hidden": 8, "features.choices": ["last"]},
            ": a tagger over fixed features has a BiLSTM already",
        ),
    ],
)
def test_mistakes_are_named(changes, message):
    assert_refused(TaskRecipe.from_config, _config("swag", None).to_dict(), changes, message)
