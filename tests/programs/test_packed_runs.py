"""Packed documents through the programs of a run."""

import json

import pytest

from bertjax.config import paper_config, place_on_pod
from bertjax.inference.blanks import fill
from bertjax.programs import compile_check, evaluate, pretrain
from bertjax.runs.source import open_model
from tests.helpers.closeness import assert_close
from tests.helpers.tiny_run import metrics_of, rows_of, tiny_config

pytestmark = pytest.mark.slow


def _config(corpus, **changes):
    phases = {"phase_1": {"share": 1.0, "length": 64}, "phase_2": {"share": 0.0}}
    packed = dict(objective="masked_lm", packed=True, short_probability=0)
    return tiny_config(corpus, **packed, **phases, **changes)


@pytest.fixture(scope="module")
def run(tiny_corpus, tmp_path_factory):
    """A finished run of 12 steps; do not write into it."""
    folder = tmp_path_factory.mktemp("packed") / "run"
    assert pretrain.run(_config(tiny_corpus), str(folder)) == 0
    return folder


def test_it_learns_and_is_evaluated(run, capsys):
    rows = rows_of(run, "train")
    assert rows[-1]["mlm_loss"] < 0.8 * rows[0]["mlm_loss"]
    assert not any(name.startswith("nsp") for row in rows for name in row)
    last = metrics_of(run)[-1]
    assert last["split"] == "heldout"
    results = evaluate.run(str(run), None, 2)
    assert_close(results["64"], {name: last[name] for name in results["64"]})
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["length", "mlm_loss"]
    assert json.loads((run / "config.json").read_text())["packed"] is True
    (guesses,) = fill(open_model(str(run)), ["moo [MASK] moo moo."], 3)
    assert len(guesses[0]) == 3


@pytest.mark.slow
@pytest.mark.devices(8)
@pytest.mark.parametrize("layout", ["zero1", "tensor_fsdp"])
def test_the_layouts_train_the_same_model(run, tiny_corpus, tmp_path, layout):
    mesh = {"data": -1, "model": 2 if "tensor" in layout else 1}
    config = _config(tiny_corpus, layout=layout, mesh=mesh, model={"vocab_multiple": 8})
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    for one, other in zip(metrics_of(tmp_path / "run"), metrics_of(run), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.needs("libtpu")
def test_the_compile_report():
    config = place_on_pod(paper_config())
    config.update(objective="masked_lm", packed=True, short_probability=0.0, total_steps=7_200)
    config.optimizer.warmup_steps = 10
    config.phase_1.update(share=1.0, batch_size=64)
    config.phase_2.update(share=0.0)
    sizes = dict(size="tiny", num_hidden_layers=1, hidden_size=256, num_attention_heads=4)
    config.model = config.model.to_dict() | sizes
    (report,) = compile_check.run(config, "v5e:4x4")
    assert {"attention", "embeddings"} <= {part for part, _ in report.estimate.parts}
