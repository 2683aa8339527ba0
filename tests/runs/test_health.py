"""The health status on a run's folder, and the file that it needs next to the lines."""

import json
import shutil

import pytest

from bertjax.base.errors import InputError, NonFiniteLoss
from bertjax.data.corpus.store import TokenStore, open_tokenizer
from bertjax.programs import pretrain
from bertjax.runs.health import health_of, health_status_of_run, unigram_baselines
from bertjax.runs.recipe import Recipe
from bertjax.training.health import HEALTHY, UNKNOWN
from bertjax.training.loop import Trainer
from configs import pretrain_tiny
from tests.benchmarks.tables import RESULTS
from tests.helpers.tiny_run import tiny_config


def test_a_real_run_gives_no_alarm():
    """BERT-Mini on 24 million words of Wikipedia, at each of its lines: it stays on the plateau."""
    config = pretrain_tiny.get_config()
    config.total_steps = 3_000
    config.phase_1.batch_size, config.phase_2.batch_size = 16, 4
    config.optimizer.warmup_steps = 300
    lines = (RESULTS / "enwiki_mini.jsonl").read_text(encoding="utf-8").splitlines()
    rows = sorted(map(json.loads, lines), key=lambda row: row["step"])
    for row in rows:  # 136 of the 256 pairs at length 128 have one answer
        constant = row["nsp_accuracy"] in (136 / 256, 120 / 256)
        row["nsp_random_answers"] = 1.0 if constant else 0.5
    health = health_of(Recipe.from_config(config), {"": 6.6064})
    assert {health.status(rows[:end]).name for end in range(len(rows) + 1)} == {UNKNOWN}
    assert str(health.status(rows)) == (
        "unknown: held-out mlm_loss 6.70 (unigram baseline 6.61), mlm_accuracy 13.7%, "
        "after 6.1 M tokens; it does not use the context yet"
    )


def test_a_run_says_at_its_end_whether_it_is_healthy(tiny_run, tiny_corpus, tmp_path, capsys):
    health = json.loads((tiny_run / "health.json").read_text())
    recipe = Recipe.from_config(json.loads((tiny_run / "config.json").read_text()))
    tokenizer, train = open_tokenizer(str(tiny_corpus)), TokenStore.open(tiny_corpus)
    assert health == {"unigram_baseline": unigram_baselines(recipe, tokenizer, train)[""]}
    status = health_status_of_run(tiny_run)
    assert status.name == HEALTHY
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "health.json").unlink()
    assert "unigram baseline" not in str(health_status_of_run(run))
    assert pretrain.run(dict(recipe.config_dict), str(run)) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [f"{run}: 160 steps done", str(status)]
    assert health_status_of_run(run) == status


def test_a_run_whose_loss_is_not_finite(tiny_corpus, tmp_path, monkeypatch):
    def train(*_, **__):
        raise NonFiniteLoss("step 3: the loss is nan")

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "train", train)
        with pytest.raises(NonFiniteLoss):
            pretrain.run(tiny_config(tiny_corpus), str(tmp_path / "run"))
    assert str(health_status_of_run(tmp_path / "run")) == "diverging: step 3: the loss is nan"


def test_a_damaged_file(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    (run / "health.json").write_text('{"unigram_baseline": "low"}')
    with pytest.raises(InputError, match="health.json: damaged.*unigram_baseline='low'.*remove"):
        health_status_of_run(run)


def test_each_objective_has_its_baseline(tiny_corpus):
    """Of next tokens none is shown, so a guess by frequencies alone has the whole entropy."""
    tokenizer, train = open_tokenizer(str(tiny_corpus)), TokenStore.open(tiny_corpus)
    baselines = {
        name: unigram_baselines(
            Recipe.from_config(tiny_config(tiny_corpus, objective=name)), tokenizer, train
        )[""]
        for name in ("masked_lm", "masked_lm_next_sentence", "left_to_right")
    }
    assert baselines["masked_lm"] == baselines["masked_lm_next_sentence"]
    assert 0.8 < baselines["masked_lm"] / baselines["left_to_right"] < 1
