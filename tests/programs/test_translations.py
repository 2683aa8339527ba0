"""A run of masked LM and translation language modelling over one corpus."""

import json

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.programs import convert, prepare, pretrain
from bertjax.runs.source import open_model
from tests.helpers.closeness import LOGITS, rounding
from tests.helpers.tiny_run import SOUNDS, rows_of, tiny_config, write_text

LANGUAGES = ("la", "lb", "la-lb")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A language, the same in capitals, and pairs of both."""
    folder = tmp_path_factory.mktemp("translations")
    for number, name in enumerate(LANGUAGES):
        write_text(folder / f"{name}.txt", documents=48, seed=number)
    (folder / "lb.txt").write_text((folder / "lb.txt").read_text().upper())
    lines = (folder / "la-lb.txt").read_text().split("\n")
    pairs = [f"{line}\t{line.upper()}" for line in lines if line]
    (folder / "pairs.tsv").write_text("\n".join(pairs))
    sources = [f"{name}=text:{folder}/{name}.txt" for name in LANGUAGES[:2]]
    sources.append(f"la-lb=parallel:{folder}/pairs.tsv")
    options = dict(learn_vocabulary=150, cased=True, held_out=0.2, workers=1)
    prepare.run(sources, folder / "corpus", **options)
    return folder / "corpus"


def config_of(corpus, languages="la,lb", model=None, **changes):
    model = {"encoder": "xlm", "type_vocab_size": 2, "intermediate_size": 128} | (model or {})
    objective = {"name": "masked_lm", "text": "translations", "languages": languages}
    return tiny_config(corpus, objective=objective, model=model, **changes)


@pytest.mark.slow
def test_a_run_over_texts_and_translations(corpus, tmp_path):
    assert pretrain.run(config_of(corpus, language_alpha=0.5), str(tmp_path / "run")) == 0
    held_out = rows_of(tmp_path / "run", "heldout")
    assert {f"mlm_loss_{name}" for name in LANGUAGES} <= held_out[-1].keys()
    assert held_out[-1]["mlm_loss_la-lb"] < held_out[0]["mlm_loss_la-lb"] - 0.1
    trained = open_model(str(tmp_path / "run"))
    table = np.asarray(trained.params["xlm"]["embeddings"]["segment"])
    assert table.shape == (2, 32) and np.abs(table[0] - table[1]).max() > 0.01

    exported = tmp_path / "exported"
    assert max(convert.run(str(tmp_path / "run"), f"hf:{exported}").values()) < rounding(LOGITS)
    written = json.loads((exported / "config.json").read_text())
    assert (written["n_langs"], written["use_lang_emb"], written["vocab_size"]) == (2, True, 150)
    again = open_model(f"hf:{exported}")
    assert again.spec == trained.spec
    jax.tree.map(np.testing.assert_array_equal, again.params, trained.params)


@pytest.mark.slow
def test_a_word_is_found_in_its_translation(tmp_path):
    """No word of these texts can be guessed from its own text, and each one from the other text."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(SOUNDS, rng.integers(4, 9))) for _ in range(3600)]
    (tmp_path / "a.txt").write_text("\n\n".join(texts[:600]))
    (tmp_path / "b.tsv").write_text("\n".join(f"{each}\t{each.upper()}" for each in texts[600:]))
    sources = [f"la=text:{tmp_path}/a.txt@1", f"la-lb=parallel:{tmp_path}/b.tsv@3"]
    options = dict(learn_vocabulary=250, cased=True, held_out=0.1, workers=1)
    prepare.run(sources, tmp_path / "corpus", **options)
    no_dropout = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    config = config_of(
        tmp_path / "corpus",
        model=no_dropout | {"num_hidden_layers": 2},
        total_steps=400,
        phase_1={"share": 1.0, "length": 24, "batch_size": 32},
        phase_2={"share": 0.0},
        optimizer={"learning_rate": 5e-3, "warmup_steps": 20},
        intervals={"log": 100, "evaluate": 400, "checkpoint": 400, "eval_batches": 4},
    )
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    last = rows_of(tmp_path / "run", "heldout")[-1]
    assert last["mlm_loss_la"] > 2.4 and last["mlm_loss_la-lb"] < 0.6


@pytest.mark.parametrize(
    "languages, model, message",
    [
        ("", {"encoder": "modernbert"}, "its text has position_ids, which modernbert does not"),
        ("la,lb", {"encoder": "bert"}, "its text has language_ids, which bert does not read"),
        ("la,lb", {"type_vocab_size": 3}, "model.type_vocab_size=3: must be 2, the number of"),
        ("la,sw", {}, r"its language \(lb\) is not among objective.languages='la,sw'"),
        ("", {}, "xlm has an embedding of each language, and the text of objective='masked_lm' na"),
    ],
)
def test_the_errors(corpus, tmp_path, languages, model, message):
    config = config_of(corpus, languages, model)
    if "modernbert" in model.values():
        del config["model"]["type_vocab_size"]  # it has no such field
    with pytest.raises(InputError, match=message):
        pretrain.run(config, str(tmp_path / "run"))
