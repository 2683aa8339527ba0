"""How a run computes: its dtype, where the config leaves that to the device; and its attention."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax

from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.spec import TransformerSpec
from bertjax.runs.read import Config, config_dict_of
from bertjax.runs.run_folder import recorded_config
from bertjax.training.hardware import AUTO, dtype_in_words, resolved
from bertjax.training.sharding.placement import Placement


def with_compute_dtype(
    config: Config, run: Path | None = None, device: jax.Device | None = None
) -> dict[str, Any]:
    """A config in plain form, whose `model.compute_dtype` is a dtype where it was "auto".

    A run that has started keeps its dtype, also on another device.
    """
    config_dict = config_dict_of(config)
    model = config_dict.get("model")
    if not isinstance(model, Mapping) or model.get("compute_dtype") != AUTO:
        return config_dict
    started = recorded_config(run).get("model", {}) if run else {}
    dtype = started.get("compute_dtype") or resolved(AUTO, device or jax.devices()[0])
    return config_dict | {"model": {**model, "compute_dtype": dtype}}


def how_computed(spec: EncoderSpec, lengths: Iterable[int], placement: Placement) -> str:
    """Says in which dtype a model is trained, and what computes attention at some lengths."""
    text = dtype_in_words(spec.compute_dtype, placement.mesh.devices.flat[0])
    if isinstance(spec, TransformerSpec):
        with placement.active():
            by = ", ".join(spec.attention_by(length) for length in dict.fromkeys(lengths))
        text += f"\nattention {by}"
    return text
