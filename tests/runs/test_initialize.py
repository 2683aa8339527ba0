"""Training that starts from pretrained weights, of a run or of Hugging Face."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.models.encoders import head_types
from bertjax.programs import convert, evaluate, prepare, pretrain
from bertjax.runs import initialize
from bertjax.runs.initialize import with_sizes_of
from bertjax.runs.source import open_model
from tests.helpers.closeness import assert_close
from tests.helpers.small_models import CLASSES, KINDS, SPEC, small_model
from tests.helpers.tiny_run import corpus_once, metrics_of, tiny_config, write_text


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory):
    """`tiny_run` as a Hugging Face folder."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    convert.run(str(tiny_run), f"{convert.HUGGING_FACE}{folder}")
    return folder


# The steps are so small that the trained weights equal the given ones.
_STILL = {"learning_rate": 1e-12, "warmup_steps": 1, "weight_decay": 0.0}
_SHORT = {  # one phase, so that one length is compiled
    "total_steps": 2,
    "optimizer": _STILL,
    "phase_1": {"share": 1.0},
    "phase_2": {"share": 0.0},
}

_STACKED = {"scan_layers": True, "vocab_multiple": 64}


@pytest.mark.slow
@pytest.mark.parametrize("form, storage", [("run", {}), ("hf", _STACKED)])
def test_it_goes_on_where_the_weights_are(
    tiny_corpus, tiny_run, exported, tmp_path, form, storage, capsys
):
    """The config has other sizes; those of the weights are used and recorded."""
    source = str(tiny_run) if form == "run" else f"hf:{exported}"
    config = tiny_config(
        tiny_corpus,
        init_from=source,
        total_steps=2,
        model={"hidden_size": 48, "num_hidden_layers": 2, **storage},
        optimizer=_STILL,
    )
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    assert "fresh:" not in capsys.readouterr().out
    wanted = flatten_dict(dict(open_model(source).params), sep="/")
    found = flatten_dict(dict(open_model(str(tmp_path / "run")).params), sep="/")
    assert found.keys() == wanted.keys()
    for name, leaf in wanted.items():
        np.testing.assert_allclose(found[name], leaf, atol=1e-10, err_msg=name)
    model = json.loads((tmp_path / "run" / "config.json").read_text())["model"]
    assert (model["hidden_size"], model["num_hidden_layers"]) == (32, 1)
    shutil.copytree(tiny_run, tmp_path / "pretrained")
    before = evaluate.run(str(tmp_path / "pretrained"), None, 4)
    after = evaluate.run(str(tmp_path / "run"), None, 4)
    for length, metrics in before.items():
        assert_close(after[length]["mlm_loss"], metrics["mlm_loss"])


def test_what_the_weights_decide(make_pretrained):
    """The weights decide all settings of the function, and none of the training."""
    spec = dataclasses.replace(SPEC, layer_norm_eps=1e-9, hidden_act="gelu_tanh")
    model = dict(encoder="bert", size="base", hidden_size=48, layer_norm_eps=1e-6, remat="layer")
    assert with_sizes_of(make_pretrained(spec=spec), model) == dict(
        encoder="bert",
        remat="layer",
        vocab_size=20,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=56,
        max_position_embeddings=13,
        type_vocab_size=2,
        hidden_act="gelu_tanh",
        initializer_range=0.2,
        layer_norm_eps=1e-9,
    )


@pytest.mark.slow
def test_a_missing_head_starts_fresh_and_is_named(tiny_corpus, tiny_run, tmp_path, capsys):
    """The given model lacks the next-sentence task."""
    alone = tiny_config(tiny_corpus, objective="masked_lm", init_from=str(tiny_run), **_SHORT)
    assert pretrain.run(alone, str(tmp_path / "alone")) == 0
    said = capsys.readouterr().out
    assert "not trained on: pooler" in said and "not trained on: next_sentence_head" in said
    both = tiny_config(tiny_corpus, init_from=str(tmp_path / "alone"), **_SHORT)
    assert pretrain.run(both, str(tmp_path / "both")) == 0
    said = capsys.readouterr().out
    assert "random: pooler" in said and "random: next_sentence_head" in said
    assert "random: bert" not in said
    first, again = open_model(str(tiny_run)).params, open_model(str(tmp_path / "both")).params
    kernel = "dense", "kernel"
    result = flatten_dict(dict(again["pooler"]))[kernel]
    assert not np.allclose(result, flatten_dict(dict(first["pooler"]))[kernel], atol=1e-3)
    np.testing.assert_allclose(again["masked_lm"]["bias"], first["masked_lm"]["bias"], atol=1e-9)


@pytest.mark.slow
def test_it_resumes_as_any_run(tiny_corpus, exported, tmp_path, monkeypatch):
    """A run that is stopped and resumed without these weights equals an uninterrupted run."""
    settings = dict(init_from=f"hf:{exported}", intervals={"checkpoint": 3}, seed=3)
    config = tiny_config(tiny_corpus, total_steps=6, **settings)
    assert pretrain.run(config, str(tmp_path / "whole")) == 0
    assert pretrain.run(config, str(tmp_path / "resumed")) == 0
    newest = max((tmp_path / "resumed" / "checkpoints").iterdir(), key=lambda p: int(p.name))
    for path in sorted(newest.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    newest.rmdir()
    monkeypatch.setattr(initialize, "open_model", None)
    assert pretrain.run(config, str(tmp_path / "resumed")) == 0
    assert metrics_of(tmp_path / "resumed") == metrics_of(tmp_path / "whole")


def write_other_text(path):
    """The easy language with a new word."""
    write_text(path, documents=40, seed=9)
    path.write_text(path.read_text().replace("growl", "growlings"), "utf-8")


def test_another_vocabulary(tiny_run, tmp_path):
    corpus = corpus_once("fewer_tokens", learn_vocabulary=70)
    config = tiny_config(corpus, init_from=str(tiny_run))
    with pytest.raises(InputError, match="have different vocabularies: prepare the corpus with"):
        pretrain.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked, exchange, storage",
    [
        (dict(extend_vocabulary=9), False, _STACKED),
        (dict(extend_vocabulary=9), False, {}),
        (dict(learn_vocabulary=120), True, {}),
    ],
)
def test_weights_in_another_vocabulary(
    tiny_run, exported, tmp_path, capsys, asked, exchange, storage
):
    """Old pieces keep their rows, and new ones have the means; the run goes on as any."""
    write_other_text(tmp_path / "text.txt")
    if "learn_vocabulary" not in asked:
        asked = asked | dict(vocabulary=f"hf:{exported}")
    source = f"text:{tmp_path / 'text.txt'}"
    prepare.run([source], tmp_path / "corpus", **asked, held_out=0.2, workers=1)
    source = str(tiny_run) if exchange else f"hf:{exported}"
    config = tiny_config(
        tmp_path / "corpus", init_from=source, exchange_vocabulary=exchange, model=storage, **_SHORT
    )
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    old, new = open_model(source), open_model(str(tmp_path / "run"))
    assert f"{new.tokenizer.vocabulary_size:,} pieces instead of" in capsys.readouterr().out
    assert new.spec.vocab_size == new.tokenizer.vocabulary_size != old.tokenizer.vocabulary_size
    before, after = (
        old.params["bert"]["embeddings"]["token"],
        new.params["bert"]["embeddings"]["token"],
    )
    ids = {piece: number for number, piece in enumerate(old.tokenizer.tokens)}
    copied = 0
    for number, piece in enumerate(new.tokenizer.tokens):
        if piece in ids:
            copied += 1
            np.testing.assert_allclose(after[number], before[ids[piece]], atol=1e-9, err_msg=piece)
            assert exchange or ids[piece] == number
    word = new.tokenizer.tokens.index("growlings")
    (pieces,) = old.tokenizer.encode(["growlings"])
    assert copied > 30 and len(pieces) > 1
    assert_close(after[word], before[pieces].mean(axis=0))
    # The same command goes on, and another of the same folder starts from its weights.
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    evaluate.run(str(tmp_path / "run"), None, 2)


@pytest.mark.parametrize(
    "source, message",
    [
        ("nowhere", "nowhere: not a run"),
        ("hf:no/such-model", "hf:no/such-model: no such folder, and the hub cannot be reached"),
        ("tf1:nowhere", "tf1:nowhere"),
    ],
)
def test_missing_weights(tiny_corpus, tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        pretrain.run(tiny_config(tiny_corpus, init_from=source), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_an_output_layer_goes_on_only_for_the_same_kind_and_classes(vocabulary):
    for name, kind in KINDS.items():
        model = small_model(vocabulary, name)
        assert model.beginning(kind, model.classes).keys() >= set(model.head_spec.parts(model.spec))
    questions = small_model(vocabulary, "BertForQuestionAnswering")
    assert "span" in questions.beginning(head_types.QUESTION_ANSWERING)
    assert "span" not in questions.beginning(head_types.TOKEN_CLASSIFICATION, CLASSES)
    classifier = small_model(vocabulary, "BertForSequenceClassification")
    for classes in (CLASSES[::-1], CLASSES[:2], ()):
        beginning = classifier.beginning(head_types.SEQUENCE_CLASSIFICATION, classes)
        assert beginning.keys() == {"bert", "pooler"}
    # Rows for the same classes, but of words.
    assert "classifier" not in classifier.beginning(head_types.TOKEN_CLASSIFICATION, CLASSES)
