"""A run of pre-training: its config, and the model of a checkpoint."""

import dataclasses
import math
from collections.abc import Mapping

import jax
from flax import linen as nn

from bertjax.base.errors import InputError
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders.computation import plain
from bertjax.models.encoders.registry import family_of
from bertjax.models.encoders.storage import to_plain
from bertjax.objectives.objective import PretrainingObjective
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import checkpoints_folder, checkpoints_of, source_of
from bertjax.text.characters import Characters
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.checkpoint import saved_steps
from bertjax.training.model import Model, Params
from bertjax.training.sharding.placement import Placement, data_parallel
from bertjax.training.state import Average, placed


@dataclasses.dataclass(frozen=True)
class LoadedRun:
    """A run of pre-training with its newest whole checkpoint's parameters, or those of a step.

    The model computes as in the phase of that checkpoint; where the run keeps an average of its
    parameters, `params` is that. `data` is the identity of what it was trained on.
    """

    name: str
    recipe: Recipe
    tokenizer: Tokenizer
    model: Model
    placement: Placement
    params: Params
    step: int
    data: Mapping[str, str]

    @property
    def objective(self) -> PretrainingObjective:
        """The objective of the checkpoint's phase."""
        return self.recipe.phase_at(self.step).objective

    def part(self, name: str = "") -> tuple[nn.Module, Params]:
        """A part of the model, and its parameters; "": the one that other programs open."""
        part = name or self.objective.exported
        return self.model.parts[part].module, self.model.params_of(self.params, part)

    def weights(self, part: str = "") -> Pretrained:
        """A part of the model on the host.

        Args:
          part: such as ELECTRA's generator; "": the one that all programs open.

        Raises:
          InputError: only the objective can use the model; or it has no such part.
        """
        objective = self.objective
        if part and part not in objective.others:
            names = ", ".join(objective.others) or "none: leave it out"
            raise InputError(f"--part={part}: the parts of {self.name} to choose from are: {names}")
        if not objective.kind:
            raise InputError(
                f"{self.name}: a run with config.objective={objective.name!r}, whose model is for "
                "launch/pretrain.py and launch/evaluate.py alone"
            )
        module, params = self.part(part)
        characters = family_of(module.spec).reads_characters
        return Pretrained(
            origin=self.name,
            kind=objective.others[part] if part else objective.kind,
            spec=plain(module.spec),
            params=to_plain(params, module.spec),
            tokenizer=Characters(self.tokenizer.identity) if characters else self.tokenizer,
        )


@dataclasses.dataclass(frozen=True)
class PretrainedRun:
    """A run of pre-training.

    Attributes:
      name: RUN for its newest whole checkpoint, or RUN@STEP.
      recipe: its config.
    """

    name: str
    recipe: Recipe

    def load(self) -> LoadedRun:
        """Loads a checkpoint, with all parameters on every device.

        Raises:
          InputError: it has no checkpoint, or does not have that one.
        """
        recipe, (run, step) = self.recipe, source_of(self.name)
        tokenizer = Tokenizer.open(run)
        spec = recipe.spec_for(tokenizer)
        # As many devices as divide a batch.
        devices = jax.devices()[: math.gcd(jax.device_count(), recipe.eval_batch_size)]
        placement = data_parallel(devices)
        init = recipe.objective.model(spec).init
        params = placed(jax.eval_shape(init, jax.random.key(0)), placement)
        part = {"average": Average(params, recipe.ema)} if recipe.ema else {"params": params}
        restored = None
        if checkpoints_folder(run).is_dir():
            checkpoints = checkpoints_of(run, keep=1, read_only=True)
            restored = checkpoints.restore(part, step)
        if restored is None and step is not None:
            raise InputError(
                f"{self.name}: no such checkpoint; there are "
                f"{saved_steps(checkpoints_folder(run))}: keep more with "
                "config.keep_checkpoint_every"
            )
        if restored is None:
            raise InputError(f"{run}: no checkpoint yet: the run was stopped before its first one")
        parts, metadata = restored
        params = parts["average"].weights if recipe.ema else parts["params"]
        phase = recipe.phase_at(metadata["step"])
        model = phase.objective.model(recipe.spec_in(phase, spec))
        return LoadedRun(
            *(self.name, recipe, tokenizer, model, placement, params),
            *(metadata["step"], metadata["data"]),
        )

    def weights(self, kind: str = "", part: str = "") -> Pretrained:
        """Reads the model.

        Args:
          kind: one of `bertjax.models.encoders.kinds`: of several parts, the one of this kind is
            read. "", or none is of it: the one that all programs open.
          part: the part by its name: see `LoadedRun.weights`.
        """
        loaded = self.load()
        others = loaded.objective.others.items() if kind else ()
        return loaded.weights(next((name for name, its in others if its == kind), part))
