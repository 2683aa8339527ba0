"""A config is its dataclasses: what may differ when a run goes on, and mistakes of every kind."""

import copy
import re

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.base.limits import FREE
from bertjax.config import finetune_config, paper_config, similarity_config
from bertjax.runs.contrastive.recipe import SimilarityRecipe
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.read import free_keys, marked
from bertjax.runs.recipe import Recipe


def _given(config):
    config.update(data="DIR", init_from="NAME")
    return config.to_dict()


_SWAG = _given(finetune_config()) | {"task": {"kind": "swag"}}
P, F, S = "pretrain", "finetune", "similarity"
KINDS = {
    P: (Recipe, paper_config().to_dict()),
    F: (TaskRecipe, _SWAG),
    S: (SimilarityRecipe, _given(similarity_config())),
}


def _read(kind, changes):
    """The recipe of a config of a kind with some keys changed, which are named as in a flag."""
    recipe, config = KINDS[kind]
    config = copy.deepcopy(config)
    for key, value in changes.items():
        *sections, last = key.split(".")
        section = config
        for name in sections:
            section = section[name]
        section[last] = value
    return recipe.from_config(config)


def test_what_may_differ_when_a_run_goes_on():
    everywhere = {"mesh", "layout", "intervals", "tracker", "model.attention"}
    kept = {"eval_batch_size", "keep_checkpoints", "keep_checkpoint_every"}
    assert set(free_keys(Recipe)) == everywhere | kept | {"corpus", "dry_run"}
    given = {"data", "init_from", "batch_tokens"}
    assert set(free_keys(TaskRecipe)) == everywhere | given | {"grid", "features.choices"}
    assert marked(TaskRecipe, FREE) == everywhere | given  # those that change no result
    assert set(free_keys(SimilarityRecipe)) == everywhere | given | {"dev"}


@pytest.mark.parametrize(
    ("kind", "key", "value", "message"),
    [
        ("pretrain", "optimiser", {}, "config.optimiser: unknown key: there are model, *phase_1, "),
        (P, "optimiser", {}, "*: did you mean optimizer?"),
        (P, "optimizer.learnig_rate", 1e-4, "*: did you mean learning_rate?"),
        (
            "pretrain",
            "phase_2.batchsize",
            8,
            "config.phase_2.batchsize: *: did you mean batch_size",
        ),
        (P, "mesh.data", -2, "config.mesh.data=-2: must be at least -1"),
        (P, "mesh.model", 0, "config.mesh.model=0: must be at least 1"),
        (P, "intervals.log", 0, "config.intervals.log=0: must be at least 1"),
        (P, "intervals.log", "1", "config.intervals.log='1': expected `int`"),
        (P, "keep_checkpoints", 0, "config.keep_checkpoints=0: must be at least 1"),
        (P, "ema", -0.1, "config.ema=-0.1: must be in [0, 1)"),
        (P, "language_alpha", 0, "config.language_alpha=0: must be in (0, 1]"),
        (P, "corpus", 3, "config.corpus=3: expected `str`, got `int`"),
        (P, "seed", {1}, "--config: {1} is no value of a config: it has numbers, texts"),
        (P, "init_from", 3, "config.init_from=3: expected `str | object`, got `int`"),
        (P, "model.num_hidden_layers", 1001, "*layers=1001: must be at most 1,000"),
        (P, "model.attention", 3, "config.model.attention=3: expected `str`"),
        (P, "phase_1.accumulate", 0, "config.phase_1.accumulate=0: must be at least 1"),
        (P, "masking.copies", -1, "config.masking.copies=-1: must be at least 0"),
        (
            "pretrain",
            "objective",
            {"name": "electra", "generator_width": 0},
            "*_width=0: must be in",
        ),
        (
            "pretrain",
            "objective",
            {"name": "electra", "shared": 1},
            "config.objective.shared: unkn",
        ),
        (
            "finetune",
            "grid.learning_rate",
            [1e-4, 0],
            "config.grid.learning_rate[1]=0: must be abo",
        ),
        (F, "task", {"kind": "squad", "n_bets": 3}, "config.task.n_bets: *mean n_best?"),
        (
            "finetune",
            "task",
            {"kind": "squad", "stride": 0},
            "config.task.stride=0: must be at lea",
        ),
        (F, "tasks", {}, "config.task and config.tasks: leave one out"),
        (
            "finetune",
            "optimizer.learning_rate",
            1e-5,
            "*rate: give it as config.grid.learning_rate",
        ),
        (F, "share_power", 1.5, "config.share_power=1.5: must be from 0 to 1"),
        (F, "max_length", 0, "config.max_length=0: must be at least 1"),
        (S, "batch_size", 1, "config.batch_size=1: must be at least 2"),
        (S, "sparsity", (0.1,), "config.sparsity=[0.1]: expected `array` of length 2"),
        (S, "dimensions", (0,), "config.dimensions[0]=0: must be at least 1"),
        (
            "similarity",
            "task.kind",
            "densely",
            "config.task.kind='densely': must be one of dense, ",
        ),
        (S, "loss.scael", 2.0, "config.loss.scael: *mean scale?: name the loss after"),
    ],
)
def test_mistakes_are_named(kind, key, value, message):
    pattern = re.escape(message).replace(r"\*", ".*")
    with pytest.raises(InputError, match=f"^{pattern}"):
        _read(kind, {key: value})


def test_values_of_numpy_are_numbers():
    changes = {"seed": np.int64(7), "ema": np.float64(0.5), "total_steps": np.int32(20_000)}
    recipe = _read(P, changes)
    assert (recipe.seed, recipe.ema, recipe.total_steps) == (7, 0.5, 20_000)
    assert type(recipe.config_dict["seed"]) is int


def test_a_section_that_is_left_out_is_the_default():
    whole = {key: _read(key, {}) for key in KINDS}
    for kind, section in ((P, "masking"), (F, "optimizer"), (F, "grid")):
        recipe, config = KINDS[kind]
        less = recipe.from_config({key: x for key, x in config.items() if key != section})
        assert less == whole[kind], section
    assert _read(S, {"optimizer": {}}) == whole[S]
