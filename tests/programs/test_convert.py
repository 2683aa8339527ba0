"""Exported models: they are written, read back, and equal."""

import dataclasses
import json
import shutil
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.interop import hugging_face, proof, sentence_transformers_check
from bertjax.models.heads.embedding import Embedding
from bertjax.programs import convert, evaluate, pretrain
from bertjax.runs.fine_tuning.answers import numbered, predictions
from bertjax.runs.fine_tuning.fine_tuned import open_fine_tuned
from bertjax.runs.fine_tuning.task_family import task_family_of
from bertjax.runs.source import load_run, open_model
from tests.helpers.closeness import LOGITS, assert_close, rounding
from tests.helpers.slow_cases import others_slow
from tests.helpers.small_models import vector_model
from tests.helpers.tiny_run import ONE_LENGTH, tiny_config


@pytest.fixture(scope="module")
def stacked_run(tiny_corpus, tmp_path_factory):
    """A run with stacked layers, a padded vocabulary, and products in bfloat16."""
    folder = tmp_path_factory.mktemp("stacked") / "run"
    switches = {"scan_layers": True, "vocab_multiple": 64, "compute_dtype": "bfloat16"}
    changes = {"model": {**switches, "num_hidden_layers": 3}} | ONE_LENGTH
    config = tiny_config(tiny_corpus, total_steps=4, **changes)
    assert pretrain.run(config, str(folder)) == 0
    return folder


def _leaves(source):
    return flatten_dict(dict(open_model(str(source)).params), sep="/")


def _assert_same(source, other):
    result, reference = _leaves(source), _leaves(other)
    assert result.keys() == reference.keys()
    for name, leaf in result.items():
        assert leaf.tobytes() == reference[name].tobytes(), name


@pytest.mark.parametrize(
    "name", others_slow(["tiny_run", "left_to_right_run", "stacked_run"], "tiny_run")
)
def test_a_run_is_exported_and_read_back(name, request, tmp_path, capsys):
    run = request.getfixturevalue(name)
    found = convert.run(str(run), f"{convert.HUGGING_FACE}{tmp_path / 'out'}")
    assert found["read back"] < rounding(LOGITS)
    assert f"read back: {found['read back']:.1e}" in capsys.readouterr().out
    _assert_same(run, f"hf:{tmp_path / 'out'}")
    architecture = {
        "tiny_run": "BertForPreTraining",
        "left_to_right_run": "BertLMHeadModel",
        "stacked_run": "BertForPreTraining",
    }[name]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == [architecture]
    assert config.get("is_decoder", False) == (name == "left_to_right_run")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    modes = {path.name: path.stat().st_mode for path in (tmp_path / "out").iterdir()}
    assert set(modes.values()) == {modes["config.json"]}  # all files have the same permissions


def test_no_device_rounds_the_factors_of_the_comparison(tiny_run, tmp_path, monkeypatch):
    """On a GPU, products of rounded factors were once 2e-2 off transformers'."""
    programs, outputs = [], proof.outputs

    def recorded(module, params, inputs):
        infer = jax.jit(partial(module.apply, deterministic=True))
        programs.append(infer.lower({"params": params}, dict(inputs)).as_text())
        return outputs(module, params, inputs)

    monkeypatch.setattr(proof, "outputs", recorded)
    convert.run(str(tiny_run), f"{convert.HUGGING_FACE}{tmp_path / 'out'}")
    assert len(programs) == 2
    for program in programs:
        products = [line for line in program.splitlines() if "dot_general" in line]
        assert products and all("precision = [HIGHEST, HIGHEST]" in line for line in products)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["tiny_run", "left_to_right_run", "stacked_run"])
def test_transformers_agrees(name, request, tmp_path):
    run = request.getfixturevalue(name)
    found = convert.run(str(run), f"{convert.HUGGING_FACE}{tmp_path / 'out'}")
    assert found["transformers"] < rounding(LOGITS)


@pytest.mark.peers
def test_transformers_fills_the_same_blank(tiny_run, tmp_path):
    """It uses the pipeline with the exported tokenizer, like a user of Hugging Face."""
    import transformers

    convert.run(str(tiny_run), f"{convert.HUGGING_FACE}{tmp_path / 'out'}")
    fill = transformers.pipeline("fill-mask", model=str(tmp_path / "out"))
    assert fill("Quack quack [MASK] quack.")[0]["token_str"] == "quack"


@pytest.mark.slow
def test_plain_storage_is_what_the_run_computes(stacked_run):
    """The logits equal those of the run's module much more exactly than bfloat16 does."""
    run, saved = load_run(stacked_run), open_model(str(stacked_run))
    assert run.params["masked_lm"]["bias"].shape[0] % 64 == 0
    assert saved.params["masked_lm"]["bias"].shape == (run.tokenizer.vocabulary_size,)
    ids = np.arange(26).reshape(2, 13)
    inputs = {"input_ids": ids, "input_mask": 0 * ids + 1, "token_type_ids": 0 * ids}
    model = saved.model()
    result = jax.jit(lambda p: model.apply({"params": p}, inputs, deterministic=True))(saved.params)
    reference = jax.jit(lambda p: run.model(p, inputs))(run.params)
    for name, wanted in reference.items():
        wanted = wanted[..., : result[name].shape[-1]]
        np.testing.assert_allclose(result[name], wanted, rtol=1e-2, atol=1e-2)


def test_the_card_holds_recipe_and_figures(tiny_run, tmp_path):
    convert.run(str(tiny_run), f"{convert.HUGGING_FACE}{tmp_path / 'my-bert'}")
    card = (tmp_path / "my-bert" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: fill-mask\n")
    assert "# my-bert\n" in card
    assert 'BertForPreTraining.from_pretrained("my-bert")' in card
    assert "| steps done | 160 |" in card
    assert "| corpus | corpus |" in card  # its name, not its path
    assert "| optimizer.learning_rate | 0.01 |" in card
    assert str(tiny_run.parent) not in card
    last = json.loads((tiny_run / "metrics.jsonl").read_text().splitlines()[-1])
    assert f"| mlm_loss | {last['mlm_loss']:.4g} |" in card
    assert "| read back | " in card


def test_the_card_prefers_an_evaluation(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    results = evaluate.run(str(run), None, 2)
    convert.run(str(run), f"{convert.HUGGING_FACE}{tmp_path / 'out'}")
    card = (tmp_path / "out" / "README.md").read_text()
    for length, metrics in results.items():
        assert f"sequences of {length}, at step 160" in card
        assert f"| nsp_loss | {metrics['nsp_loss']:.4g} |" in card
    # An evaluation of another step is not shown.
    assert list(convert._figures(run, step=5)) == ["Held-out text, at step 160"]


@pytest.mark.parametrize("damage", ["", "null", "[]", "{}"])
def test_a_damaged_evaluation(tmp_path, damage):
    (tmp_path / "evaluation.json").write_text(damage)
    with pytest.raises(InputError, match="evaluation.json: damaged .* or run launch/evaluate.py"):
        convert._figures(tmp_path, 4)


def test_to_a_server(tiny_run, tmp_path):
    found = convert.run(str(tiny_run), f"{convert.SERVING}{tmp_path / 'out'}")
    assert found["the artifact"] < rounding(LOGITS)
    assert (tmp_path / "out" / "model.stablehlo").stat().st_size > 1000


def test_parts_besides_the_architecture_stay_behind(tiny_run, tmp_path):
    """Published masked-LM weights have a pooler, for example; it is reported and not written."""
    convert.run(str(tiny_run), f"hf:{tmp_path / 'whole'}")
    config = tmp_path / "whole" / "config.json"
    config.write_text(config.read_text().replace("BertForPreTraining", "BertForMaskedLM"))
    found = convert.run(f"hf:{tmp_path / 'whole'}", f"hf:{tmp_path / 'part'}")
    assert found["read back"] == 0
    assert set(open_model(f"hf:{tmp_path / 'part'}").params) == {"bert", "masked_lm"}


OF_TEXTS = {
    "dense": Embedding(pooling="max", query_prompt="the cat, ", count_prompt=False),
    "sparse": Embedding(kind="sparse"),
    "late": Embedding(kind="late", width=7, passage_length=9),
}


@pytest.mark.parametrize("name", others_slow(OF_TEXTS, "late"))
def test_vectors_of_texts(name, vocabulary, tmp_path, monkeypatch):
    monkeypatch.setattr(sentence_transformers_check, "installed", lambda: False)
    (tmp_path / "model").mkdir()
    model = vector_model(vocabulary, OF_TEXTS[name])
    hugging_face.write_hugging_face(model, tmp_path / "model")
    source, out = f"hf:{tmp_path / 'model'}", tmp_path / "out"
    assert convert.run(source, f"hf:{out}") == {"read back": 0}
    assert open_model(f"hf:{out}").embedding == model.embedding
    assert "library_name: sentence-transformers\n" in (out / "README.md").read_text()
    assert convert.run(source, f"stablehlo:{tmp_path / 'served'}")["the artifact"] < rounding(
        LOGITS
    )


@pytest.mark.peers
@pytest.mark.parametrize("name", OF_TEXTS)
def test_vectors_of_sentence_transformers(name, vocabulary, tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    model = vector_model(vocabulary, OF_TEXTS[name])
    hugging_face.write_hugging_face(model, tmp_path / "model")
    source = f"hf:{tmp_path / 'model'}"
    assert (
        0 < convert.run(source, f"hf:{tmp_path / 'out'}")["sentence-transformers"] < rounding(1.0)
    )

    def another(pretrained, folder, **how):
        prompts = dataclasses.replace(model.embedding, query_prompt="a dog ")
        whole(dataclasses.replace(pretrained, embedding=prompts), folder, **how)

    whole = hugging_face.write_modules
    monkeypatch.setattr(hugging_face, "write_modules", another)
    with pytest.raises(RuntimeError, match="the written model gives"):
        convert.run(source, f"hf:{tmp_path / 'other'}")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("target", ["somewhere", "hf:", "stablehlo:", "tf1:x", "elmo:", "elmo"])
def test_invalid_targets_are_refused(tiny_run, target):
    forms = "hf:FOLDER, onnx:FOLDER, stablehlo:FOLDER, elmo:FOLDER"
    with pytest.raises(InputError, match=f"--to={target}: must be one of {forms}"):
        convert.run(str(tiny_run), target)


def test_a_target_that_cannot_be_written(tiny_run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="out: cannot be written .*: choose another folder"):
        convert.run(str(tiny_run), f"hf:{tmp_path / 'file' / 'out'}")


def test_an_existing_target_is_kept(tiny_run, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="out: is there already"):
        convert.run(str(tiny_run), f"{convert.HUGGING_FACE}{tmp_path / 'out'}")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_damaged_export_does_not_appear(tiny_run, tmp_path, monkeypatch):
    """If a weight is written wrong, the comparison finds it, and no folder appears."""
    whole = hugging_face.save

    def damaged(arrays, **more):
        name = "bert.encoder.layer.0.output.dense.weight"
        arrays[name] = np.ascontiguousarray(arrays[name][::-1])
        return whole(arrays, **more)

    monkeypatch.setattr(hugging_face, "save", damaged)
    with pytest.raises(RuntimeError, match="do not read back bit for bit"):
        convert.run(str(tiny_run), f"{convert.HUGGING_FACE}{tmp_path / 'out'}")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_tokenizer_does_not_appear(tiny_run, tmp_path, monkeypatch):
    whole = hugging_face.write_tokenizer

    def damaged(tokenizer, folder: Path, longest, **more):
        whole(tokenizer, folder, longest, **more)
        file = folder / "tokenizer.json"
        file.write_text(file.read_text().replace('"lowercase": true', '"lowercase": false'))
        file.write_text(file.read_text().replace('"lowercase":true', '"lowercase":false'))

    monkeypatch.setattr(hugging_face, "write_tokenizer", damaged)
    with pytest.raises(RuntimeError, match="the tokenizer written is not the same"):
        convert.run(str(tiny_run), f"{convert.HUGGING_FACE}{tmp_path / 'out'}")
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------------- fine-tuned runs

HEADS = {
    "CoLA": ("BertForSequenceClassification", "text-classification"),
    "STS-B": ("BertForSequenceClassification", "text-classification"),
    "own labels": ("BertForSequenceClassification", "text-classification"),
    "SQuAD 2.0": ("BertForQuestionAnswering", "question-answering"),
    "SWAG": ("BertForMultipleChoice", "multiple-choice"),
    "NER": ("BertForTokenClassification", "token-classification"),
}


@pytest.mark.parametrize("name", others_slow(HEADS, "NER"))
def test_a_fine_tuned_run_is_exported_and_read_back(fine_tuned, tmp_path, name):
    _, run = fine_tuned(name)
    found = convert.run(str(run), f"hf:{tmp_path / 'my-model'}")
    assert max(found["read back"], found.get("transformers", 0)) < rounding(LOGITS)
    _assert_same(run, f"hf:{tmp_path / 'my-model'}")
    config = json.loads((tmp_path / "my-model" / "config.json").read_text())
    architecture, hub_task = HEADS[name]
    assert config["architectures"] == [architecture]
    # The export has the settings for predict, and the corresponding ones of transformers.
    kinds = {"CoLA": "single_label_classification", "STS-B": "regression"}
    kinds["own labels"] = "multi_label_classification"
    assert config.get("problem_type") == kinds.get(name)
    results = json.loads((run / "results.json").read_text())
    assert config["bertjax_task"]["name"] == results["task"]
    assert config["bertjax_task"]["max_length"] == 48
    for key in ("null_threshold", "thresholds"):
        assert config["bertjax_task"].get(key) == results["settings"].get(key)
    one, two = (
        task_family_of(open_model(each)) for each in (str(run), f"hf:{tmp_path / 'my-model'}")
    )
    assert one == two and one[1] == 48
    if name == "CoLA":
        assert config["id2label"] == {"0": "unacceptable", "1": "acceptable"}
        assert config["label2id"] == {"unacceptable": 0, "acceptable": 1}

    card = (tmp_path / "my-model" / "README.md").read_text()
    assert f"pipeline_tag: {hub_task}\n" in card
    assert f"| task.kind | {_config_of(run)['task']['kind']} |" in card
    assert "| learning_rate | 0.01 |" in card and "| batch_size | 8 |" in card
    assert "| init_from | run |" in card and str(run.parent) not in card
    for split, scores in results["dev"].items():
        assert f"{results['task']}, {split}\n" in card
        for metric, value in scores.items():
            assert f"| {metric} | {value:.4g} |" in card
    for label, threshold in results["settings"].get("thresholds", {}).items():
        assert f"| {label} | {threshold:.4g} |" in card


def _config_of(run: Path):
    return json.loads((run / "config.json").read_text())


@pytest.mark.parametrize("name", others_slow([name for name in HEADS if name != "STS-B"], "NER"))
def test_a_fine_tuned_run_to_a_server(fine_tuned, tmp_path, name):
    found = convert.run(str(fine_tuned(name)[1]), f"stablehlo:{tmp_path / 'out'}")
    assert found["the artifact"] < rounding(LOGITS)


@pytest.mark.peers
def test_the_pipeline_of_transformers_labels_as_we_do(fine_tuned, tmp_path):
    """It uses the exported tokenizer and names of classes, like a user of Hugging Face."""
    import transformers

    texts = ["baa baa baa", "woof woof", "tweet", 'coo coo "', "quack moo"]
    _, run = fine_tuned("CoLA")
    convert.run(str(run), f"hf:{tmp_path / 'out'}")
    classify = transformers.pipeline("text-classification", model=str(tmp_path / "out"))
    result = list(predictions(open_fine_tuned(str(run)), numbered(texts, "text"), "text"))
    assert len({each["label"] for each in result}) == 2
    for reference, each in zip(classify(texts), result, strict=True):
        assert reference["label"] == each["label"]
        assert_close(reference["score"], each["probabilities"][each["label"]], size=LOGITS / 4)


@pytest.mark.slow
def test_an_unfinished_fine_tuning_is_not_exported(fine_tuned, tmp_path):
    shutil.copytree(fine_tuned("CoLA")[1], tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    with pytest.raises(InputError, match="it is not finished: start it again"):
        convert.run(str(tmp_path / "run"), f"hf:{tmp_path / 'out'}")
    shutil.rmtree(tmp_path / "run" / "model")
    with pytest.raises(InputError, match="run"):
        convert.run(str(tmp_path / "run"), f"hf:{tmp_path / 'out'}")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
