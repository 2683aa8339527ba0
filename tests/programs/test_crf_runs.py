"""Complete runs of taggers with a CRF: over an encoder that is trained, and over ELMo's layers."""

import json

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.interop.elmo import write_elmo
from bertjax.programs import convert, finetune, predict
from bertjax.runs.fine_tuning.feature_tagger import read_tagger
from bertjax.runs.fine_tuning.fine_tuned import open_fine_tuned
from bertjax.runs.source import open_model
from bertjax.tasks.conll import Conll
from configs import finetune_ner as configs
from tests.helpers import task_files
from tests.helpers.small_elmo import small_elmo

pytestmark = pytest.mark.slow


def _tags(model, tmp_path, text):
    """The tags of new text."""
    (tmp_path / "in.txt").write_text(text)
    (tmp_path / "out.jsonl").unlink(missing_ok=True)
    predict.run(str(model), str(tmp_path / "in.txt"), str(tmp_path / "out.jsonl"))
    return [json.loads(line)["tags"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]


def test_a_fine_tuned_encoder_learns_and_is_opened(tiny_run, tmp_path):
    data, run = task_files.write_conll(tmp_path / "data"), tmp_path / "run"
    config = configs.get_config("finetune")
    config.data, config.init_from, config.max_length = str(data), str(tiny_run), 48
    config.task.crf = True
    config.grid.update(batch_size=(4,), epochs=(6,), learning_rate=(3e-3,))
    assert finetune.run(config, str(run)) == 0
    results = json.loads((run / "results.json").read_text())
    assert results["dev"]["dev"]["f1"] > 90
    opened = open_fine_tuned(str(run))
    assert open_model(str(run)).params["crf"]["between"].any()
    assert opened.family.objective == "tag_sequence"
    task = Conll(str(data), crf=True)
    examples = task.read("dev")
    predictions = opened.predict(examples, "dev")
    assert all(set(np.unique(each)) <= {0.0, 1.0} for each in predictions)
    assert task.score(examples, predictions, {}) == results["dev"]["dev"]
    assert len(_tags(run, tmp_path, "moo baa .\n")[0]) == 3
    with pytest.raises(InputError, match="transformers has no such model.*a CRF"):
        convert.run(str(run), f"hf:{tmp_path / 'hf'}")
    with pytest.raises(InputError, match="reads word_mask next to the tokens"):
        convert.run(str(run), f"stablehlo:{tmp_path / 'served'}")


@pytest.mark.needs("h5py")
def test_elmo_with_mixes_of_its_layers(tmp_path):
    data, run = task_files.write_conll(tmp_path / "data"), tmp_path / "run"
    (tmp_path / "elmo").mkdir()
    filters = ((1, 5), (2, 20), (3, 8))
    model = small_elmo(hidden_size=30, cell_size=20, filters=filters)
    write_elmo(model, tmp_path / "elmo")
    config = configs.get_config("elmo")
    config.data, config.init_from = str(data), f"elmo:{tmp_path / 'elmo'}"
    config.features.update(choices=("mix_all_twice",), hidden=24, mix_dropout=0.1, dropout=0.0)
    config.grid.update(batch_size=(8,), epochs=(8,), learning_rate=(1e-2,))
    assert finetune.run(config, str(run)) == 0
    results = json.loads((run / "results.json").read_text())["mix_all_twice"]
    assert results["dev"]["dev"]["f1"] > 90
    tagger = read_tagger(run / "mix_all_twice" / "tagger", "tagger")
    assert tagger.layers == (0, 1, 2, 3) and tagger.crf
    for number in range(2):
        mix = tagger.params[f"mix_{number}"]
        assert mix["s"].shape == (4,) and mix["s"].any() and mix["gamma"] != 1
    opened = open_fine_tuned(str(run / "mix_all_twice"))
    task = Conll(str(data), document_context=False, crf=True)
    examples = task.read("dev")
    assert task.score(examples, opened.predict(examples, "dev"), {}) == results["dev"]["dev"]
    # A word's tag does not depend on the other texts of a file.
    alone = _tags(run / "mix_all_twice", tmp_path, "moo baa .\n")
    assert _tags(run / "mix_all_twice", tmp_path, "baa\nmoo moo\nmoo baa .\n")[2] == alone[0]
    with pytest.raises(InputError, match="elmo has no head for NER: give its features"):
        config = configs.get_config("finetune")
        config.data, config.init_from = str(data), f"elmo:{tmp_path / 'elmo'}"
        config.model = dict(compute_dtype="float32")
        finetune.run(config, str(tmp_path / "other"))
