"""A config is its dataclasses: what may differ when a run goes on, and mistakes of every kind."""

from bertjax.base.limits import FREE
from bertjax.runs.contrastive.recipe import SimilarityRecipe
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.read import free_keys, marked
from bertjax.runs.recipe import Recipe


def test_what_may_differ_when_a_run_goes_on():
    everywhere = {"mesh", "layout", "intervals", "tracker", "model.attention"}
    kept = {"eval_batch_size", "keep_checkpoints", "keep_checkpoint_every"}
    assert set(free_keys(Recipe)) == everywhere | kept | {"corpus", "dry_run"}
    given = {"data", "init_from", "batch_tokens"}
    assert set(free_keys(TaskRecipe)) == everywhere | given | {"grid", "features.choices"}
    assert marked(TaskRecipe, FREE) == everywhere | given  # those that change no result
    assert set(free_keys(SimilarityRecipe)) == everywhere | given | {"dev"}
