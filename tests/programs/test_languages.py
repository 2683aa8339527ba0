"""A run over two languages: how they are drawn, and its figures in each of them."""

import json

import pytest

from bertjax.base.errors import InputError
from bertjax.programs import evaluate, prepare, pretrain
from bertjax.runs.health import health_status_of_run
from tests.helpers.tiny_run import tiny_config, write_text

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """160 documents of one language, and 24 of the same words in capitals."""
    folder = tmp_path_factory.mktemp("languages")
    write_text(folder / "la.txt")
    write_text(folder / "lb.txt", documents=24, seed=1)
    (folder / "lb.txt").write_text((folder / "lb.txt").read_text().upper())
    sources = [f"{name}=text:{folder}/{name}.txt" for name in ("la", "lb")]
    options = dict(learn_vocabulary=150, cased=True, held_out=0.2, workers=1)
    prepare.run(sources, folder / "corpus", **options)
    return folder / "corpus"


def test_the_figures_of_each_language(corpus, tmp_path, capsys):
    config = tiny_config(corpus, language_alpha=0.5, objective="masked_lm")
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    printed = capsys.readouterr().out
    shares = [line.split() for line in printed.splitlines() if line[:3] in ("la ", "lb ")]
    assert [len(each) for each in shares] == [3, 3]
    assert float(shares[1][1][:-1]) < 20 < float(shares[1][2][:-1]) < 35
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    last = [line for line in lines if line["split"] == "heldout"][-1]
    health = json.loads((tmp_path / "run" / "health.json").read_text())
    says = str(health_status_of_run(tmp_path / "run"))
    for name in ("la", "lb"):
        loss, baseline = last[f"mlm_loss_{name}"], health["languages"][name]
        assert f"{name} {loss:.2f} (baseline {baseline:.2f}" in says
        assert last[f"mlm_perplexity_{name}"] > last[f"mlm_accuracy_{name}"] > 0
    assert min(health["languages"].values()) < health["unigram_baseline"]

    found = evaluate.run(str(tmp_path / "run"), None, batches=2)
    assert (
        found["64"].items() >= {k: v for k, v in last.items() if k.startswith("mlm_loss")}.items()
    )
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows[-6:]] == ["32", "la", "lb", "64", "la", "lb"]
    assert rows[-1][1] == f"{found['64']['mlm_loss_lb']:.4f}"


def test_a_corpus_of_no_language(tiny_corpus, tmp_path):
    with pytest.raises(InputError, match="names no language, which language_alpha=0.5 needs"):
        pretrain.run(tiny_config(tiny_corpus, language_alpha=0.5), str(tmp_path / "run"))
