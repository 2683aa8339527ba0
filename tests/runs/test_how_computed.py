"""The dtype of a run whose config leaves it to the device."""

import json
from types import SimpleNamespace

import pytest

from bertjax.config import finetune_config, similarity_config
from bertjax.runs.how_computed import with_compute_dtype
from bertjax.runs.read import config_dict_of

H100 = SimpleNamespace(platform="gpu", compute_capability="9.0")


@pytest.mark.parametrize("config", [finetune_config(), similarity_config()])
def test_it_is_left_to_the_device(config):
    config_dict = config_dict_of(config)
    found = {
        "float32": with_compute_dtype(config),  # the tests run on a CPU
        "bfloat16": with_compute_dtype(config, device=H100),
    }
    for dtype, each in found.items():
        assert each == config_dict | {"model": {**config_dict["model"], "compute_dtype": dtype}}


@pytest.mark.parametrize("started", ["float32", "bfloat16"])
@pytest.mark.parametrize("device", [None, H100])
def test_a_run_keeps_what_it_was_begun_with(started, device, tmp_path):
    config = finetune_config()
    config.model.compute_dtype = started
    (tmp_path / "config.json").write_text(json.dumps(config_dict_of(config)))
    assert with_compute_dtype(finetune_config(), tmp_path, device) == config_dict_of(config)


@pytest.mark.parametrize("model", [{"compute_dtype": "float32"}, {}, None, "bfloat16"])
def test_what_is_given_stays(model):
    config = {"model": model, "seed": 7}
    assert with_compute_dtype(config, device=H100) == config
    assert with_compute_dtype({"seed": 7}, device=H100) == {"seed": 7}
