"""A run folder, read: config.json, the tokenizer, checkpoints/."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from bertjax.base.cloud_storage import path_of, reach
from bertjax.base.errors import InputError
from bertjax.base.files import read_json
from bertjax.base.json_kinds import Either
from bertjax.heads.pretraining import PreTrainingModel
from bertjax.runs.assembly import init_params, make_model
from bertjax.runs.recipe import Recipe
from bertjax.runs.sections import flat
from bertjax.sharding.mesh import MeshSpec, make_mesh
from bertjax.sharding.placement import Placement
from bertjax.sharding.rules import layout
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.checkpoint import Checkpoints, newest_metadata, saved_steps
from bertjax.training.journal import METRICS_FILE
from bertjax.training.state import Average, placed

EVALUATION_FILE = "evaluation.json"  # what launch/evaluate.py found
MASKED_TEXT_FILE = "masked_text.json"  # what launch/evaluate.py --same_text found
# Of a run of fine-tuning: the best trial's model, as transformers loads it; or, where transformers
# has no such model, its parameters; what it predicts; and what was found.
MODEL_FOLDER = "model"
PARAMETERS_FOLDER = "parameters"
PREDICTIONS_FOLDER = "predictions"
RESULTS_FILE = "results.json"
# Of a run over fixed features: the tagger of a choice of layers, in RUN/CHOICE.
TAGGER_FOLDER = "tagger"
SUBMISSION_FILE = "submission.zip"  # of runs of all tasks of GLUE
ENSEMBLE = "ensemble"  # the section in the config of an ensemble of such runs
# What only a run leaves in its folder, and always behind its config.json.
_LEFT_BY_RUNS = (METRICS_FILE, "trials", "activations")
# What the results have: of a run, of a trial, and of an ensemble of runs.
_OF_RUN = {
    **{"task": str, "metric": str, "init_from": str, "degenerate": Either((str, None))},
    **{"dev": {}, "settings": {}, "chosen": {}, "summary": [object], "trials": [object]},
}
_OF_TRIAL = {
    **{"dev": {}, "settings": {}, "data": {}},
    **{"value": Either((float, None)), "degenerate": Either((str, None))},
}
_SCORED = {"dev": {str: {str: float}}, "degenerate": str}
_OF_ENSEMBLE = {
    **_OF_RUN,
    **_SCORED,
    **{"settings": {str: float}, "chosen": {"by": str}, "data": {str: str}},
    **{"trials": [_SCORED | {"run": str, "identity": str}], "predictions": {str: str}},
}
# What runs did that were begun before a key was there.
_BEFORE = {
    **{"init_from": "", "decay_from": "", "packed": False, "ema": 0.0},
    **{"model.gradient_dtype": "float32", "model.encoder": "bert"},
    **{"optimizer.schedule": "linear", "optimizer.decay_steps": 0},
    **{"bilstm.hidden": 0, "bilstm.depth": 2, "bilstm.dropout": 0.1},
}


def source_of(name: str | Path) -> tuple[str, int | None]:
    """Splits "RUN@STEP" into ("RUN", STEP); "RUN" without a step becomes ("RUN", None)."""
    run, _, step = str(name).rpartition("@")
    return (run, int(step)) if run and step.isdecimal() else (str(name), None)


def checkpoints_folder(run: str | Path) -> Path:
    """The folder of a run's checkpoints."""
    return path_of(run) / "checkpoints"


def trial_folder(run: Path, name: str) -> Path:
    """The folder of a trial of a run of fine-tuning."""
    return run / "trials" / name


def read_config(run: str | Path) -> dict[str, Any]:
    """The config that a run was begun with.

    Raises:
      InputError: not a run folder, or one in a bucket that cannot be read; a damaged config.json.
    """
    if config := recorded_config(run):
        return config
    raise InputError(f"{run}: not a run: it has no config.json")


def recorded_config(run: str | Path) -> dict[str, Any]:
    """The same; {} if nothing in the folder knows of a run. Raises as `read_config`."""
    return next(_recorded(reach(run)), {})


def _recorded(run: Path) -> Iterator[dict[str, Any]]:
    """The config of a run wherever it is kept: in config.json, and with the checkpoints."""
    path = run / "config.json"
    if path.exists():
        cure = "restore it from a copy; where the run has checkpoints/, they know it: remove this"
        yield read_json(path, cure=cure)
    saved = newest_metadata(checkpoints_folder(run))
    if "config" in saved:
        yield saved["config"]


def read_results(run: Path) -> dict[str, Any]:
    """The results.json of a run of fine-tuning.

    Raises:
      InputError: there is none yet, or it is damaged.
    """
    return _read_results(run, _OF_RUN)


def read_trial(folder: Path) -> dict[str, Any]:
    """The results.json of one of its trials; raises as `read_results`."""
    return _read_results(folder, _OF_TRIAL)


def read_ensemble(folder: Path) -> dict[str, Any]:
    """The results.json of an ensemble; raises as `read_results`."""
    return _read_results(folder, _OF_ENSEMBLE)


def _read_results(folder: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    try:
        cure = "remove it, and the same command makes it again"
        return read_json(folder / RESULTS_FILE, fields, cure=cure)
    except FileNotFoundError as error:
        raise InputError(f"{folder}: it is not finished: start it again") from error


def check_same_config(run: Path, plain: Mapping[str, Any], free: Sequence[str]) -> None:
    """A folder holds one run: the config must be the one it was begun with.

    Args:
      free: the keys, or parts of them, that may differ.

    Raises:
      InputError: another one differs, naming it; or nobody knows the run's config.
    """
    recorded = list(_recorded(run))
    left = [name for name in _LEFT_BY_RUNS if (run / name).exists()]
    if not recorded and (left or newest_metadata(checkpoints_folder(run))):
        raise InputError(
            f"{run}: holds what a run left ({', '.join(left) or 'checkpoints'}), and not its "
            "config.json: restore that from a copy, or choose another --workdir"
        )
    for begun in recorded:
        if difference := config_difference(begun, plain, free):
            raise InputError(
                f"{run} holds a run with another config: {difference}: choose another --workdir, "
                "or the config it was begun with"
            )


def config_difference(
    begun: Mapping[str, Any], plain: Mapping[str, Any], free: Sequence[str]
) -> str:
    """Describes the first key that differs from the config that a run was begun with; or "".

    Args:
      free: see `check_same_config`.
    """
    begun, now = flat(begun), flat(plain)
    for key in sorted(begun.keys() | now.keys()):
        was = begun.get(key, _BEFORE.get(key))
        if not {key, *key.split(".")} & set(free) and was != now.get(key):
            return f"{key} was {was!r}, is {now.get(key)!r}"
    return ""


@dataclasses.dataclass(frozen=True)
class LoadedRun:
    """A trained model: its recipe and tokenizer, and the newest whole checkpoint's parameters.

    The model computes as in the phase of that checkpoint; where the run keeps an average of its
    parameters, `params` is that.
    """

    recipe: Recipe
    tokenizer: Tokenizer
    model: PreTrainingModel
    placement: Placement
    params: Any
    step: int


def load_run(name: str | Path) -> LoadedRun:
    """Loads a checkpoint of a run, with all parameters on every device.

    Args:
      name: "RUN" for its newest whole checkpoint, or "RUN@STEP".

    Raises:
      InputError: not a run, or one without a checkpoint, or without that one.
    """
    run, step = source_of(name)
    config = read_config(run)
    if "task" in config:
        raise InputError(
            f"{run}: a run of fine-tuning, not of pre-training: its figures are in its "
            f"{RESULTS_FILE}, and launch/predict.py and launch/convert.py take it"
        )
    if ENSEMBLE in config:
        raise InputError(
            f"{run}: an ensemble of fine-tuned runs, which launch/predict.py alone takes: name one "
            "of its runs"
        )
    if "model_type" in config or "architectures" in config:
        raise InputError(
            f"{run}: not a run, but a model as transformers has it: where a program takes such "
            f"models, name it hf:{run}"
        )
    recipe = Recipe.from_config(config)
    tokenizer = Tokenizer.open(run)
    spec = recipe.spec(tokenizer.vocabulary_size)
    model = make_model(spec, recipe.objective)
    # As many devices as divide a batch.
    devices = jax.devices()[: math.gcd(jax.device_count(), recipe.eval_batch_size)]
    placement = Placement(make_mesh(MeshSpec(), devices), layout("data"))
    boxed = jax.eval_shape(partial(init_params, model), jax.random.key(0))
    weights = placed(boxed, placement)
    part = {"average": Average(weights, recipe.ema)} if recipe.ema else {"params": weights}
    restored = None
    if checkpoints_folder(run).is_dir():
        checkpoints = Checkpoints(checkpoints_folder(run), keep=1, read_only=True)
        restored = checkpoints.restore(part, step)
    if restored is None and step is not None:
        raise InputError(
            f"{name}: no such checkpoint; there are {saved_steps(checkpoints_folder(run))}: keep "
            "more with config.keep_checkpoint_every"
        )
    if restored is None:
        raise InputError(f"{run}: no checkpoint yet: the run was stopped before its first one")
    parts, metadata = restored
    params = parts["average"].weights if recipe.ema else parts["params"]
    model = make_model(recipe.spec_at(metadata["step"], spec), recipe.objective)
    return LoadedRun(recipe, tokenizer, model, placement, params, metadata["step"])
