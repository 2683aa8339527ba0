"""A phase may minimize another objective than the run, with the same parameters."""

import json

import numpy as np
import pytest

from bertjax.models.encoders import head_types
from bertjax.programs import evaluate, pretrain
from bertjax.runs.recipe import Recipe
from bertjax.runs.source import load_run, open_model
from tests.helpers.tiny_run import metrics_of, tiny_config

MASKED = {"objective": "masked_lm", "intervals": {"log": 1, "checkpoint": 3}}


def config_of(corpus, **changes):
    return tiny_config(corpus, **{**MASKED, **changes})


def losses(run, split):
    return [row["mlm_loss"] for row in metrics_of(run) if row["split"] == split]


@pytest.fixture(scope="module")
def turned(tiny_corpus, tmp_path_factory):
    """A run of 9 updates left to right, and 3 with masked tokens."""
    run = tmp_path_factory.mktemp("turned") / "run"
    first = {"objective": "left_to_right"}
    config = config_of(tiny_corpus, phase_1=first, keep_checkpoint_every=9)
    assert pretrain.run(config, str(run)) == 0
    return run


@pytest.mark.slow
def test_each_phase_minimizes_its_own_objective(tiny_corpus, tmp_path, turned):
    """The first phase is that of a run left to right; the run has the objective of its config."""
    of_one = config_of(tiny_corpus, objective="left_to_right")
    assert pretrain.run(of_one, str(tmp_path / "left")) == 0
    both, left = losses(turned, "train"), losses(tmp_path / "left", "train")
    np.testing.assert_array_equal(both[:9], left[:9])
    assert all(a != b for a, b in zip(both[9:], left[9:], strict=True))
    assert load_run(turned).objective == Recipe.from_config(config_of(tiny_corpus)).objective
    assert losses(turned, "heldout")[0] == losses(tmp_path / "left", "heldout")[0]


@pytest.mark.slow
def test_a_checkpoint_is_a_model_of_its_phase(turned):
    assert open_model(f"{turned}@9").head_type == head_types.CAUSAL_LM
    assert open_model(f"{turned}@9").spec.causal
    assert open_model(str(turned)).head_type == head_types.MASKED_LM
    assert not open_model(str(turned)).spec.causal
    evaluate.run(f"{turned}@9", None, 1)
    of_left = json.loads((turned / "evaluation.json").read_text())
    at_9 = [row for row in metrics_of(turned) if row["split"] == "heldout" and row["step"] == 6]
    assert of_left["step"] == 9 and at_9
    assert evaluate.run(str(turned), None, 1)["32"]["mlm_loss"] != of_left["32"]["mlm_loss"]


def test_the_settings_of_a_phase(tiny_corpus):
    ramp = {"objective": {"name": "masked_lm", "z_loss": 1e-4}}
    recipe = Recipe.from_config(config_of(tiny_corpus, phase_2=ramp))
    first, second = recipe.phases
    assert first.objective == recipe.objective and first.objective.z_loss == 0
    assert second.objective.z_loss == 1e-4 and second.objective.name == "masked_lm"
