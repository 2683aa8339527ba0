"""A config is its dataclasses: what may differ when a run goes on, and what is left out."""

import numpy as np

from bertjax.base.limits import FREE
from bertjax.config import finetune_config, paper_config, similarity_config
from bertjax.runs.contrastive.recipe import SimilarityRecipe
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.read import free_keys, marked
from bertjax.runs.recipe import Recipe
from tests.helpers.refused import changed


def _given(config):
    config.update(data="DIR", init_from="NAME")
    return config.to_dict()


_SWAG = _given(finetune_config()) | {"task": {"kind": "swag"}}
P, F, S = "pretrain", "finetune", "similarity"
RECIPES = {
    P: (Recipe, paper_config().to_dict()),
    F: (TaskRecipe, _SWAG),
    S: (SimilarityRecipe, _given(similarity_config())),
}


def _read(name, changes):
    recipe, config = RECIPES[name]
    return recipe.from_config(changed(config, changes))


def test_what_may_differ_when_a_run_goes_on():
    everywhere = {"mesh", "layout", "intervals", "tracker", "model.attention"}
    kept = {"eval_batch_size", "keep_checkpoints", "keep_checkpoint_every"}
    assert set(free_keys(Recipe)) == everywhere | kept | {"corpus", "dry_run"}
    sources = {"data", "init_from", "batch_tokens"}
    assert set(free_keys(TaskRecipe)) == everywhere | sources | {"grid", "features.choices"}
    assert marked(TaskRecipe, FREE) == everywhere | sources  # those that change no result
    assert set(free_keys(SimilarityRecipe)) == everywhere | sources | {"dev"}


def test_values_of_numpy_are_numbers():
    changes = {"seed": np.int64(7), "ema": np.float64(0.5), "total_steps": np.int32(20_000)}
    recipe = _read(P, changes)
    assert (recipe.seed, recipe.ema, recipe.total_steps) == (7, 0.5, 20_000)
    assert type(recipe.config_dict["seed"]) is int


def test_a_section_that_is_left_out_is_the_default():
    whole = {key: _read(key, {}) for key in RECIPES}
    for name, section in ((P, "masking"), (F, "optimizer"), (F, "grid")):
        recipe, config = RECIPES[name]
        less = recipe.from_config({key: x for key, x in config.items() if key != section})
        assert less == whole[name], section
    assert _read(S, {"optimizer": {}}) == whole[S]
