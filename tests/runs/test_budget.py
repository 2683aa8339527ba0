"""A run is as long as its budget allows."""

import json
import re

import pytest

from bertjax.base.errors import InputError
from bertjax.programs import pretrain
from bertjax.runs import budget
from bertjax.runs.budget import Budget
from bertjax.runs.job import Job
from bertjax.training.pace import Pace
from tests.helpers.closeness import assert_close
from tests.helpers.tiny_run import metrics_of, tiny_config


def job_of(corpus, folder, **changes):
    return Job.of(tiny_config(corpus, **changes), str(folder)).within_budget()


@pytest.fixture
def paced(monkeypatch):
    """An update takes 0.5 s in the first phase, and 1.5 s in the second."""
    seconds = {"phase 1": 0.5, "phase 2": 1.5}
    monkeypatch.setattr(budget, "pace_of", lambda _, phase, *rest: Pace(9.0, seconds[phase.name]))


def steps_of(job):
    return [(phase.first_step, phase.last_step) for phase in job.plan.phases]


def test_minutes(tiny_corpus, tmp_path, paced):
    """The mean update takes 0.75 s, so 80 of them fit into a minute."""
    job = job_of(tiny_corpus, tmp_path, budget="1min")
    assert job.recipe.total_steps == 80 and steps_of(job) == [(0, 60), (60, 80)]
    assert job.recipe.optimizer.warmup_steps == 20  # 3 of 12
    assert_close(job.plan.schedule(19), 1e-2)
    assert job.plan.metadata["config"]["total_steps"] == 80
    assert job_of(tiny_corpus, tmp_path, budget="0.05h").recipe.total_steps == 240


def test_tokens_and_operations(tiny_corpus, tmp_path):
    """Both phases have batches of 512 positions."""
    assert job_of(tiny_corpus, tmp_path, budget="12e3 tokens").recipe.total_steps == 23
    whole = Job.of(tiny_config(tiny_corpus), str(tmp_path))
    each = [phase.flops for phase in whole.plan.phases]
    operations = 30 * (0.75 * each[0] + 0.25 * each[1])
    job = job_of(tiny_corpus, tmp_path, budget=f"{operations * 1.01:e}flops".replace("+", ""))
    assert job.recipe.total_steps == 30


@pytest.mark.slow
def test_a_run_keeps_the_steps_that_it_was_begun_with(tiny_corpus, tmp_path, paced, monkeypatch):
    config = tiny_config(tiny_corpus, budget="0.2min")
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["total_steps"] == 16
    assert metrics_of(tmp_path / "run")[-1]["step"] == 16

    def measured_again(*_):
        raise AssertionError

    monkeypatch.setattr(budget, "pace_of", measured_again)
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    with pytest.raises(InputError, match="another config: budget was '0.2min'"):
        pretrain.run(tiny_config(tiny_corpus, budget="0.3min"), str(tmp_path / "run"))


def test_the_pace_is_measured(tiny_corpus, tmp_path):
    """Here an update takes less than a second, and more than a tenth of a millisecond."""
    assert 60 < job_of(tiny_corpus, tmp_path, budget="1min").recipe.total_steps < 600_000


@pytest.mark.parametrize(
    "text",
    [
        *("20", "min", "0min", "-3h", "1e3.5tokens", "3 days", "nanh"),
        *("1e400tokens", "1e38h", "1..2h", ".h", "9" * 400 + "flops"),
    ],
)
def test_a_budget_that_is_none(text):
    with pytest.raises(ValueError, match=re.escape(f"budget={text!r}: must be a number below")):
        Budget.of(text)


def test_bad_input(tiny_corpus, tmp_path, paced):
    with pytest.raises(InputError, match="config.budget=511 tokens: an update alone takes 512"):
        job_of(tiny_corpus, tmp_path, budget="511tokens")
    with pytest.raises(InputError, match="an update takes 512 tokens, and a run has less than 2,1"):
        job_of(tiny_corpus, tmp_path, budget="1e37tokens")
