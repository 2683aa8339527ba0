"""docs/config.md and --config=NAME --help: every key of a config, with its explanation.

That the page is made from them: tests/repository/test_reference.py.
"""

import re
import subprocess
import sys

import pytest

from bertjax.objectives.registry import OBJECTIVES
from bertjax.programs import config_page
from bertjax.runs.contrastive.recipe import SimilarityRecipe
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.recipe import Recipe
from configs import finetune_embeddings, finetune_glue, pretrain_electra_tiny
from tests.helpers.checkout import REPOSITORY


@pytest.mark.parametrize("recipe", [Recipe, TaskRecipe, SimilarityRecipe])
def test_every_key_is_explained(recipe):
    rows = list(config_page.rows_of(recipe))
    made = [each for row in rows if row.choice for each in row.choice.types.values()]
    for each in {recipe, *made}:
        assert [row.key for row in config_page.rows_of(each) if not row.what] == []
    assert len({row.key for row in rows}) == len(rows) > 40


def test_what_a_row_says():
    rows = {row.key: row for row in config_page.rows_of(TaskRecipe)}
    assert rows["optimizer.warmup_proportion"][1:3] == ("number, in [0, 1)", "0.1")
    grid = rows["grid.batch_size"]
    numbers = "whole number, from 1 to 1,000,000"
    assert grid[1:3] == (f"several of: {numbers}; or {numbers}", "(32,)")
    rows = {row.key: row for row in config_page.rows_of(Recipe)}
    assert rows["corpus"][1:3] == ("names with commas between", "''")
    assert rows["corpus"].what.endswith("It may change when the run goes on.")
    assert rows["objective"].choice.types is OBJECTIVES


@pytest.mark.parametrize(
    "config, keys",
    [
        (pretrain_electra_tiny, ("objective.generator_width", "model.embedding_size", "ema")),
        (finetune_glue, ("task.answer_steps", "grid.restarts", "bilstm.depth")),
        (finetune_embeddings, ("task.pooling", "loss.scale", "intervals.evaluate")),
    ],
)
def test_the_keys_of_a_config(config, keys):
    found = re.findall(r"^  --config\.([\w.]+): ", config_page.text(config.get_config()), re.M)
    assert set(keys) <= set(found) and len(set(found)) == len(found)


def test_help_of_a_config():
    words = ["--config=tiny", "--config.seed=7", "--help"]
    result = subprocess.run(
        [sys.executable, REPOSITORY / "launch" / "pretrain.py", *words],
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "--config.phase_1.length: whole number, at least 1 (must be given)\n" in result.stdout
    assert "--workdir" in result.stdout
