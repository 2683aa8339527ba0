"""Contrastive runs from a config to a model: of vectors of each kind, and of scores."""

import dataclasses
import json

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.config import similarity_config
from bertjax.interop.derived import as_scorer
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.models.heads.embedding import KINDS, Embedding
from bertjax.models.heads.vector_modules import VectorModule
from bertjax.programs import finetune, predict
from bertjax.runs.contrastive.job import SimilarityJob
from bertjax.runs.contrastive.opened import open_vectors
from bertjax.runs.contrastive.recipe import SimilarityRecipe
from bertjax.runs.fine_tuning.task_family import task_family_of
from bertjax.runs.run_folder import read_config, read_results
from bertjax.runs.source import open_model, open_source
from bertjax.tasks.classification import Regression
from bertjax.training.metrics_log import read_metrics
from configs import finetune_embeddings, finetune_embeddings_16, finetune_reranker
from tests.helpers.closeness import assert_close
from tests.helpers.refused import assert_refused
from tests.helpers.slow_cases import others_slow
from tests.helpers.small_models import PIECES, small_model, vector_model

NOUNS = ["cat", "dog", "house", "run", "blue", "7"]


def write_pairs(folder, scored=False):
    """A query belongs to the passage with the same noun."""
    rng = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for split, count in (("train", 90), ("dev", 24)):
        rows = []
        for number in range(count):
            noun, other = rng.choice(NOUNS, 2, replace=False)
            row = {"query": f"the {noun} {rng.choice(['!', '?', ''])}", "passage": f"a {noun} ."}
            if scored:
                row |= {"passage": f"a {noun if number % 2 else other} .", "score": number % 2}
            elif number % 3 == 0:
                row["negative"] = [f"of {other} ,"]
            rows.append(json.dumps(row))
        (folder / f"{split}.jsonl").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    model = small_model(folder / "vocab.txt", "BertForMaskedLM")
    output = folder / "model"
    output.mkdir()
    write_hugging_face(model, output)
    return f"hf:{output}"


def _config(weights, data, config=None, **changes):
    config = config or finetune_embeddings.get_config()
    config.update(init_from=weights, data=str(data), batch_size=8, total_steps=40)
    config.intervals.update(log=4, evaluate=20, checkpoint=16)
    config.optimizer.learning_rate = 5e-3
    with config.unlocked():
        for key, value in changes.items():
            config[key] = value
    return config


def _kind(kind, **fields):
    return dict(task=dict(kind=kind, **fields))


def _case(name, weights, data):
    if name == "reranker":
        return _config(weights, data, finetune_reranker.get_config())
    if name == "modules":
        weights = _with_modules(data.parent)
    changes = {
        "modules": {},
        "dense": dict(chunks=2, dimensions=(5, 24)),
        "late": _kind("late", width=6),
        "sparse": dict(_kind("sparse"), sparsity=(0.01, 0.02)),
    }[name]
    config = _config(weights, data, **changes)
    if name != "dense":
        config.loss.scale = 1.0
    return config


MODULES = VectorModule(width=9, activation="tanh"), VectorModule(kind="layer_norm")


def _with_modules(folder):
    """Weights that make vectors by modules behind the pooling."""
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    (folder / "model").mkdir()
    write_hugging_face(
        vector_model(folder / "vocab.txt", Embedding(modules=MODULES)), folder / "model"
    )
    return f"hf:{folder / 'model'}"


def test_modules_are_trained_further(tmp_path):
    """A config need not name them, and a new run names those of its weights."""
    weights, data = _with_modules(tmp_path), write_pairs(tmp_path / "data")
    job = SimilarityJob.of(_config(weights, data), str(tmp_path / "run"))
    assert job.recipe.embedding.modules == MODULES
    parts = {"bert", "modules"}
    assert job.source.params.keys() == job.trainer.experiment.abstract_params.keys() == parts

    def again(*modules):
        config = _config(weights, data, **_kind("dense", modules=modules))
        return SimilarityJob.of(config, str(tmp_path / "run"))

    dense, norm = dict(width=9, activation="tanh"), dict(kind="layer_norm")
    assert again(dense, norm).recipe.embedding == job.recipe.embedding
    wider = _config(weights, data, dimensions=(5, 48), **_kind("dense", modules=[dict(width=48)]))
    wider.model.compute_dtype = "float32"
    assert SimilarityRecipe.from_config(wider).spec(job.spec, "") == job.spec
    with pytest.raises(InputError, match="config.task.modules=.*: the weights have others"):
        again(dense)
    with pytest.raises(
        InputError, match=r"task.modules\[0\].width=0: a dense module has one above"
    ):
        again(dict(kind="dense"))
    with pytest.raises(InputError, match="task.modules=.*: only vectors of the kind 'dense'"):
        SimilarityRecipe.from_config(_config(weights, data, **_kind("late", modules=[norm])))


@pytest.mark.slow
def test_a_reranker_of_modules_is_trained_further(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    vectors = Embedding(modules=(*MODULES, VectorModule(width=1)), normalize=False)
    model = as_scorer(vector_model(tmp_path / "vocab.txt", vectors))
    (tmp_path / "model").mkdir()
    write_hugging_face(model, tmp_path / "model")
    data = write_pairs(tmp_path / "data", scored=True)
    weights, run = f"hf:{tmp_path / 'model'}", tmp_path / "run"
    config = _config(weights, data, finetune_reranker.get_config())
    config.update(total_steps=4)
    config.intervals.update(log=4, evaluate=4, checkpoint=4)
    job = SimilarityJob.of(config, str(run))
    assert job.recipe.scoring == model.scoring == dataclasses.replace(vectors, modules=MODULES)
    assert job.source.params.keys() == {"bert", "pooler", "classifier"}
    assert finetune.run(config, str(run)) == 0
    found = open_model(str(run))
    assert found.scoring == model.scoring and found.identity != model.identity
    (tmp_path / "in.txt").write_text("the cat ||| a cat .\n")
    predict.run(open_source(str(run)), str(tmp_path / "in.txt"), str(tmp_path / "out.jsonl"))
    value = json.loads((tmp_path / "out.jsonl").read_text())["value"]
    opened = open_vectors(str(run))
    assert_close([value], opened.comparer.own(opened.params, [("the cat", "a cat .")], "x"))
    with pytest.raises(InputError, match="--dimensions=1: only dense .* scores of pairs"):
        open_vectors(str(run), 1)


@pytest.mark.parametrize("name", others_slow([*KINDS, "modules", "reranker"], "reranker"))
def test_from_a_config_to_a_model(name, weights, tmp_path):
    data, run = write_pairs(tmp_path / "data", scored=name == "reranker"), tmp_path / "run"
    config = _case(name, weights, data)
    assert finetune.run(config, str(run)) == 0
    assert read_config(run)["model"]["compute_dtype"] == "float32"
    rows = read_metrics(run)
    results = read_results(run)
    (dev,) = results["dev"].values()
    assert [row["step"] for row in rows if row["split"] == "dev"] == [20, 40]
    losses = [row["task_loss"] for row in rows if row["split"] == "train"]
    assert losses[-1] < losses[0]
    main_metric = results["metric"].rpartition(" ")[2]
    assert dev[main_metric] == max(r[results["metric"]] for r in rows if r["split"] == "dev")
    assert results["chosen"]["step"] in (20, 40)
    model = open_model(str(run))
    assert model.spec.hidden_size == 24
    if name == "reranker":
        assert model.classes == ("LABEL_0",) and model.task["problem_type"] == "regression"
        assert task_family_of(model) == (Regression(pairs=True), 13)
    else:
        assert model.embedding and model.embedding.kind == {"modules": "dense"}.get(name, name)
        assert model.embedding.modules == (MODULES if name == "modules" else ())
    # The same command again has nothing to do.
    again = json.loads((run / "results.json").read_text())
    assert finetune.run(config, str(run)) == 0
    assert json.loads((run / "results.json").read_text()) == again


# --------------------------------------------------------------------------- bad configs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": ""}, "config.data is empty"),
        ({"data": "a@2,b"}, "*b has no weight but another has"),
        ({"task.kind": "densely"}, ": must be one of dense, late, sparse, reranker"),
        ({"task.pooling": "sum"}, "*pooling='sum': must be one of mean, max"),
        (
            {"task.similarity": "angle"},
            ": compares only pairs, and config.loss.name='ranking'",
        ),
        ({"task.query_length": 14}, ": must be from 8 to 13"),
        ({"loss.name": "x"}, ": must be one of ranking"),
        ({"loss.scael": 2.0}, "config.loss.scael: *mean scale?: name the loss after"),
        (
            {"loss": {"name": "kl", "scale": 3.0}},
            "config.loss.scale: unknown key: there are temperature: *finetune_embeddings.py:kl",
        ),
        (
            {"loss": {"name": "kl", "temperature": 0.0}},
            "config.loss.temperature=0.0: must be above 0",
        ),
        ({"loss.scale": 0.0}, ": must be above 0"),
        ({"dimensions": (25,)}, ": 25 is over 24, the width"),
        (
            {"dimensions": (5, 24), "task": {"kind": "dense", "modules": [{"width": 9}]}},
            ": 24 is over 9, the width",
        ),
        ({"dimensions": (0,)}, "config.dimensions[0]=0: must be at least 1"),
        (
            {"dimensions": (5,), "task": {"kind": "late"}},
            ": only the vectors of config.task.kind='dense'",
        ),
        ({"sparsity": (0.1, 0.0)}, ": is for config.task.kind='sparse'"),
        ({"sparsity": (0.1,)}, "config.sparsity=[0.1]: expected `array` of length 2"),
        ({"batch_size": 1}, ": must be at least 2"),
        ({"chunks": 3}, "config.batch_size=8 is not a multiple of config.chunks=3"),
        ({"epochs": 0.0, "total_steps": 0}, ": must be above 0"),
        (
            {"loss": {"name": "triplet"}},
            "*'triplet' needs at least 2 passages of each query, and it has 1: give wrong ones",
        ),
        ({"loss": {"name": "squared"}}, "*'squared' needs scores"),
        ({}, "*all its passages are the same text"),
    ],
)
def test_bad_configs(changes, message, weights, tmp_path):
    passages = ["a", "of"] if changes else ["b", "b"]
    rows = (json.dumps({"query": q, "passage": p}) for q, p in zip("ab", passages, strict=True))
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    config = _config(weights, tmp_path).to_dict()
    assert_refused(lambda c: SimilarityJob.of(c, str(tmp_path / "run")), config, changes, message)


@pytest.mark.parametrize("name", ["cosent", "ranking"])
def test_what_a_reranker_has_not(name, weights, tmp_path):
    config = _config(weights, tmp_path, finetune_reranker.get_config(name))
    if name == "ranking":
        config.loss.symmetric = True
    with pytest.raises(InputError, match="a reranker has"):
        SimilarityRecipe.from_config(config)


def test_an_unknown_kind_of_vectors_is_not_taken_for_a_task(tmp_path):
    config = finetune_embeddings.get_config()
    config.task.kind = "x"
    with pytest.raises(InputError, match="config.task.kind='x': must be one of dense, late, spars"):
        finetune.run(config, str(tmp_path))


def test_unknown_loss():
    with pytest.raises(InputError, match="loss='x': must be one of ranking"):
        similarity_config("x")


@pytest.mark.parametrize(
    "module, losses",
    [
        (finetune_embeddings, ("ranking", "squared", "cosent", "triplet", "margin_mse", "kl")),
        (finetune_embeddings_16, ("ranking", "kl")),
        (finetune_reranker, ("binary", "squared", "margin_mse", "kl", "ranking")),
    ],
)
def test_every_config_loads(module, losses):
    for loss in losses:
        recipe = SimilarityRecipe.from_config(module.get_config(loss))
        assert recipe.loss.name == loss and recipe.objective().loss == recipe.loss
        assert SimilarityRecipe.from_config(recipe.config_dict).loss == recipe.loss
