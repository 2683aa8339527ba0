"""Runs that train some of the pretrained weights: what they save, and what is made of it."""

import json
import shutil

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.interop.peft import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from bertjax.programs import convert, evaluate, finetune, pretrain
from bertjax.runs.source import load_run, open_model
from tests.helpers.closeness import LOGITS, assert_close, rounding
from tests.helpers.task_files import tiny_finetuning, write_cola
from tests.helpers.tiny_run import ONE_LENGTH, tiny_config
from tests.runs.contrastive.test_runs import _config as similarity_config
from tests.runs.contrastive.test_runs import write_pairs
from tests.training import toy

LORA = dict(name="lora", rank=3, alpha=5.0, targets="attention|intermediate")


def _config(tiny_corpus, tiny_run, **changes):
    settings = dict(init_from=str(tiny_run), adapter=LORA, total_steps=6, **ONE_LENGTH)
    intervals = {"checkpoint": 3, "evaluate": 6}
    optimizer = {"learning_rate": 0.05, "name": "muon"}
    more = settings | dict(intervals=intervals, optimizer=optimizer) | changes
    return tiny_config(tiny_corpus, **more)


@pytest.fixture(scope="module")
def run(tiny_corpus, tiny_run, tmp_path_factory):
    """A run of pre-training that goes on from another by an adapter; do not write into it."""
    folder = tmp_path_factory.mktemp("adapter") / "run"
    assert pretrain.run(_config(tiny_corpus, tiny_run), str(folder)) == 0
    return folder


def _leaves(params):
    return flatten_dict(jax.device_get(dict(params)), sep="/")


def test_only_factors_are_saved_and_what_stays_is_that_of_the_source(run, tiny_run):
    loaded, base = load_run(run), load_run(tiny_run)
    result, reference = _leaves(loaded.params), _leaves(base.params)
    factors = {path for path in result if "lora_" in path}
    assert len(factors) == 6 and result.keys() - factors == reference.keys()
    for path, leaf in reference.items():
        assert leaf.tobytes() == result[path].tobytes(), path
    assert all(np.abs(result[path]).max() > 1e-3 for path in factors)
    assert loaded.data["frozen"] == open_model(str(tiny_run)).identity


@pytest.mark.slow
def test_an_interrupted_run_goes_on_exactly(run, tiny_corpus, tiny_run, tmp_path):
    again = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(again / "checkpoints" / "6")
    assert pretrain.run(_config(tiny_corpus, tiny_run), str(again)) == 0
    toy.assert_equal(load_run(again).params, load_run(run).params)
    loss = [evaluate.run(str(each), None, batches=1)["32"]["loss"] for each in (again, tiny_run)]
    assert loss[0] != loss[1]


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    """The run, and a folder with its exports `whole` and `small`, the latter for peft."""
    folder = tmp_path_factory.mktemp("exported")
    for form, name in (("hf", "whole"), ("peft", "small")):
        found = convert.run(str(run), f"{form}:{folder / name}")
        assert found["read back"] < rounding(LOGITS)
    return run, folder


@pytest.mark.slow
def test_the_export_and_the_folder_for_peft_compute_the_same(exported):
    _, folder = exported
    config = json.loads((folder / "small" / ADAPTER_CONFIG).read_text())
    assert (config["r"], config["lora_alpha"], config["modules_to_save"]) == (3, 5.0, None)
    assert len(config["target_modules"]) == 5  # query, key, value, two outputs
    whole, small = (open_model(f"hf:{folder / name}") for name in ("whole", "small"))
    assert_close(_leaves(small.params), _leaves(whole.params))


@pytest.mark.slow
def test_adapters_that_are_none_of_this_model_are_refused(exported, tmp_path):
    run, folder = exported[0], shutil.copytree(exported[1] / "small", tmp_path / "adapter")
    config = json.loads((folder / ADAPTER_CONFIG).read_text())
    arrays = (folder / ADAPTER_WEIGHTS).read_bytes()
    tries = [
        (dict(use_dora=True), arrays, "use_dora=True: only False can be read"),
        (dict(peft_type="IA3"), arrays, "peft_type='IA3': only 'LORA' can be read"),
        (
            dict(base_model_name_or_path="gone/x"),
            arrays,
            "is not to be had: hf:gone/x: no such folder",
        ),
        (dict(base_model_name_or_path=""), arrays, "names no base_model_name_or_path: write it"),
        (dict(base_model_name_or_path=str(run)), arrays, f"for another model than {run} is now"),
        ({}, arrays.replace(b"layer.0", b"layer.7"), "which has no bert.encoder.layer.7.attention"),
        ({}, arrays.replace(b"lora_A", b"lora_X"), "lora_X.weight: only products are changed"),
        ({}, arrays[:99], "adapter_model.safetensors: damaged: "),
        ({}, b"", "no adapter_model.safetensors in it: download it, too"),
    ]
    for changes, written, message in tries:
        (folder / ADAPTER_CONFIG).write_text(json.dumps(config | changes))
        (folder / ADAPTER_WEIGHTS).write_bytes(written)
        if not written:
            (folder / ADAPTER_WEIGHTS).unlink()
        with pytest.raises(InputError) as error:
            open_model(f"hf:{folder}")
        assert message in str(error.value)


@pytest.mark.slow
def test_a_task_is_learned_by_an_adapter_beside_a_frozen_model(tiny_run, tmp_path):
    """The run has the whole model, and next to it the adapter with the new head."""
    write_cola(tmp_path / "data", rows=64)
    task = dict(kind="glue", name="CoLA")
    config = tiny_finetuning(tiny_run, tmp_path / "data", task=task, adapter=LORA | dict(rank=4))
    config.grid.restarts, run = 2, tmp_path / "run"
    assert finetune.run(config, str(run)) == 0
    results = json.loads((run / "results.json").read_text())
    assert results["dev"]["dev"]["accuracy"] >= 75
    whole, small = open_model(str(run)), open_model(f"hf:{run / 'model' / 'adapter'}")
    assert (small.head_type, small.classes, small.task) == (
        whole.head_type,
        whole.classes,
        whole.task,
    )
    result, reference = _leaves(whole.params), _leaves(small.params)
    assert_close(result, reference)
    base = _leaves(open_model(str(tiny_run)).params)
    same = {
        path for path in result.keys() & base.keys() if np.array_equal(result[path], base[path])
    }
    changed = {path.rpartition("layer_0/")[2] for path in result.keys() - same}
    kernels = {f"{name}/kernel" for name in ("attention/qkv", "attention/output", "intermediate")}
    assert changed == kernels | {"classifier/kernel", "classifier/bias"}
    with pytest.raises(InputError, match=f"copy the folder {run}/model/adapter"):
        convert.run(str(run), f"peft:{tmp_path / 'out'}")


@pytest.mark.slow
def test_vectors_are_learned_around_frozen_layers(tiny_run, tmp_path):
    data, run = write_pairs(tmp_path / "data"), tmp_path / "run"
    config = similarity_config(str(tiny_run), data, total_steps=8, frozen="embeddings|attention/")
    assert finetune.run(config, str(run)) == 0
    result, base = (_leaves(open_model(each).params) for each in (str(run), str(tiny_run)))
    same = {path for path in result if np.array_equal(result[path], base[path])}
    stay = {path for path in result if "/embeddings/" in path or "/attention/" in path}
    assert same == stay | {path for path in result if path.startswith("pooler")}
    config = similarity_config(str(tiny_run), data, total_steps=8, frozen="", adapter=LORA)
    assert finetune.run(config, str(tmp_path / "lora")) == 0
    both = (str(tmp_path / "lora"), f"hf:{tmp_path / 'lora' / 'model' / 'adapter'}")
    whole, small = map(open_model, both)
    assert small.embedding == whole.embedding
    assert_close(_leaves(small.params), _leaves(whole.params))
