"""A run of masked LM and translation language modelling over one corpus."""

import json

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.programs import convert, prepare, pretrain
from bertjax.runs.open_model import open_model
from tests.helpers.tiny_run import metrics_of, tiny_config, write_text

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


def config_of(corpus, languages="la,lb", **changes):
    model = {"encoder": "xlm", "type_vocab_size": 2, "intermediate_size": 128}
    objective = {"name": "masked_lm", "text": "translations", "languages": languages}
    config = tiny_config(corpus, objective=objective, language_alpha=0.5)
    return {**config, "model": config["model"] | model | changes}


def test_a_run_over_texts_and_translations(corpus, tmp_path):
    assert pretrain.run(config_of(corpus), str(tmp_path / "run")) == 0
    held_out = [line for line in metrics_of(tmp_path / "run") if line["split"] == "heldout"]
    assert {f"mlm_loss_{name}" for name in LANGUAGES} <= held_out[-1].keys()
    assert held_out[-1]["mlm_loss_la-lb"] < held_out[0]["mlm_loss_la-lb"] - 0.1
    trained = open_model(str(tmp_path / "run"))
    table = np.asarray(trained.params["xlm"]["embeddings"]["segment"])
    assert table.shape == (2, 32) and np.abs(table[0] - table[1]).max() > 0.01

    exported = tmp_path / "exported"
    assert max(convert.run(str(tmp_path / "run"), f"hf:{exported}").values()) < 1e-5
    written = json.loads((exported / "config.json").read_text())
    assert (written["n_langs"], written["use_lang_emb"], written["vocab_size"]) == (2, True, 150)
    again = open_model(f"hf:{exported}")
    assert again.spec == trained.spec
    jax.tree.map(np.testing.assert_array_equal, again.params, trained.params)


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"encoder": "modernbert"},
            "its text has position_ids, which modernbert does not read: choose another text",
        ),
        ({"encoder": "bert"}, "its text has language_ids, which bert does not read"),
        ({"type_vocab_size": 3}, "model.type_vocab_size=3: must be 2, the number of objective.lan"),
        ({"languages": "la,sw"}, r"its language \(lb\) is not among objective.languages='la,sw'"),
        ({"languages": ""}, "xlm has an embedding of each language, and the text of objective="),
    ],
)
def test_the_errors(corpus, tmp_path, changes, message):
    config = config_of(corpus, **changes)
    if changes.get("encoder") == "modernbert":
        config = config_of(corpus, languages="", **changes)
        del config["model"]["intermediate_size"], config["model"]["type_vocab_size"]
    with pytest.raises(InputError, match=message):
        pretrain.run(config, str(tmp_path / "run"))
