"""A run of pre-training: its config, and the model of a checkpoint."""

import dataclasses
import math
from collections.abc import Callable, Mapping

import jax
from flax import linen as nn

from bertjax.base.errors import InputError
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders.computation import canonical
from bertjax.models.encoders.registry import family_of
from bertjax.models.encoders.storage import to_canonical
from bertjax.objectives.objective import PretrainingObjective
from bertjax.runs.assembly import run_model
from bertjax.runs.initialize import frozen_params, low_rank, open_sources
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import checkpoints_folder, checkpoints_of, source_of
from bertjax.text.characters import Characters
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.checkpoint import saved_steps
from bertjax.training.model import Model, Params, merged
from bertjax.training.sharding.placement import Placement, data_parallel
from bertjax.training.state import Average, sharded
from bertjax.training.subset import trains_some


@dataclasses.dataclass(frozen=True)
class LoadedRun:
    """A run of pre-training with the parameters of a checkpoint, or their average if it keeps one.

    The model computes as in the phase of that checkpoint. `data` is the identity of what it was
    trained on. `pretrained` are the weights of which it has trained only some.
    """

    name: str
    recipe: Recipe
    tokenizer: Tokenizer
    model: Model
    placement: Placement
    params: Params
    step: int
    data: Mapping[str, str]
    pretrained: Mapping[str, Pretrained] = dataclasses.field(default_factory=dict)

    @property
    def objective(self) -> PretrainingObjective:
        """The objective of the checkpoint's phase."""
        return self.recipe.phase_at(self.step).objective

    def part(self, name: str = "") -> tuple[nn.Module, Params]:
        """A part of the model, and its parameters; "": the one that other programs open."""
        part = name or self.objective.exported
        return self.model.parts[part].module, self.model.params_of(self.params, part)

    def weights(self, part: str = "") -> Pretrained:
        """A part of the model on the host, such as ELECTRA's generator; "": what programs open.

        Raises InputError if only the objective can use the model, or if it has no such part.
        """
        objective = self.objective
        if part and part not in objective.others:
            names = ", ".join(objective.others) or "none: leave it out"
            raise InputError(f"--part={part}: the parts of {self.name} to choose from are: {names}")
        if not objective.head_type:
            raise InputError(
                f"{self.name}: a run with config.objective={objective.name!r}, whose model is for "
                "launch/pretrain.py and launch/evaluate.py alone"
            )
        module, params = self.part(part)
        name = part or objective.exported
        source = self.pretrained.get(name)
        characters = family_of(module.spec).reads_characters
        return Pretrained(
            origin=self.name,
            head_type=objective.others[part] if part else objective.head_type,
            spec=canonical(module.spec),
            params=to_canonical(params, module.spec),
            tokenizer=Characters(self.tokenizer.identity) if characters else self.tokenizer,
            adapter=low_rank(self.model, self.params, source, source, name) if source else None,
        )


@dataclasses.dataclass(frozen=True)
class PretrainedRun:
    """A run of pre-training, by its name RUN for the newest whole checkpoint, or RUN@STEP.

    `open_model` opens weights of which it has trained only some, by their name.
    """

    name: str
    recipe: Recipe
    open_model: Callable[[str], Pretrained]

    def load(self) -> LoadedRun:
        """Loads the checkpoint, with all parameters on every device; InputError: there is none."""
        recipe, (run, step) = self.recipe, source_of(self.name)
        tokenizer = Tokenizer.open(run)
        spec = recipe.spec_for(tokenizer)
        # As many devices as divide a batch.
        devices = jax.devices()[: math.gcd(jax.device_count(), recipe.eval_batch_size)]
        placement = data_parallel(devices)
        partly = trains_some(recipe.adapter, recipe.frozen)
        pretrained = (
            open_sources(recipe, tokenizer, self.open_model, started=True) if partly else {}
        )
        model = run_model(recipe, recipe.objective, spec, pretrained)
        params = sharded(jax.eval_shape(model.init, jax.random.key(0)), placement)
        abstract = {"average": Average(params, recipe.ema)} if recipe.ema else {"params": params}
        restored = None
        if checkpoints_folder(run).is_dir():
            checkpoints = checkpoints_of(run, keep=1, read_only=True)
            restored = checkpoints.restore(abstract, step)
        if restored is None and step is not None:
            raise InputError(
                f"{self.name}: no such checkpoint; there are "
                f"{saved_steps(checkpoints_folder(run))}: keep more with "
                "config.keep_checkpoint_every"
            )
        if restored is None:
            raise InputError(f"{run}: no checkpoint yet: the run was stopped before its first one")
        trees, metadata = restored
        params = trees["average"].weights if recipe.ema else trees["params"]
        if partly:
            frozen, identities = frozen_params(model, placement, pretrained, recipe.seed)
            check_weights(identities, metadata["data"], self.name, recipe)
            params = merged(params, frozen)
        phase = recipe.phase_at(metadata["step"])
        model = run_model(recipe, phase.objective, recipe.spec_in(phase, spec), pretrained)
        return LoadedRun(
            *(self.name, recipe, tokenizer, model, placement, params),
            *(metadata["step"], metadata["data"], pretrained),
        )

    def weights(self, head_type: str = "", part: str = "") -> Pretrained:
        """Reads a part of the model by its name, or the part of an encoder of one of `head_types`.

        With neither, or if no part is of that kind, it is the part that all programs open.
        """
        loaded = self.load()
        others = loaded.objective.others.items() if head_type else ()
        return loaded.weights(next((name for name, its in others if its == head_type), part))


def check_weights(
    current: Mapping[str, str], started: Mapping[str, str], name: str, recipe: Recipe
) -> None:
    """Raises InputError if weights that are not trained have other identities than in a run."""
    if not current.items() <= started.items():
        raise InputError(
            f"{name}: config.init_from={recipe.init_from} has other weights now than the run was "
            "started with: give it those"
        )
