"""A run of distillation: how its teacher and its student begin, and what becomes of them."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.inference.blanks import fill
from bertjax.models.encoders import head_types
from bertjax.programs import compile_check, convert, evaluate, pretrain, show_sharding
from bertjax.runs import job
from bertjax.runs.job import Job
from bertjax.runs.source import open_model
from bertjax.training.checkpoint import newest_metadata
from configs import pretrain_distil_tiny
from tests.helpers.closeness import LOGITS, assert_close, rounding
from tests.helpers.stopped import assert_goes_on_exactly
from tests.helpers.tiny_run import ONE_LENGTH, corpus_once, metrics_of, rows_of, tiny_config

pytestmark = pytest.mark.slow

LEARNED = dict(total_steps=40, objective=dict(cosine_weight=20.0))


def _config(corpus, teacher="", student="", **changes):
    model = dict(encoder="distilbert") | changes.pop("model", {})
    objective = dict(name="distillation") | changes.pop("objective", {})
    source = dict(teacher=str(teacher), student=str(student))
    return tiny_config(
        corpus, objective=objective, init_from=source, model=model, **ONE_LENGTH | changes
    )


@pytest.fixture(scope="module")
def run(tiny_corpus, tiny_run, pretrained_once):
    """A student with random weights; do not write into it."""
    return pretrained_once("distillation_run", _config(tiny_corpus, tiny_run, **LEARNED))


def test_the_student_approaches_its_teacher(run, tiny_run):
    held_out = rows_of(run, "heldout")
    first, last = held_out[0], held_out[-1]
    for loss in ("distil_loss", "mlm_loss"):
        assert last[loss] < 0.7 * first[loss], loss
    assert last["cosine_loss"] < 0.8 * first["cosine_loss"] < 1
    assert first["teacher_accuracy"] == last["teacher_accuracy"] > 0.7
    expected = 2 * last["mlm_loss"] + 5 * last["distil_loss"] + 20 * last["cosine_loss"]
    assert last["loss"] == pytest.approx(expected, rel=1e-4)

    config = json.loads((run / "config.json").read_text())
    teacher, model = config["objective"]["teacher"], config["model"]
    assert (teacher["encoder"], teacher["hidden_size"]) == ("bert", 32)
    assert model["encoder"] == "distilbert" and "type_vocab_size" not in model
    student = open_model(str(run))
    assert (student.head_type, student.class_name) == (
        head_types.MASKED_LM,
        "DistilBertForMaskedLM",
    )
    assert student.params.keys() == {"distilbert", "masked_lm"}
    identity = open_model(str(tiny_run)).identity
    assert newest_metadata(run / "checkpoints")["data"]["frozen teacher"] == identity
    names = [path.read_text() for path in (run / "checkpoints").rglob("_METADATA")]
    assert names and not any("teacher" in text for text in names)
    (guesses,) = fill(student, ["moo [MASK] moo moo."], 3)
    assert len(guesses) == 1 and len(guesses[0]) == 3


@pytest.mark.parametrize("encoder, sources", [("distilbert", "#0"), ("bert", "#0,0")])
def test_a_student_begins_with_layers_of_its_teacher(
    tiny_corpus, tiny_run, tmp_path, encoder, sources
):
    config = _config(tiny_corpus, tiny_run, f"{tiny_run}{sources}", model=dict(encoder=encoder))
    job = Job.of(config, str(tmp_path / "run"))
    assert job.spec.encoder == encoder
    assert job.spec.num_hidden_layers == len(sources.split(","))
    pretrained, teacher = job.pretrained["student"], job.trainer.experiment.frozen["teacher"]
    for layer in pretrained.params[encoder]["encoder"].values():
        jax.tree.map(np.testing.assert_array_equal, layer, teacher["bert"]["encoder"]["layer_0"])
    said = job.announcement()
    assert "fresh" not in said
    assert ("left out: distilbert/embeddings/segment" in said) == (encoder == "distilbert")


def test_a_whole_teacher_has_nothing_to_teach(tiny_corpus, tiny_run, tmp_path):
    """A student with all its weights begins with no difference, and stays there."""
    config = _config(
        tiny_corpus,
        tiny_run,
        tiny_run,
        model=dict(encoder="bert", hidden_dropout_prob=0.0),
        objective=dict(mlm_weight=0.0),
        total_steps=2,
        optimizer={"weight_decay": 0.0, "learning_rate": 1e-6, "warmup_steps": 1},
    )
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    last = metrics_of(tmp_path / "run")[-1]
    # Logarithms, of a teacher that is nearly sure, and cosines are added up.
    assert_close([last["distil_loss"], last["cosine_loss"]], [0.0, 0.0], size=1.0)
    assert last["mlm_accuracy"] == last["teacher_accuracy"] > 0.7


def test_weights_that_cannot_teach(tiny_corpus, tiny_run, left_to_right_run, tmp_path):
    def refused(message, corpus=tiny_corpus, **settings):
        with pytest.raises(InputError, match=message):
            pretrain.run(_config(corpus, **settings), str(tmp_path / "run"))
        assert not (tmp_path / "run").exists()

    refused(r"config\.init_from\.teacher is empty: objective='distillation' needs the weights")
    refused("init_from.teacher: the teacher reads left to right", teacher=left_to_right_run)
    wide = dict(hidden_size=48)
    refused("are 32 wide and the student's 48", teacher=tiny_run, model=wide)
    long = dict(max_position_embeddings=80)
    refused("max_position_embeddings=80: the teacher takes 64", teacher=tiny_run, model=long)
    refused("weights of a bert, and config.model.encoder='modernbert'",
            teacher=tiny_run, student=tiny_run, model=dict(encoder="modernbert"))  # fmt: skip

    corpus = corpus_once("fewer_tokens", learn_vocabulary=70)
    refused(
        "weights that are not trained keep their vocabulary",
        corpus=corpus,
        teacher=tiny_run,
    )


def test_a_teacher_without_its_head(tiny_corpus, tiny_run, tmp_path, monkeypatch):
    pretrained = open_model(str(tiny_run))
    bare = dataclasses.replace(pretrained, params={"bert": pretrained.params["bert"]})
    monkeypatch.setattr(job, "open_model", lambda source: bare)
    with pytest.raises(InputError, match="has no masked_lm, which a teacher must have learned"):
        Job.of(_config(tiny_corpus, tiny_run), str(tmp_path / "run"))


def test_its_sharding_is_shown_without_a_teacher(tiny_corpus):
    rows = show_sharding.run(_config(tiny_corpus))
    assert {row.path.split("/")[0] for row in rows} == {"student"}


def test_the_shipped_config(tiny_corpus, tiny_run, tmp_path):
    config = pretrain_distil_tiny.get_config(str(tiny_run))
    assert config.init_from.student == f"{tiny_run}#0,2,4"
    config.corpus, config.phase_1.length = str(tiny_corpus), 32
    config.init_from.student = f"{tiny_run}#0,0,0"
    job = Job.of(config, str(tmp_path / "run"))
    assert (job.spec.encoder, job.spec.num_hidden_layers) == ("distilbert", 3)
    assert job.recipe.objective.loss_weights == {
        "mlm_loss": 2.0,
        "distil_loss": 5.0,
        "cosine_loss": 1.0,
    }


@pytest.mark.slow
@pytest.mark.needs("libtpu")
def test_the_compile_report_has_both_models():
    """The teacher's products, which have no backward pass, count next to the student's."""
    model = dict(hidden_size=128, compute_dtype="bfloat16", vocab_multiple=128)
    model["max_position_embeddings"] = 128
    phase = {"phase_1": {"share": 1.0, "length": 128, "batch_size": 32}}

    def seconds(layers):
        teacher = dict(encoder="bert", size="mini", num_hidden_layers=layers)
        objective = dict(cosine_weight=0.0, teacher=teacher)
        config = _config("", model=model, objective=objective, **phase)
        (report,) = compile_check.run(config, "v5e:4x4")
        return report.estimate.parts["feed-forward", "forward"]

    assert seconds(5) > 1.5 * seconds(1)


@pytest.mark.slow
def test_it_is_evaluated_resumed_and_exported(run, tiny_corpus, tiny_run, tmp_path):
    config = _config(tiny_corpus, tiny_run, **LEARNED)
    assert_goes_on_exactly(config, run, tmp_path / "run", lines=9)
    figures = evaluate.run(str(tmp_path / "run"), None, 2)["32"]
    assert figures["distil_loss"] < 5 and figures["teacher_accuracy"] > 0.7
    assert max(convert.run(str(run), f"hf:{tmp_path / 'exported'}").values()) < rounding(LOGITS)
    written = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert written["architectures"] == ["DistilBertForMaskedLM"]
    again = _config(tiny_corpus, tiny_run, f"hf:{tmp_path / 'exported'}")
    pretrained = Job.of(again, str(tmp_path / "again")).pretrained["student"]
    jax.tree.map(
        np.testing.assert_array_equal, dict(pretrained.params), dict(open_model(str(run)).params)
    )
