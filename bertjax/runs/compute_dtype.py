"""The dtype in which a run computes, where its config leaves the choice to the device."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from bertjax.runs.run_folder import recorded_config
from bertjax.runs.sections import Config, plain_config
from bertjax.training.hardware import AUTO, resolved


def with_compute_dtype(
    config: Config, run: Path | None = None, device: jax.Device | None = None
) -> dict[str, Any]:
    """A config in plain form, whose `model.compute_dtype` is a dtype where it was "auto".

    Args:
      run: the folder of the run. If it has begun, it keeps its dtype, also on another device.
      device: where a new run computes; by default the first device of the job.

    Raises:
      InputError: see `plain_config` and `recorded_config`.
    """
    plain = plain_config(config)
    model = plain.get("model")
    if not isinstance(model, Mapping) or model.get("compute_dtype") != AUTO:
        return plain
    begun = recorded_config(run).get("model", {}) if run else {}
    dtype = begun.get("compute_dtype") or resolved(AUTO, device or jax.devices()[0])
    return plain | {"model": {**model, "compute_dtype": dtype}}
