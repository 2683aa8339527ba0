"""The pieces of a run that a recipe describes: its model, its phases and what trains them."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import optax
from flax import linen as nn

from bertjax.corpus.store import TokenStore
from bertjax.encoders.contract import EncoderSpec
from bertjax.examples.batches import Examples
from bertjax.objectives.objective import PretrainingObjective
from bertjax.optimizers.optimizer import make_optimizer
from bertjax.runs.recipe import PhaseSpec, Recipe
from bertjax.sharding.mesh import make_mesh
from bertjax.sharding.placement import Placement
from bertjax.sharding.rules import layout
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.evaluation import HeldOut
from bertjax.training.loop import Phase, Trainer
from bertjax.training.state import (
    TrainState,
    abstract_state,
    init_state,
    logical_axes,
    weights_in_use,
)
from bertjax.training.step import LossFunction


def make_phases(
    recipe: Recipe,
    spec: EncoderSpec,
    tokenizer: Tokenizer,
    train: TokenStore,
    held_out: TokenStore,
    trains: Mapping[tuple[str, ...], TokenStore] | None = None,
) -> list[Phase]:
    """The run's phases over a corpus; phases without steps are left out.

    Args:
      trains: what phases with a corpus of their own read, by `PhaseSpec.corpus`; all others read
        `train`.

    Raises:
      InputError: the corpus cannot give such examples.
    """
    phases, loss_of = [], functools.cache(partial(phase_loss, recipe, spec))
    for name, phase, steps in recipe.steps():
        store = trains[phase.corpus] if phase.corpus else train
        examples = Examples(store, tokenizer, recipe.example_spec(phase, name, phase.batch_size))
        tokens = phase.batch_size * phase.length
        phases.append(
            Phase(
                name=name,
                first_step=steps.start,
                last_step=steps.stop,
                parts=lambda number, batch=examples.batch: [partial(batch, number)],
                held_out=held_out_examples(recipe, phase, tokenizer, held_out),
                rows=phase.batch_size,
                accumulate=phase.accumulate,
                tokens=tokens,
                flops=tokens * spec.flops_per_token(phase.length, examples.spec.predicted),
                loss=loss_of(dataclasses.replace(spec, **phase.model)),
            )
        )
    return phases


def phase_loss(recipe: Recipe, spec: EncoderSpec, of_phase: EncoderSpec) -> LossFunction | None:
    """The loss of a phase that computes the model as `of_phase`; None where that is the run's."""
    if of_phase == spec:
        return None
    return make_loss(make_model(of_phase, recipe.objective), recipe.objective)


def held_out_examples(
    recipe: Recipe, phase: PhaseSpec, tokenizer: Tokenizer, store: TokenStore
) -> HeldOut:
    """The same held-out examples at every evaluation, masked by config.masking in all phases."""
    phase = dataclasses.replace(phase, masking=recipe.masking)
    spec = recipe.example_spec(phase, f"heldout {phase.length}", recipe.eval_batch_size)
    return HeldOut(Examples(store, tokenizer, spec).batch, spec.batch_size)


def make_model(spec: EncoderSpec, objective: PretrainingObjective) -> nn.Module:
    """The model with the heads that an objective trains."""
    return objective.model(spec)


def make_loss(model: nn.Module, objective: PretrainingObjective) -> LossFunction:
    """The loss of a model of `make_model`, as the training step wants it."""

    def apply(params, batch, key: jax.Array | None):
        return model.apply(
            {"params": params},
            *(batch[name] for name in objective.inputs),
            **{name: batch[name] for name in objective.named_inputs},
            deterministic=key is None,
            rngs=None if key is None else {"dropout": key},
        )

    return objective.loss(apply)


@dataclasses.dataclass(frozen=True)
class Training:
    """The objects that train a recipe's model on given devices; nothing is computed yet."""

    placement: Placement
    optimizer: optax.GradientTransformation
    init: Callable[[jax.Array], Any]
    abstract: TrainState
    trainer: Trainer

    def fresh_state(self, seed: int) -> TrainState:
        """The state at step 0, made on the devices that hold it."""
        return init_state(self.init, self.optimizer, self.abstract, seed)


def make_training(
    recipe: Recipe, spec: EncoderSpec, devices: Sequence[jax.Device] | None = None
) -> Training:
    """Puts a recipe's pieces together.

    Args:
      devices: all of the job's by default.

    Raises:
      InputError: a mesh or a layout that does not fit the devices.
    """
    placement = Placement(make_mesh(recipe.mesh, devices), layout(recipe.layout))
    model = make_model(spec, recipe.objective)
    init = partial(init_params, model)
    optimizer = make_optimizer(
        recipe.optimizer,
        recipe.total_steps,
        recipe.objective.frozen,
        partial(logical_axes, init),
    )
    trainer = Trainer(
        loss=make_loss(model, recipe.objective),
        optimizer=optimizer,
        placement=placement,
        weights=weights_in_use(init, placement),
    )
    abstract = abstract_state(init, optimizer, placement, recipe.ema)
    return Training(placement, optimizer, init, abstract, trainer)


def init_params(model: nn.Module, key: jax.Array):
    """Fresh parameters, each with its logical axes."""
    ids = jax.numpy.zeros((1, 8), "int32")
    return model.init(key, ids, ids, ids, deterministic=True)["params"]
