"""What a name stands for, by one read of its config; and what is said where it has no model."""

import json

import pytest

from bertjax.base.errors import InputError
from bertjax.runs import run_folder
from bertjax.runs.fine_tuning.fine_tuned import open_fine_tuned
from bertjax.runs.pretrained_run import PretrainedRun
from bertjax.runs.source import (
    EnsembleFolder,
    Published,
    SomeLayers,
    TaggerFolder,
    TasksRun,
    TunedRun,
    load_run,
    open_model,
    open_source,
)


@pytest.fixture
def reads(monkeypatch):
    """The configs that are read."""
    found, read = [], run_folder.read_json

    def counted(path, *how, **more):
        found.append(path)
        return read(path, *how, **more)

    monkeypatch.setattr(run_folder, "read_json", counted)
    return found


# The content of config.json, the class, and what its `weights` say.
FOLDERS = {
    "tuned": ({"task": {}}, TunedRun, "a run of fine-tuning without a model: no trial is done yet"),
    "tasks": ({"tasks": {"a": {}}}, TasksRun, "tasks/a: not a run: it has no config.json"),
    "ensemble": ({"ensemble": {}}, EnsembleFolder, "which launch/predict.py alone takes: name one"),
    "tagger": (None, TaggerFolder, "a tagger over fixed features, which launch/predict.py alone"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_what_its_config_says(tmp_path, reads, name):
    config, type_, message = FOLDERS[name]
    folder = tmp_path / name
    (folder / "tagger").mkdir(parents=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    source = open_source(str(folder))
    assert type(source) is type_ and source.name == str(folder) and open_source(source) is source
    with pytest.raises(InputError, match=message):
        source.weights()
    with pytest.raises(InputError, match=f"--part=generator: {folder} is no run of pre-training"):
        open_model(source, part="generator")
    with pytest.raises(InputError, match="a run of fine-tuning, not of pre-|launch/predict.py alo"):
        load_run(source)
    assert len(reads) == (config is not None)


def test_other_names(tiny_run, reads):
    run = open_source(f"{tiny_run}@150")
    assert isinstance(run, PretrainedRun) and run.load().step == 150
    some = open_source(f"{tiny_run}#0")
    assert isinstance(some, SomeLayers) and some.layers == (0,) and some.name == f"{tiny_run}#0"
    assert some.weights().spec.num_hidden_layers == 1
    assert len(reads) == 2
    for name in ("hf:name", "tf1:folder", "elmo:folder"):
        assert open_source(name) == Published(name)
        with pytest.raises(InputError, match=f"{name}: not a run: name the folder of a run of pre"):
            load_run(name)
    assert not Published("tf1:folder").makes_vectors
    with pytest.raises(InputError, match="hf: not a run: it has no config.json"):
        open_source("hf")


def test_a_fine_tuned_run_is_read_once(fine_tuned, reads):
    _, run = fine_tuned("CoLA")
    reads.clear()
    source = open_source(str(run))
    assert isinstance(source, TunedRun) and not source.makes_vectors
    assert open_fine_tuned(source).family.classes == ("unacceptable", "acceptable")
    assert reads == [run / "config.json"]
