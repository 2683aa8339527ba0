"""The pieces of a run that a recipe describes: its phases, and the experiment that trains them."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import jax

from bertjax.base.fields import SEGMENT_IDS
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.batches import Examples
from bertjax.data.examples.documents import mean_context
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.objectives.objective import PretrainingObjective
from bertjax.runs.initialize import learned_branches
from bertjax.runs.recipe import PhaseSpec, Recipe
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.evaluation import HeldOut
from bertjax.training.experiment import Experiment
from bertjax.training.loop import Phase
from bertjax.training.model import Model
from bertjax.training.optimizers.optimizer import make_optimizer
from bertjax.training.sharding.placement import HostBatch, make_placement
from bertjax.training.state import logical_axes
from bertjax.training.subset import with_subset


def make_phases(
    recipe: Recipe,
    spec: EncoderSpec,
    tokenizer: Tokenizer,
    train: TokenStore,
    held_out: TokenStore,
    phase_stores: Mapping[tuple[str, ...], TokenStore] | None = None,
    pretrained: Mapping[str, Pretrained] = MappingProxyType({}),
) -> list[Phase]:
    """The run's phases over a corpus; phases without steps are left out.

    `phase_stores` is the text of phases that have a corpus of their own, by `PhaseSpec.corpus`.
    `pretrained` are the weights that the run starts from, by part of the model; so in all
    functions here.
    """
    phases: list[Phase] = []
    model_of = functools.cache(partial(phase_model, recipe, spec, pretrained=pretrained))
    stores = {(): train, **(phase_stores or {})}
    for name, phase, steps in recipe.steps():
        settings = recipe.example_spec(phase, name, phase.batch_size)
        examples = Examples(stores[phase.corpus], tokenizer, settings)
        tokens = phase.batch_size * phase.length
        packed = not phase.objective.layout.fields.keys().isdisjoint(SEGMENT_IDS)
        context = _context(examples) if packed else None
        per_token = phase.objective.flops_per_token(
            spec, phase.length, examples.spec.predicted, context
        )
        phases.append(
            Phase(
                name=name,
                first_step=steps.start,
                last_step=steps.stop,
                microbatches=partial(_one_microbatch, examples),
                held_out=held_out_examples(recipe, phase, tokenizer, held_out),
                rows=phase.batch_size,
                accumulate=phase.accumulate,
                tokens=tokens,
                flops=tokens * per_token,
                model=model_of(phase.objective, recipe.spec_in(phase, spec)),
                objective=phase.objective,
            )
        )
    return phases


def _context(examples: Examples) -> float:
    """The mean tokens that a token sees, in some rows of the first batch."""
    rows = min(64, examples.spec.batch_size)
    return mean_context(examples.batch(0, slice(0, rows))["segment_ids"])


def _one_microbatch(examples: Examples, number: int) -> list[Callable[[slice], HostBatch]]:
    """Batch `number` as one microbatch, which makes the rows that are asked for."""
    return [partial(examples.batch, number)]


def phase_model(
    recipe: Recipe,
    spec: EncoderSpec,
    objective: PretrainingObjective,
    phase_spec: EncoderSpec,
    pretrained: Mapping[str, Pretrained] = MappingProxyType({}),
) -> Model | None:
    """The model of a phase that computes as `phase_spec` says; None if it is the run's."""
    if (objective, phase_spec) == (recipe.objective, spec):
        return None
    return run_model(recipe, objective, phase_spec, pretrained)


def run_model(
    recipe: Recipe,
    objective: PretrainingObjective,
    spec: EncoderSpec,
    pretrained: Mapping[str, Pretrained],
) -> Model:
    """The model that an objective of a run trains, all of it or what the config says."""
    model = objective.model(spec)
    return with_subset(model, recipe.adapter, recipe.frozen, learned_branches(pretrained))


def held_out_examples(
    recipe: Recipe, phase: PhaseSpec, tokenizer: Tokenizer, store: TokenStore
) -> HeldOut:
    """The same held-out examples at every evaluation, masked by config.masking in all phases."""
    phase = dataclasses.replace(phase, masking=recipe.masking, accumulate=1)
    spec = recipe.example_spec(phase, f"heldout {phase.length}", recipe.eval_batch_size)

    def of(text: TokenStore, **languages: HeldOut) -> HeldOut:
        return HeldOut(Examples(text, tokenizer, spec).batch, spec.batch_size, languages)

    return of(store, **{name: of(store.of_language(name)) for name in store.languages})


def make_experiment(
    recipe: Recipe,
    spec: EncoderSpec,
    devices: Sequence[jax.Device] | None = None,
    pretrained: Mapping[str, Pretrained] = MappingProxyType({}),
) -> Experiment:
    """Puts a recipe's pieces together, for some devices or for all of the job."""
    model = run_model(recipe, recipe.objective, spec, pretrained)
    return Experiment(
        model=model,
        objective=recipe.objective,
        optimizer=make_optimizer(
            recipe.optimizer, partial(logical_axes, model.init), spec.compute_dtype
        ),
        placement=make_placement(recipe.mesh, recipe.layout, devices),
        ema=recipe.ema,
        rows=recipe.phases[0].batch_size,
    )
