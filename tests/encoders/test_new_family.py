"""A family of encoders that `tests/encoders/toy_family.py` adds, through every program.

Nothing in bertjax knows of it, so this holds what a new family is promised: one folder, and one
line in the registry.
"""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict
from task_files import FAMILIES, tiny_finetuning
from tiny_run import metrics_of, tiny_config
from toy_family import TOY, ToySpec, register  # noqa: F401

from bertjax.base.errors import InputError
from bertjax.config import paper_config, place_on_pod
from bertjax.encoders.names import to_ours, to_theirs
from bertjax.encoders.registry import array_names
from bertjax.encoders.storage import from_plain, to_plain
from bertjax.heads.architectures import ARCHITECTURES
from bertjax.programs import (
    compile_check,
    convert,
    evaluate,
    finetune,
    predict,
    pretrain,
    show_sharding,
)
from bertjax.programs.fill_mask import fill
from bertjax.runs.open_model import open_model
from bertjax.runs.recipe import Recipe
from bertjax.training.journal import Journal

SPEC = ToySpec(vocab_size=37, hidden_size=12, num_attention_heads=3, vocab_multiple=8)
MODEL = dict(encoder="toy", size="toy", hidden_size=32, max_position_embeddings=64)


def _config(corpus, **changes):
    return tiny_config(corpus, **changes) | {"model": MODEL}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_its_names_cover_its_parameters(kind):
    module = ARCHITECTURES[kind].build(SPEC, 5)
    classes = 1 if "C" in ARCHITECTURES[kind].axes else 5
    ids = jax.ShapeDtypeStruct((2, 3, 7)[-len(ARCHITECTURES[kind].axes) :], "int32")

    def init(ids):
        return module.init(jax.random.key(0), ids, ids, ids, deterministic=True)["params"]

    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype),
        nn.unbox(jax.eval_shape(init, ids)),
    )
    plain = to_plain(params, SPEC)
    entries = array_names(ARCHITECTURES[kind].parts(SPEC), SPEC, classes)
    again = to_ours(to_theirs(plain, entries), entries, "test")
    assert flatten_dict(again).keys() == flatten_dict(plain).keys()
    jax.tree.map(np.testing.assert_array_equal, again, plain)
    padded = from_plain(again, SPEC)["toy"]["embeddings"]["token"]
    assert padded.shape == (40, 12) and not padded[37:].any()


def test_what_its_config_may_say(tiny_corpus):
    config = _config(tiny_corpus)
    spec = Recipe.from_config(config).spec(37)
    assert (spec.encoder, spec.hidden_size, spec.vocab_size) == ("toy", 32, 37)
    for key, value, message in (
        ("encoder", "toys", "config.model.encoder='toys': must be one of bert, modernbert, toy"),
        ("size", "large", "config.model: size='large': must be toy"),
        ("hidden_act", "relu", "config.model: hidden_act='relu': must be one of"),
        ("intermediate_size", 7, "config.model: .*unexpected keyword .*'intermediate_size'"),
        ("hidden_size", "32", "config.model.hidden_size='32': must be a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            Recipe.from_config(config | {"model": MODEL | {key: value}})


@pytest.fixture(scope="module")
def run(tiny_corpus, pretrained_once):
    """A finished run of 12 steps; do not write into it."""
    return pretrained_once("toy_run", _config(tiny_corpus))


@pytest.mark.slow
def test_it_learns_and_is_evaluated(run, tmp_path):
    rows = [row for row in metrics_of(run) if row["split"] == "train"]
    assert rows[-1]["mlm_loss"] < 0.8 * rows[0]["mlm_loss"]
    figures = evaluate.run(str(shutil.copytree(run, tmp_path / "run")), None, 2)
    assert figures.keys() == {"32", "64"}
    assert figures["64"]["mlm_loss"] < rows[0]["mlm_loss"]
    (guesses,) = fill(open_model(str(run)), ["moo [MASK] moo moo."], 3)
    assert len(guesses[0]) == 3 and guesses[0][0].probability > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["masked_lm", "left_to_right"])
def test_it_learns_from_packed_documents(tiny_corpus, tmp_path, objective):
    phases = {"phase_1": {"share": 1.0, "length": 64}, "phase_2": {"share": 0.0}}
    packed = dict(objective=objective, packed=True, short_probability=0)
    assert pretrain.run(_config(tiny_corpus, **packed, **phases), str(tmp_path / "run")) == 0
    rows = [row for row in metrics_of(tmp_path / "run") if row["split"] == "train"]
    assert rows[-1]["mlm_loss"] < 0.8 * rows[0]["mlm_loss"]


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_end(run, tiny_corpus, tmp_path, monkeypatch):
    written, write = [], Journal.write

    def stop(self, *arguments, **fields):
        write(self, *arguments, **fields)
        written.append(arguments)
        if len(written) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", stop)
        with pytest.raises(KeyboardInterrupt):
            pretrain.run(_config(tiny_corpus), str(tmp_path / "run"))
    assert pretrain.run(_config(tiny_corpus), str(tmp_path / "run")) == 0
    assert metrics_of(tmp_path / "run") == metrics_of(run)
    params = [open_model(str(folder)).params for folder in (run, tmp_path / "run")]
    jax.tree.map(np.testing.assert_array_equal, *params)


@pytest.mark.slow
@pytest.mark.devices(8)
def test_the_layouts_train_the_same_model(run, tiny_corpus, tmp_path, capsys):
    for layout in ("zero1", "tensor_fsdp"):
        mesh = {"data": -1, "model": 2 if "tensor" in layout else 1}
        config = _config(tiny_corpus, layout=layout, mesh=mesh)
        config["model"] = MODEL | {"vocab_multiple": 8}
        assert pretrain.run(config, str(tmp_path / layout)) == 0
        for one, other in zip(metrics_of(tmp_path / layout), metrics_of(run), strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
    rows = {row.path: row for row in show_sharding.run(config | {"corpus": ""})}
    assert rows["toy/encoder/layer_*/mixing/kernel"].count == 2
    assert rows["toy/embeddings/token"].mesh_axes == ("model", "data")


@pytest.mark.slow
@pytest.mark.needs("libtpu")
def test_the_compile_report():
    config = place_on_pod(paper_config())
    config.total_steps, config.optimizer.warmup_steps = 100, 10
    config.phase_1.update(share=1.0, batch_size=64)
    config.phase_2.update(share=0.0)
    config = config.to_dict() | {
        "model": MODEL | dict(hidden_size=256, max_position_embeddings=512)
    }
    (report,) = compile_check.run(config, "v5e:4x4")
    parts = {part for part, _ in report.parts}
    assert {"attention", "attention projections", "embeddings", "heads and losses"} <= parts


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_fine_tuned_it_predicts_and_is_exported(run, tmp_path, task):
    family = {"classification": FAMILIES["CoLA"], "tagging": FAMILIES["NER"]}[task]
    family.write(tmp_path / "data")
    config = tiny_finetuning(run, tmp_path / "data", task=family.task)
    config.model = dict(hidden_dropout_prob=0.1)
    assert finetune.run(config, str(tmp_path / "tuned")) == 0
    (tmp_path / "lines.txt").write_text("baa baa moo\nquack\n")
    predict.run(str(tmp_path / "tuned"), str(tmp_path / "lines.txt"), str(tmp_path / "out.jsonl"))
    answers = list(map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines()))
    assert len(answers) == 2

    found = convert.run(str(tmp_path / "tuned"), f"hf:{tmp_path / 'exported'}")
    assert max(found.values()) < 1e-5
    written = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert written["model_type"] == "toy"
    predict.run(f"hf:{tmp_path / 'exported'}", str(tmp_path / "lines.txt"), str(tmp_path / "b"))
    assert list(map(json.loads, (tmp_path / "b").read_text().splitlines())) == answers


@pytest.mark.slow
def test_it_is_exported_and_goes_on_from_there(run, tiny_corpus, tmp_path):
    assert max(convert.run(str(run), f"hf:{tmp_path / 'exported'}").values()) < 1e-5
    given, trained = open_model(f"hf:{tmp_path / 'exported'}"), open_model(str(run))
    assert dataclasses.asdict(given.spec) == dataclasses.asdict(trained.spec)
    jax.tree.map(np.testing.assert_array_equal, given.params, trained.params)
    config = _config(tiny_corpus, init_from=f"hf:{tmp_path / 'exported'}")
    assert pretrain.run(config, str(tmp_path / "again")) == 0
    rows = metrics_of(tmp_path / "again")
    assert rows[0]["mlm_loss"] < 0.9 * metrics_of(run)[0]["mlm_loss"]
    assert max(convert.run(str(run), f"stablehlo:{tmp_path / 'served'}").values()) < 1e-4
