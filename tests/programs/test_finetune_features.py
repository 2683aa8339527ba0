"""Complete runs with named entities from fixed features (Table 7)."""

import json
import shutil
from types import SimpleNamespace

import pytest

from bertjax.base.errors import InputError
from bertjax.models.heads.bilstm import BiLstmTagger
from bertjax.programs import finetune, finetune_features, predict
from bertjax.runs.fine_tuning.fine_tuned import open_fine_tuned
from bertjax.runs.source import open_model
from bertjax.tasks.conll import Conll
from configs import finetune_ner as configs
from tests.helpers import task_files


def _config(tiny_run, data, *choices):
    config = configs.get_config("features")
    config.data, config.init_from, config.max_length = str(data), str(tiny_run), 48
    config.buckets = 1
    config.features.choices, config.features.hidden = choices, 24
    config.grid.update(batch_size=(8,), epochs=(4,), learning_rate=(1e-2,))
    return config


@pytest.fixture(scope="module")
def finished(tiny_run, tmp_path_factory):
    """The data, and a run over the embeddings; do not write in it."""
    folder = tmp_path_factory.mktemp("features")
    data = task_files.write_conll(folder / "data")
    config = _config(tiny_run, data, "embeddings")
    assert finetune.run(config, str(folder / "run")) == 0
    return data, folder / "run"


@pytest.mark.slow
def test_it_learns_and_writes_its_predictions(finished):
    data, run = finished
    results = json.loads((run / "results.json").read_text())
    assert list(results) == ["embeddings"]
    assert results["embeddings"]["dev"]["dev"]["f1"] > 90
    assert results["embeddings"]["chosen"]["epochs"] == 4
    written = (run / "embeddings" / "predictions" / "ner-dev.txt").read_text().split("\n")
    assert sum(line.startswith("-DOCSTART-") for line in written) == 6
    with pytest.raises(InputError, match="over fixed features, whose taggers launch/predict.py op"):
        open_model(str(run))


@pytest.mark.slow
def test_its_tagger_tags_new_text(finished, tmp_path, capsys):
    data, run = finished
    tagger = open_fine_tuned(str(run / "embeddings"))
    task = Conll(str(data))
    examples = task.read("dev")
    predictions = tagger.predict(examples, "dev")
    results = json.loads((run / "results.json").read_text())["embeddings"]
    assert task.score(examples, predictions, {}) == results["dev"]["dev"]
    task.write(tmp_path, "dev", examples, predictions, {})
    before = run / "embeddings" / "predictions" / "ner-dev.txt"
    assert (tmp_path / "ner-dev.txt").read_bytes() == before.read_bytes()
    # The longest sentence of the files is shorter than this one.
    (tmp_path / "in.txt").write_text("moo baa .\n" + "moo " * 40, encoding="utf-8")
    predict.run(str(run / "embeddings"), str(tmp_path / "in.txt"), "-")
    printed = capsys.readouterr()
    short, long = map(json.loads, printed.out.splitlines())
    assert set(short) == {"words", "tags", "entities"} and len(short["tags"]) == 3
    assert len(long["tags"]) == 40 and set(long["tags"]) <= set(task.family.classes)
    assert "a tagger over layers 0: 2 layers of 24" in printed.err


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        ({"identity": "0"}, "embeddings: the encoder that it reads, .*, has other weights since"),
        ({"encoder": "nowhere"}, "embeddings: of the encoder that it reads: nowhere"),
        ({"layers": "last"}, "model.json: damaged"),
        (None, "embeddings: no parameters.safetensors in .*tagger: repeat the fine-tuning"),
    ],
)
def test_a_tagger_that_cannot_be_opened(finished, tmp_path, spoil, message):
    own = tmp_path / "embeddings"
    shutil.copytree(finished[1] / "embeddings" / "tagger", own / "tagger")
    if spoil:
        file = own / "tagger" / "model.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | spoil), encoding="utf-8")
    else:
        (own / "tagger" / "parameters.safetensors").unlink()
    with pytest.raises(InputError, match=message):
        open_fine_tuned(str(own))


@pytest.mark.slow
def test_another_choice_takes_the_stored_activations(finished, tiny_run, tmp_path):
    data, first = finished
    run = tmp_path / "run"
    shutil.copytree(first, run)
    stored = {path: path.stat().st_mtime_ns for path in (run / "activations").glob("*.npy")}
    assert len(stored) == 2
    config = _config(tiny_run, data, "embeddings", "weighted_sum_all")
    assert finetune.run(config, str(run)) == 0
    assert {p: p.stat().st_mtime_ns for p in (run / "activations").glob("*.npy")} == stored
    results = json.loads((run / "results.json").read_text())
    assert list(results) == ["embeddings", "weighted_sum_all"]
    assert results["embeddings"] == json.loads((first / "results.json").read_text())["embeddings"]


def test_other_words_are_other_data(finished, tiny_run, tmp_path):
    _, first = finished
    run = tmp_path / "run"
    shutil.copytree(first, run)
    data = task_files.write_conll(tmp_path / "data")
    train = data / "eng.train"
    train.write_text(train.read_text().replace("moo NN", "zzz NN"))
    with pytest.raises(InputError, match="was run with another train"):
        finetune.run(_config(tiny_run, data, "embeddings"), str(run))
    assert (run / "results.json").read_bytes() == (first / "results.json").read_bytes()


@pytest.mark.parametrize(
    "combine, penalty", [("concat", 0.0), ("weighted_sum", 0.0), ("mix", 0.3), ("mix_twice", 0.3)]
)
def test_mixes_have_a_penalty(monkeypatch, combine, penalty):
    seen = {}
    monkeypatch.setattr(finetune_features, "Trials", lambda *_, **settings: seen.update(settings))
    recipe = SimpleNamespace(features=SimpleNamespace(mix_l2=0.3))
    module = BiLstmTagger(3, combine)
    finetune_features._trials(
        recipe, {}, SimpleNamespace(module=module, model=None, layers=(0, 1), width=8)
    )
    assert seen["penalty"] == penalty


def test_bad_choices_are_refused(finished, tiny_run, tmp_path):
    data, _ = finished
    with pytest.raises(InputError, match="choices=.*first.*: must be one or more of embeddings"):
        finetune.run(_config(tiny_run, data, "first"), str(tmp_path / "run"))
    with pytest.raises(InputError, match="4 layers chosen, but the model has 1"):
        finetune.run(_config(tiny_run, data, "concat_last_four"), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.devices(8)
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda config, data: config.task.update(dev="nowhere"), "no nowhere in it"),
        (
            lambda config, data: (data / "eng.testa").write_text("moo NN O I-LOW\n"),
            "the tag 'B-LOW' is not in the training file",
        ),
        (
            lambda config, data: (data / "eng.testb").write_text("moo NN O I-\n"),
            "'I-' is not an entity tag",
        ),
        (lambda config, data: config.grid.update(batch_size=(12,)), "does not divide"),
    ],
)
def test_mistakes_are_reported_before_the_activations(tiny_run, tmp_path, spoil, message):
    data = task_files.write_conll(tmp_path / "data")
    config = _config(tiny_run, data, "embeddings")
    spoil(config, data)
    with pytest.raises(InputError, match=message):
        finetune.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
