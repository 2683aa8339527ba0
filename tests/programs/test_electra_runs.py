"""A run of ELECTRA through every program: which of its two models each takes."""

import json
import shutil

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.inference.features.compute import Options
from bertjax.models.encoders import head_types
from bertjax.objectives.electra import ReplacedTokenDetection
from bertjax.programs import (
    convert,
    evaluate,
    extract_features,
    fill_mask,
    finetune,
    masked_text,
    predict,
    pretrain,
    show_sharding,
)
from bertjax.runs import same_text
from bertjax.runs.health import health_status_of_run
from bertjax.runs.source import load_run, open_model
from tests.helpers.closeness import LOGITS, assert_close, rounding
from tests.helpers.stopped import assert_goes_on_exactly
from tests.helpers.task_files import FAMILIES, tiny_finetuning
from tests.helpers.tiny_run import ONE_LENGTH, metrics_of, rows_of, tiny_config

pytestmark = pytest.mark.slow

MODEL = dict(
    encoder="electra",
    size="tiny",
    hidden_size=32,
    intermediate_size=48,
    embedding_size=24,
    num_hidden_layers=1,
    max_position_embeddings=64,
    initializer_range=0.15,
)


def _config(corpus, model=MODEL, **changes):
    objective = dict(name="electra", generator_width=0.5) | changes.pop("objective", {})
    changes = dict(short_probability=0.0) | ONE_LENGTH | changes
    masking = {"mask": 0.85, "random": 0.0}
    config = tiny_config(corpus, objective=objective, masking=masking, **changes)
    return config | {"model": model}


@pytest.fixture(scope="module")
def run(tiny_corpus, pretrained_once):
    """A finished run of 12 steps; do not write into it."""
    return pretrained_once("electra_run", _config(tiny_corpus))


def test_both_models_learn(run, tiny_corpus, tmp_path, capsys):
    rows = rows_of(run, "train")
    assert rows[-1]["mlm_loss"] < 0.9 * rows[0]["mlm_loss"]
    assert rows[-1]["disc_loss"] < 0.9 * rows[0]["disc_loss"]
    held_out = metrics_of(run)[-1]
    expected = held_out["mlm_loss"] + 50 * held_out["disc_loss"]
    assert_close(held_out["loss"], expected)
    assert "held-out mlm_loss" in str(health_status_of_run(run))

    copied = shutil.copytree(run, tmp_path / "run")
    found = evaluate.run(str(copied), None, 2)["32"]
    assert_close(found, {name: held_out[name] for name in found})
    table = capsys.readouterr().out.splitlines()
    assert table[1].split() == ["length", *ReplacedTokenDetection.columns]


def test_a_stopped_run_goes_on_to_the_same_end(run, tiny_corpus, tmp_path):
    assert_goes_on_exactly(_config(tiny_corpus), run, tmp_path / "run")


def test_it_is_opened_as_the_discriminator(run, tmp_path, monkeypatch):
    model = open_model(str(run))
    assert (model.head_type, model.spec.hidden_size) == (head_types.REPLACED_TOKENS, 32)
    assert model.params.keys() == {"electra", "replaced_tokens"}
    told = "without masked_lm, which ElectraForMaskedLM has: take the generator"
    with pytest.raises(InputError, match=told):
        fill_mask.run(str(run), ["moo [MASK]."], 3)
    monkeypatch.setattr(same_text, "LENGTH", model.spec.max_position_embeddings)
    with pytest.raises(InputError, match=told):
        masked_text.run(str(run), None)
    (tmp_path / "texts.txt").write_text("baa baa moo\n")
    with pytest.raises(InputError, match="ElectraForPreTraining has no head of a task"):
        predict.run(str(run), str(tmp_path / "texts.txt"), str(tmp_path / "out.jsonl"))
    output = tmp_path / "features.npz"
    extract_features.run(str(run), str(tmp_path / "texts.txt"), str(output), Options("mean"))
    assert np.load(output)["features"].shape == (1, 32)


def test_both_models_are_exported_and_go_on(run, tiny_corpus, tmp_path):
    sources = {}
    for part, name, width in (
        ("", "ElectraForPreTraining", 32),
        ("generator", "ElectraForMaskedLM", 16),
    ):
        folder = tmp_path / (part or "discriminator")
        sources[folder.name] = f"hf:{folder}"
        assert max(convert.run(str(run), f"hf:{folder}", part).values()) < rounding(LOGITS)
        written = json.loads((folder / "config.json").read_text())
        assert (written["architectures"], written["hidden_size"]) == ([name], width)
        again = open_model(f"hf:{folder}")
        _, params = load_run(run).part(part)
        jax.tree.map(np.testing.assert_array_equal, dict(again.params), params)
        assert name in (folder / "README.md").read_text()
    (guesses,) = fill_mask.run(sources["generator"], ["moo [MASK] moo."], 3)
    assert len(guesses[0]) == 3
    with pytest.raises(InputError, match="--part=teacher: the parts of .*run to choose from are"):
        convert.run(str(run), f"hf:{tmp_path / 'no'}", "teacher")
    with pytest.raises(InputError, match="--part=generator: hf:.* is no run of pre-training"):
        convert.run(sources["discriminator"], f"hf:{tmp_path / 'no'}", "generator")

    config = _config(tiny_corpus, init_from=sources, total_steps=4)
    assert pretrain.run(config, str(tmp_path / "again")) == 0
    first, before = metrics_of(tmp_path / "again")[0], metrics_of(run)[0]
    assert first["mlm_loss"] < before["mlm_loss"] and first["disc_loss"] < before["disc_loss"]


@pytest.mark.parametrize("task", ["CoLA", "NER"])
def test_it_is_fine_tuned(run, tmp_path, task):
    family = FAMILIES[task]
    family.write(tmp_path / "data")
    config = tiny_finetuning(run, tmp_path / "data", task=family.task)
    assert finetune.run(config, str(tmp_path / "tuned")) == 0
    (tmp_path / "lines.txt").write_text("baa baa moo\nquack\n")
    predict.run(str(tmp_path / "tuned"), str(tmp_path / "lines.txt"), str(tmp_path / "out.jsonl"))
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2
    assert max(
        convert.run(str(tmp_path / "tuned"), f"hf:{tmp_path / 'exported'}").values()
    ) < rounding(LOGITS)


def test_a_bert_that_is_trained_as_electra(tiny_corpus, tmp_path):
    """Transformers has no class for it; it is fine-tuned all the same."""
    model = {name: value for name, value in MODEL.items() if name != "embedding_size"}
    model |= {"encoder": "bert", "num_hidden_layers": 2}
    settings = dict(generator_width=1.0, generator_layers=0.5)
    config = _config(tiny_corpus, model, objective=settings, total_steps=4)
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    with pytest.raises(InputError, match="no such model as this bert for replaced_tokens"):
        convert.run(str(tmp_path / "run"), f"hf:{tmp_path / 'no'}")
    convert.run(str(tmp_path / "run"), f"hf:{tmp_path / 'generator'}", "generator")
    assert open_model(f"hf:{tmp_path / 'generator'}").class_name == "BertForMaskedLM"
    FAMILIES["CoLA"].write(tmp_path / "data")
    tuning = tiny_finetuning(tmp_path / "run", tmp_path / "data", task=FAMILIES["CoLA"].task)
    tuning.grid.epochs = (1,)
    assert finetune.run(tuning, str(tmp_path / "tuned")) == 0


def test_a_deberta_of_v3(tiny_corpus, tmp_path):
    """Packed, with embeddings that the discriminator adds to; exported as its authors' folders."""
    model = {name: value for name, value in MODEL.items() if name != "embedding_size"}
    model |= {"encoder": "deberta-v2", "num_hidden_layers": 2, "position_buckets": 16}
    settings = dict(generator_width=1.0, generator_layers=0.5, disentangled=True)
    config = _config(tiny_corpus, model, objective=settings, packed=True)
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    rows = rows_of(tmp_path / "run", "train")
    assert rows[-1]["mlm_loss"] < 0.9 * rows[0]["mlm_loss"]
    assert rows[-1]["disc_loss"] < 0.9 * rows[0]["disc_loss"]
    for part, name in (
        ("", "ReplacedTokenDetectionModel"),
        ("generator", "DebertaV2ForMaskedLM"),
    ):
        source = f"hf:{tmp_path / name}"
        assert max(convert.run(str(tmp_path / "run"), source, part).values()) < rounding(LOGITS)
        again = open_model(source)
        assert again.class_name == name
        _, params = load_run(tmp_path / "run").part(part)
        jax.tree.map(np.testing.assert_array_equal, dict(again.params), params)


@pytest.mark.devices(8)
def test_both_models_are_sharded(tiny_corpus):
    """Each as it is wide: a narrow generator may have fewer heads than a layout splits."""
    model, mesh = MODEL | {"vocab_multiple": 8}, {"data": -1, "model": 2}
    config = _config("", model, layout="tensor_fsdp", mesh=mesh)
    with pytest.raises(InputError, match=r"\['generator'\].*heads = 1 does not divide"):
        show_sharding.run(config)
    config["objective"]["generator_width"] = 1.0
    rows = {row.path: row for row in show_sharding.run(config)}
    split = ("model", "data")
    assert rows["discriminator/electra/embeddings/token"].mesh_axes == split
    assert "generator/electra/embeddings/token" not in rows
    assert rows["generator/electra/projection/kernel"].shape == (24, 32)
