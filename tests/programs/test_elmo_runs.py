"""ELMo through every program: from a vocabulary of words to a tagger over a run's layers."""

import json
import shutil

import jax
import numpy as np
import pytest

import bertjax
from bertjax.base.errors import InputError
from bertjax.data.corpus.store import TokenStore, open_tokenizer
from bertjax.inference.blanks import fill
from bertjax.inference.features.compute import Options
from bertjax.interop.elmo import read_elmo
from bertjax.models.encoders import head_types
from bertjax.programs import convert, evaluate, extract_features, finetune, pretrain
from bertjax.runs.initialize import open_sources
from bertjax.runs.recipe import Recipe
from bertjax.runs.source import open_model
from configs import finetune_ner
from tests.helpers import task_files
from tests.helpers.closeness import assert_close
from tests.helpers.stopped import assert_goes_on_exactly
from tests.helpers.tiny_run import corpus_once, metrics_of, rows_of, tiny_config

pytestmark = pytest.mark.slow

_MODEL = dict(
    encoder="elmo",
    vocab_size=25,  # of 36 words
    vocab_multiple=8,
    hidden_size=30,
    cell_size=20,
    num_hidden_layers=2,
    character_size=5,
    filters=((1, 5), (2, 20), (3, 8)),
    num_highways=1,
    hidden_dropout_prob=0.1,
)


@pytest.fixture(scope="module")
def corpus():
    return corpus_once("elmo_corpus", learn_vocabulary=36, tokenizer="words")


def _config(corpus, **changes):
    phases = {"phase_1": {"share": 1.0, "length": 9, "batch_size": 8}}
    phases["phase_2"] = {"share": 0.0, "length": 9, "batch_size": 8}
    objective = dict(name="both_directions", sampled=15)
    config = tiny_config(
        corpus,
        **dict(
            objective=objective,
            short_probability=0.0,
            total_steps=200,
            intervals=dict(log=20, evaluate=100, checkpoint=50),
        )
        | phases,
    )
    return config | {"model": _MODEL} | changes


@pytest.fixture(scope="module")
def run(corpus, pretrained_once):
    """A finished run; do not write into it."""
    return pretrained_once("elmo_run", _config(corpus))


def test_it_learns_and_is_evaluated(run, tmp_path):
    rows = rows_of(run, "train")
    assert rows[-1]["loss"] < 0.8 * rows[0]["loss"]
    figures = evaluate.run(str(shutil.copytree(run, tmp_path / "run")), None, 2)["9"]
    losses = figures["forward_loss"], figures["backward_loss"]
    assert_close(figures["loss"], np.mean(losses))
    assert figures["forward_perplexity"] == pytest.approx(np.exp(losses[0]))
    assert figures["loss"] < 0.8 * rows[0]["loss"]


def test_the_unigram_baseline_has_the_words_that_are_predicted(run, corpus):
    """The others count as the unknown word."""
    store = TokenStore.open(corpus)
    starts = store.document_starts
    ids = store.read_spans(starts[:-1], np.diff(starts))
    _, counts = np.unique(np.where(ids < 25, ids, 2), return_counts=True)
    shares = counts / counts.sum()
    baseline = json.loads((run / "health.json").read_text())["unigram_baseline"]
    assert baseline == pytest.approx(-(shares * np.log(shares)).sum())
    assert (ids >= 25).any() and not (ids == 2).any()


def test_a_stopped_run_goes_on_to_the_same_end(run, corpus, tmp_path):
    """With the states of the update at which it was stopped."""
    assert_goes_on_exactly(_config(corpus), run, tmp_path / "run")


def test_it_is_opened(run):
    model = bertjax.load(str(run))
    texts = ["Baa moo .", "Woof " + "x" * 60]
    first, second = model.vectors(texts, "words", layers=(0, 1, 2))
    assert first.shape == (3, 3 * 30) and second.shape == (2, 3 * 30)
    assert open_model(str(run)).head_type == head_types.BIDIRECTIONAL_LM
    assert model.params["next_word"]["kernel"].shape == (25, 15)
    with pytest.raises(InputError, match="reads the characters of words, and pieces"):
        model.encode(texts)
    with pytest.raises(InputError, match="elmo has no model of the kind masked_lm"):
        fill(open_model(str(run)), ["moo [MASK]"], 3)


@pytest.mark.needs("h5py")
def test_its_exported_features_are_the_same(run, tmp_path):
    found = convert.run(str(run), f"elmo:{tmp_path / 'elmo'}")
    assert max(found.values()) == 0
    options = json.loads((tmp_path / "elmo" / "options.json").read_text())
    assert options["n_tokens_vocab"] == 25 and options["lstm"]["dim"] == 20
    assert "next_word" not in read_elmo(tmp_path / "elmo", "again").params
    (tmp_path / "texts.txt").write_text("Baa moo .\nWoof\n")
    for name, source in (("run", run), ("elmo", f"elmo:{tmp_path / 'elmo'}")):
        output, texts = str(tmp_path / f"{name}.npz"), str(tmp_path / "texts.txt")
        extract_features.run(str(source), texts, output, Options(layers=(0, 1, 2)))
    result, reference = (np.load(tmp_path / f"{name}.npz") for name in ("run", "elmo"))
    for name in result.files:
        np.testing.assert_array_equal(result[name], reference[name])


def test_its_weights_begin_another_run(run, corpus, tmp_path):
    """What predicts words begins anew where the corpus has others."""
    pretrained = open_model(str(run))

    def beginning(corpus, **changes):
        config = _config(corpus, init_from=str(run), **changes)
        recipe = Recipe.from_config(config)
        tokenizer = open_tokenizer(str(corpus))
        return open_sources(recipe, tokenizer, open_model, started=False)[""]

    same = beginning(corpus)
    jax.tree.map(np.testing.assert_array_equal, same.params, pretrained.params)
    others = corpus_once("elmo_other_words", learn_vocabulary=31, tokenizer="words")
    other = beginning(others, model={**_MODEL, "vocab_size": 22})
    assert other.params.keys() == {"elmo"} and other.spec.vocab_size == 22
    jax.tree.map(np.testing.assert_array_equal, other.params["elmo"], pretrained.params["elmo"])
    # With the whole softmax, its first loss is near that at which the run ended.
    ended = rows_of(run, "train")[-1]["loss"]
    intervals = dict(log=1, evaluate=5, checkpoint=5, eval_batches=1)
    config = _config(corpus, init_from=str(run), total_steps=5, intervals=intervals)
    assert pretrain.run(config, str(tmp_path / "on")) == 0
    first = metrics_of(tmp_path / "on")[0]["loss"]
    assert first < ended + 0.2


def test_a_tagger_reads_its_layers(run, tmp_path):
    data = task_files.write_conll(tmp_path / "data")
    config = finetune_ner.get_config("elmo")
    config.data, config.init_from = str(data), str(run)
    config.features.update(hidden=24, dropout=0.0)
    config.grid.update(batch_size=(8,), epochs=(8,), learning_rate=(1e-2,))
    assert finetune.run(config, str(tmp_path / "tagger")) == 0
    results = json.loads((tmp_path / "tagger" / "results.json").read_text())["mix_all"]
    assert results["dev"]["dev"]["f1"] > 80


def test_what_is_refused(run, corpus, tiny_corpus, tmp_path):
    with pytest.raises(InputError, match="is a wordpiece one, and whole words are predicted here"):
        pretrain.run(_config(tiny_corpus), str(tmp_path / "run"))
    with pytest.raises(InputError, match="reads the characters of words, and pieces"):
        config = tiny_config(tiny_corpus, objective="masked_lm", init_from=str(run))
        pretrain.run(config, str(tmp_path / "run"))
    with pytest.raises(InputError, match="objective='masked_lm': elmo has no head for it"):
        pretrain.run(_config(corpus, objective="masked_lm"), str(tmp_path / "run"))
    with pytest.raises(InputError, match="no special token for 'mask'"):
        config = tiny_config(corpus, objective="masked_lm")
        pretrain.run(config, str(tmp_path / "run"))
