"""Families next to BERT through every program: ModernBERT, RoBERTa, DeBERTa and others.

This holds what a new family is promised: one folder, and one line in the registry.
"""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.inference.blanks import fill
from bertjax.programs import (
    compile_check,
    convert,
    evaluate,
    finetune,
    predict,
    pretrain,
    show_sharding,
)
from bertjax.runs.source import open_model
from tests.helpers.closeness import rounding
from tests.helpers.stopped import pretrain_until_stopped
from tests.helpers.task_files import FAMILIES, tiny_finetuning
from tests.helpers.tiny_run import metrics_of, tiny_config

pytestmark = pytest.mark.slow


class Case(NamedTuple):
    """A family, and in what it is tried; what holds for both is tried in one of them.

    Attributes:
      model: its config.model; phases have 32 and 64 tokens.
      split: a layout, and one of its kernels there: (path, how many of them, mesh axes).
      parts: parts of its compile report that not every family has.
    """

    model: dict[str, Any]
    objective: str | dict[str, Any]
    packed: str
    split: tuple[str, tuple[str, int, tuple]]
    parts: set[str]
    task: str

    def config(self, corpus: Path, **changes: Any) -> dict[str, Any]:
        changes = {"objective": self.objective, "short_probability": 0.0} | changes
        config = tiny_config(corpus, **changes)
        return config | {"model": self.model | changes.get("model", {})}


CASES = {
    "roberta": Case(
        model=dict(
            encoder="roberta",
            size="tiny",
            hidden_size=32,
            intermediate_size=48,
            max_position_embeddings=64,
            initializer_range=0.15,
        ),
        objective=dict(name="masked_lm", text="full_sentences"),
        packed="left_to_right",
        split=("tensor_fsdp", ("roberta/embeddings/token", 1, ("model", "data"))),
        parts={"feed-forward", "layer norm"},
        task="CoLA",
    ),
    # Windows of 3 on either side are taken by blocks in both lengths.
    "modernbert": Case(
        model=dict(
            encoder="modernbert",
            size="tiny",
            hidden_size=32,
            intermediate_size=48,
            max_position_embeddings=64,
            initializer_range=0.15,
            local_attention=6,
            global_attn_every_n_layers=2,
        ),
        objective="masked_lm",
        packed="masked_lm",
        split=(
            "tensor_zero1",
            (
                "modernbert/encoder/layer_*/intermediate/kernel",
                2,
                (None, None, "model"),
            ),
        ),
        parts={"local attention", "feed-forward", "layer norm"},
        task="NER",
    ),
    "distilbert": Case(
        model=dict(
            encoder="distilbert",
            size="mini",
            hidden_size=32,
            intermediate_size=48,
            max_position_embeddings=64,
            initializer_range=0.15,
        ),
        objective="masked_lm",
        packed="masked_lm",
        split=("tensor_fsdp", ("distilbert/embeddings/token", 1, ("model", "data"))),
        parts={"feed-forward", "layer norm"},
        task="CoLA",
    ),
    "deberta-v2": Case(
        model=dict(
            encoder="deberta-v2",
            size="tiny",
            hidden_size=32,
            intermediate_size=48,
            max_position_embeddings=64,
            position_buckets=16,
            conv_kernel_size=3,
            initializer_range=0.15,
        ),
        objective="masked_lm",
        packed="masked_lm",
        split=("tensor_fsdp", ("deberta-v2/encoder/distance", 1, (None, "data"))),
        parts={"feed-forward", "convolution", "layer norm"},
        task="CoLA",
    ),
    "xlm": Case(
        model=dict(
            encoder="xlm",
            size="tiny",
            hidden_size=32,
            intermediate_size=128,
            max_position_embeddings=64,
            initializer_range=0.15,
        ),
        objective="masked_lm",
        packed="left_to_right",
        split=("tensor_fsdp", ("xlm/embeddings/token", 1, ("model", "data"))),
        parts={"feed-forward", "layer norm"},
        task="CoLA",
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def run(case, tiny_corpus, pretrained_once):
    """A finished run of 12 steps; do not write into it."""
    return pretrained_once(f"{case.model['encoder']}_run", case.config(tiny_corpus))


def test_it_learns_and_is_evaluated(run, tmp_path):
    rows = [row for row in metrics_of(run) if row["split"] == "train"]
    assert rows[-1]["mlm_loss"] < 0.8 * rows[0]["mlm_loss"]
    figures = evaluate.run(str(shutil.copytree(run, tmp_path / "run")), None, 2)
    assert figures.keys() == {"32", "64"}
    assert figures["64"]["mlm_loss"] < rows[0]["mlm_loss"]
    (guesses,) = fill(open_model(str(run)), ["moo [MASK] moo moo."], 3)
    assert len(guesses[0]) == 3 and guesses[0][0].probability > 0.01


def test_it_learns_from_packed_documents(case, tiny_corpus, tmp_path):
    phases = {"phase_1": {"share": 1.0, "length": 64}, "phase_2": {"share": 0.0}}
    packed = dict(objective=case.packed, packed=True, short_probability=0)
    assert pretrain.run(case.config(tiny_corpus, **packed, **phases), str(tmp_path / "run")) == 0
    rows = [row for row in metrics_of(tmp_path / "run") if row["split"] == "train"]
    assert rows[-1]["mlm_loss"] < 0.8 * rows[0]["mlm_loss"]


def test_a_stopped_run_goes_on_to_the_same_end(case, run, tiny_corpus, tmp_path):
    pretrain_until_stopped(case.config(tiny_corpus), tmp_path / "run", lines=3)
    assert pretrain.run(case.config(tiny_corpus), str(tmp_path / "run")) == 0
    assert metrics_of(tmp_path / "run") == metrics_of(run)
    params = [open_model(str(folder)).params for folder in (run, tmp_path / "run")]
    jax.tree.map(np.testing.assert_array_equal, *params)


@pytest.mark.devices(8)
def test_a_layout_trains_the_same_model(case, run, tiny_corpus, tmp_path):
    layout, (path, count, mesh_axes) = case.split
    mesh = {"data": -1, "model": 2 if "tensor" in layout else 1}
    model = {"vocab_multiple": 8}
    config = case.config(tiny_corpus, layout=layout, mesh=mesh, model=model)
    assert pretrain.run(config, str(tmp_path / layout)) == 0
    for one, other in zip(metrics_of(tmp_path / layout), metrics_of(run), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
    rows = {row.path: row for row in show_sharding.run(config | {"corpus": ""})}
    assert (rows[path].count, rows[path].mesh_axes) == (count, mesh_axes)


@pytest.mark.needs("libtpu")
def test_the_compile_report(case):
    model = dict(hidden_size=128, compute_dtype="bfloat16", max_position_embeddings=128)
    phases = {
        "phase_1": {"share": 1.0, "length": 128, "batch_size": 32},
        "phase_2": {"share": 0.0},
    }
    config = case.config("", layout="zero1", model=model | {"vocab_multiple": 128}, **phases)
    (report,) = compile_check.run(config, "v5e:4x4")
    parts = {part for part, _ in report.estimate.parts}
    expected = {"attention", "attention projections", "embeddings", "heads and losses"}
    assert expected | case.parts <= parts


def test_fine_tuned_it_predicts_and_is_exported(case, run, tmp_path):
    family = FAMILIES[case.task]
    family.write(tmp_path / "data")
    config = tiny_finetuning(run, tmp_path / "data", task=family.task)
    config.model = dict(hidden_dropout_prob=0.1)
    assert finetune.run(config, str(tmp_path / "tuned")) == 0
    (tmp_path / "lines.txt").write_text("baa baa moo\nquack\n")
    predict.run(str(tmp_path / "tuned"), str(tmp_path / "lines.txt"), str(tmp_path / "out.jsonl"))
    answers = list(map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines()))
    assert len(answers) == 2

    found = convert.run(str(tmp_path / "tuned"), f"hf:{tmp_path / 'exported'}")
    assert max(found.values()) < rounding(4)
    written = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert written["model_type"] == case.model["encoder"]
    predict.run(f"hf:{tmp_path / 'exported'}", str(tmp_path / "lines.txt"), str(tmp_path / "b"))
    assert list(map(json.loads, (tmp_path / "b").read_text().splitlines())) == answers


def test_it_is_exported_and_goes_on_from_there(case, run, tiny_corpus, tmp_path):
    source = f"hf:{tmp_path / 'exported'}"
    assert max(convert.run(str(run), source).values()) < rounding(4)
    pretrained, trained = open_model(source), open_model(str(run))
    assert pretrained.spec == trained.spec
    jax.tree.map(np.testing.assert_array_equal, pretrained.params, trained.params)
    config = case.config(tiny_corpus, init_from=source)
    assert pretrain.run(config, str(tmp_path / "again")) == 0
    rows = metrics_of(tmp_path / "again")
    assert rows[0]["mlm_loss"] < 0.9 * metrics_of(run)[0]["mlm_loss"]
    family = case.model["encoder"]
    with pytest.raises(
        InputError, match=f"weights of a {family}, and config.model.encoder='bert': take a config"
    ):
        pretrain.run(tiny_config(tiny_corpus, init_from=source), str(tmp_path / "other"))
    assert max(convert.run(str(run), f"stablehlo:{tmp_path / 'served'}").values()) < 1e-4
