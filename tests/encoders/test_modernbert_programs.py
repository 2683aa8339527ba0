"""ModernBERT through the programs: the house's second family."""

import json

import jax
import numpy as np
import pytest
from task_files import FAMILIES, tiny_finetuning
from tiny_run import metrics_of, tiny_config

from bertjax.base.errors import InputError
from bertjax.programs import compile_check, convert, finetune, predict, pretrain, show_sharding
from bertjax.programs.fill_mask import fill
from bertjax.runs.open_model import open_model
from bertjax.runs.recipe import Recipe

# The phases have 32 and 64 tokens: windows of 3 on either side are taken by blocks in both.
MODEL = dict(
    encoder="modernbert",
    num_hidden_layers=2,
    intermediate_size=48,
    max_position_embeddings=64,
    local_attention=6,
    global_attn_every_n_layers=2,
)


def _config(corpus, **changes):
    config = tiny_config(corpus, objective="masked_lm", **changes)
    del config["model"]["hidden_act"]
    return config | {"model": config["model"] | MODEL | changes.get("model", {})}


def test_what_its_config_may_say(tiny_corpus):
    spec = Recipe.from_config(_config(tiny_corpus)).spec(37)
    assert (spec.encoder, spec.local_attention, spec.positions) == ("modernbert", 6, "rotary")
    for changes, message in (
        (dict(model=dict(num_attention_heads=32)), "config.model: .* need an even width"),
        (dict(model=dict(local_attention=1)), "config.model: local_attention=1: a window of no"),
        (dict(model=dict(type_vocab_size=2)), "config.model: .*unexpected keyword"),
        (dict(phase_2=dict(length=80)), "config.phase_2.length=80 is over the position table"),
    ):
        with pytest.raises(InputError, match=message):
            Recipe.from_config(_config(tiny_corpus, **changes))
    config = _config(tiny_corpus) | {"objective": "masked_lm_next_sentence"}
    with pytest.raises(InputError, match="'masked_lm_next_sentence': modernbert has no head for"):
        Recipe.from_config(config)


@pytest.fixture(scope="module")
def run(tiny_corpus, tmp_path_factory):
    """A finished run of 12 steps; do not write into it."""
    folder = tmp_path_factory.mktemp("modernbert") / "run"
    assert pretrain.run(_config(tiny_corpus), str(folder)) == 0
    return folder


@pytest.mark.slow
def test_it_learns_and_fills_blanks(run):
    rows = [row for row in metrics_of(run) if row["split"] == "train"]
    assert rows[-1]["mlm_loss"] < 0.8 * rows[0]["mlm_loss"]
    (guesses,) = fill(open_model(str(run)), ["moo [MASK] moo moo."], 3)
    assert len(guesses[0]) == 3 and guesses[0][0].probability > 0.01


@pytest.mark.slow
@pytest.mark.devices(8)
def test_the_layouts_train_the_same_model(run, tiny_corpus, tmp_path):
    for layout in ("zero1", "tensor_fsdp"):
        mesh = {"data": -1, "model": 2 if "tensor" in layout else 1}
        config = _config(tiny_corpus, layout=layout, mesh=mesh)
        config["model"]["vocab_multiple"] = 8
        assert pretrain.run(config, str(tmp_path / layout)) == 0
        for one, other in zip(metrics_of(tmp_path / layout), metrics_of(run), strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
    rows = {row.path: row for row in show_sharding.run(config | {"corpus": ""})}
    kernel = rows["modernbert/encoder/layer_*/feed_forward/intermediate/kernel"]
    assert kernel.count == 2 and kernel.mesh_axes == ("data", None, "model")


@pytest.mark.slow
@pytest.mark.needs("libtpu")
def test_the_compile_report(tiny_corpus):
    config = _config(tiny_corpus) | {"corpus": "", "layout": "zero1"}
    config["model"] |= dict(hidden_size=256, compute_dtype="bfloat16", vocab_multiple=128)
    config["model"] |= dict(max_position_embeddings=512)
    config["phase_1"] |= dict(share=1.0, length=512, batch_size=64)
    config["phase_2"] |= dict(share=0.0)
    (report,) = compile_check.run(config, "v5e:4x4")
    parts = {part for part, _ in report.parts}
    assert {"attention", "attention projections", "feed-forward", "layer norm"} <= parts


@pytest.mark.slow
@pytest.mark.parametrize("task", ["CoLA", "NER"])
def test_fine_tuned_it_predicts_and_is_exported(run, tmp_path, task):
    family = FAMILIES[task]
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
    predict.run(f"hf:{tmp_path / 'exported'}", str(tmp_path / "lines.txt"), str(tmp_path / "b"))
    assert list(map(json.loads, (tmp_path / "b").read_text().splitlines())) == answers


@pytest.mark.slow
def test_it_is_exported_and_goes_on_from_there(run, tiny_corpus, tmp_path):
    assert max(convert.run(str(run), f"hf:{tmp_path / 'exported'}").values()) < 1e-5
    given, trained = open_model(f"hf:{tmp_path / 'exported'}"), open_model(str(run))
    assert given.spec == trained.spec
    jax.tree.map(np.testing.assert_array_equal, given.params, trained.params)
    config = _config(tiny_corpus, init_from=f"hf:{tmp_path / 'exported'}")
    assert pretrain.run(config, str(tmp_path / "again")) == 0
    assert metrics_of(tmp_path / "again")[0]["loss"] < 0.9 * metrics_of(run)[0]["loss"]
    with pytest.raises(
        InputError, match="the weights of a modernbert, and config.model.encoder='bert'"
    ):
        pretrain.run(
            tiny_config(tiny_corpus, init_from=f"hf:{tmp_path / 'exported'}"),
            str(tmp_path / "other"),
        )
    assert max(convert.run(str(run), f"stablehlo:{tmp_path / 'served'}").values()) < 1e-4
