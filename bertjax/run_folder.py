"""A run folder, read: config.json, the tokenizer, checkpoints/."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from bertjax.buckets import path_of, reach
from bertjax.errors import InputError
from bertjax.model.heads import BertForPreTraining
from bertjax.recipe import Recipe, flat, init_params, make_model
from bertjax.sharding.mesh import MeshSpec, make_mesh
from bertjax.sharding.placement import Placement
from bertjax.sharding.rules import layout
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.checkpoint import Checkpoints
from bertjax.training.state import placed

EVALUATION_FILE = "evaluation.json"  # what launch/evaluate.py found
# Of a run of fine-tuning: the best trial's model, as transformers loads it; and what was found.
MODEL_FOLDER = "model"
RESULTS_FILE = "results.json"
# What runs did that were begun before a key was there.
_BEFORE = {"init_from": "", "model.gradient_dtype": "float32"}


def checkpoints_folder(run: str | Path) -> Path:
    """Where a run's checkpoints lie."""
    return path_of(run) / "checkpoints"


def read_config(run: str | Path) -> dict[str, Any]:
    """The config.json of a run folder.

    Raises:
      InputError: not a run folder, or one in a bucket that cannot be read.
    """
    path = reach(run) / "config.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{run}: not a run: it has no config.json") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: damaged: {error}") from error


def read_results(run: Path) -> dict[str, Any]:
    """The results.json of a run of fine-tuning, or of one of its trials.

    Raises:
      InputError: there is none yet.
    """
    try:
        return json.loads((run / RESULTS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{run}: its trials are not done: start it again") from error


def check_same_config(run: Path, plain: Mapping[str, Any], free: Sequence[str]) -> None:
    """A folder holds one run: the config must be the one it was begun with.

    Args:
      free: the keys, or first parts of them, that may differ.

    Raises:
      InputError: another one differs, naming it.
    """
    if not (run / "config.json").exists():
        return
    begun, now = flat(read_config(run)), flat(plain)
    for key in sorted(begun.keys() | now.keys()):
        was = begun.get(key, _BEFORE.get(key))
        if not {key, key.split(".")[0]} & set(free) and was != now.get(key):
            raise InputError(
                f"{run} holds a run with another config: {key} was {was!r}, is "
                f"{now.get(key)!r}: choose another --workdir, or the config it was begun with"
            )


@dataclasses.dataclass(frozen=True)
class LoadedRun:
    """A trained model: its recipe and tokenizer, and the newest whole checkpoint's parameters."""

    recipe: Recipe
    tokenizer: Tokenizer
    model: BertForPreTraining
    placement: Placement
    params: Any
    step: int


def load_run(run: str | Path) -> LoadedRun:
    """Loads the newest whole checkpoint of a run, with all parameters on every device.

    Raises:
      InputError: not a run, or one without a checkpoint.
    """
    config = read_config(run)
    if "task" in config:
        raise InputError(
            f"{run}: a run of fine-tuning, not of pre-training: its figures are in its "
            f"{RESULTS_FILE}, and launch/predict.py and launch/convert.py take it"
        )
    if "model_type" in config or "architectures" in config:
        raise InputError(
            f"{run}: not a run, but a model as transformers has it: where a program takes such "
            f"models, name it hf:{run}"
        )
    recipe = Recipe.from_config(config)
    tokenizer = Tokenizer.open(run)
    model = make_model(recipe.spec(tokenizer.vocabulary_size), recipe.objective)
    # As many devices as divide a batch.
    devices = jax.devices()[: math.gcd(jax.device_count(), recipe.eval_batch_size)]
    placement = Placement(make_mesh(MeshSpec(), devices), layout("data"))
    boxed = jax.eval_shape(partial(init_params, model), jax.random.key(0))
    restored = None
    if checkpoints_folder(run).is_dir():
        checkpoints = Checkpoints(checkpoints_folder(run), keep=1, read_only=True)
        restored = checkpoints.restore({"params": placed(boxed, placement)})
    if restored is None:
        raise InputError(f"{run}: no checkpoint yet: the run was stopped before its first one")
    parts, metadata = restored
    return LoadedRun(recipe, tokenizer, model, placement, parts["params"], metadata["step"])
