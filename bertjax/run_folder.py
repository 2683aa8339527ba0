"""A run folder, read: config.json, the tokenizer, checkpoints/."""

import dataclasses
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import jax

from bertjax.errors import InputError
from bertjax.model.heads import BertForPreTraining
from bertjax.recipe import Recipe, init_params, make_model
from bertjax.sharding.mesh import MeshSpec, make_mesh
from bertjax.sharding.placement import Placement
from bertjax.sharding.rules import layout
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.checkpoint import Checkpoints
from bertjax.training.state import placed

EVALUATION_FILE = "evaluation.json"  # what launch/evaluate.py found


def checkpoints_folder(run: str | Path) -> Path:
    """Where a run's checkpoints lie."""
    return Path(run) / "checkpoints"


def read_config(run: str | Path) -> dict[str, Any]:
    """The config.json of a run folder.

    Raises:
      InputError: not a run folder.
    """
    path = Path(run) / "config.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{run}: not a run: it has no config.json") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: damaged: {error}") from error


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
    recipe = Recipe.from_config(read_config(run))
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
