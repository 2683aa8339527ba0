"""A config file turned into the pieces of a run; every mistake in it is found here."""

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, get_origin

import jax
import ml_collections
import optax
from flax import linen as nn

from bertjax.base.errors import InputError
from bertjax.base.json_kinds import is_of
from bertjax.base.limits import check_numbers
from bertjax.corpus.store import TokenStore
from bertjax.encoders.contract import EncoderSpec
from bertjax.encoders.registry import ENCODERS
from bertjax.examples.batches import Examples, ExampleSpec
from bertjax.examples.masking import MaskingRule
from bertjax.objectives.objective import PretrainingObjective
from bertjax.objectives.registry import find_objective
from bertjax.optimizers.optimizer import make_optimizer
from bertjax.optimizers.schedule import make_schedule
from bertjax.optimizers.spec import PER_TENSOR, WSD, OptimizerSpec
from bertjax.sharding.mesh import MeshSpec, make_mesh
from bertjax.sharding.placement import Placement
from bertjax.sharding.rules import layout
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.evaluation import HeldOut
from bertjax.training.loop import Intervals, Phase, Trainer
from bertjax.training.state import TrainState, abstract_state, init_state, logical_axes
from bertjax.training.step import LossFunction

T = TypeVar("T")

PAPER_VOCABULARY = 30_522  # pieces; where a config is looked at without a corpus


@dataclasses.dataclass(frozen=True)
class PhaseSpec:
    """One phase of a run (section A.2).

    Attributes:
      share: of the run's steps; the shares of all phases sum to 1.
      length: S.
      batch_size: sequences of one update, over all devices.
      accumulate: parts in which an update takes its batch.
      masking: its rule of masking: config.masking, with the fields that the phase has itself.
      corpus: what it reads; (): what config.corpus says.
      model: fields of the model's spec that this phase computes with (`EncoderSpec.of_phase`).
    """

    share: float
    length: int
    batch_size: int
    accumulate: int = 1
    masking: MaskingRule = MaskingRule()
    corpus: tuple[str, ...] = ()
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if not 0 <= self.share <= 1:
            raise ValueError(f"share={self.share}: must be in [0, 1]")
        if self.length < 1:
            raise ValueError(f"length={self.length}: must be at least 1")
        if self.batch_size < 1 or self.accumulate < 1 or self.batch_size % self.accumulate:
            raise ValueError(
                f"batch_size={self.batch_size} does not divide into "
                f"accumulate={self.accumulate} parts"
            )


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A checked config. `plain` is the config as nested dicts, as config.json holds it."""

    plain: Mapping[str, Any]
    corpus: tuple[str, ...]
    objective: PretrainingObjective
    seed: int
    total_steps: int
    phases: tuple[PhaseSpec, ...]
    model: Mapping[str, Any]
    optimizer: OptimizerSpec
    masking: MaskingRule
    short_probability: float
    mesh: MeshSpec
    layout: str
    intervals: Intervals
    eval_batch_size: int
    keep_checkpoints: int
    keep_checkpoint_every: int
    ema: float = 0.0
    init_from: str = ""
    packed: bool = False
    decay_from: str = ""

    @classmethod
    def from_config(cls, config: ml_collections.ConfigDict | Mapping[str, Any]) -> "Recipe":
        """Reads a config such as those in `configs/`.

        Raises:
          InputError: an unknown or missing key, or a value that does not fit, naming it.
        """
        plain = plain_config(config)
        fields = dict(plain)
        fields.pop("dry_run", None)
        sections = dict(
            optimizer=OptimizerSpec, masking=MaskingRule, mesh=MeshSpec, intervals=Intervals
        )
        for key, section in sections.items():
            fields[key] = build(key, section, fields.get(key, {}))
        fields["corpus"] = _corpora(fields.get("corpus", ""))
        numbered = phase_keys(fields)
        masking = plain.get("masking", {})
        fields["phases"] = tuple(_build_phase(key, fields.pop(key), masking) for key in numbered)
        if "objective" in fields:
            choice = {"objective": fields["objective"], "packed": fields.get("packed", False)}
            fields["objective"] = build("", find_objective, choice)
        recipe = build("", cls, fields | dict(plain=plain))
        recipe._check()
        return recipe

    def _check(self) -> None:
        if abs(sum(phase.share for phase in self.phases) - 1) > 1e-6:
            raise InputError("config: the shares of the phases must sum to 1")
        least = dict(total_steps=1, eval_batch_size=1, keep_checkpoints=1, keep_checkpoint_every=0)
        for name, value in least.items():
            if getattr(self, name) < value:
                raise InputError(f"config.{name}={getattr(self, name)}: must be at least {value}")
        if not 0 <= self.ema < 1:
            raise InputError(f"config.ema={self.ema}: must be in [0, 1)")
        layout(self.layout)
        spec = self.spec(vocab_size=1)
        self._check_models(spec)
        check_tensors(self.optimizer.name, spec)
        for number, phase in enumerate(self.phases, 1):
            build("", partial(self.example_spec, phase), dict(stream="", batch_size=1))
            if phase.length > spec.max_position_embeddings:
                raise InputError(
                    f"config.phase_{number}.length={phase.length} is over the position table, "
                    f"config.model.max_position_embeddings={spec.max_position_embeddings}"
                )
        try:
            self.schedule()
        except ValueError as error:
            raise InputError(f"config.{error}") from error
        if self.decay_from and not (self.optimizer.schedule == WSD and self.optimizer.decay_steps):
            raise InputError(
                f"config.decay_from={self.decay_from}: set config.optimizer.schedule={WSD!r}, and "
                "config.optimizer.decay_steps to the updates in which the rate shall fall"
            )

    def _check_models(self, spec: EncoderSpec) -> None:
        """Checks what phases change in the model: fields of `of_phase`, each with the length."""
        before: tuple[int, EncoderSpec] | None = None
        for number, phase in enumerate(self.phases, 1):
            section = f"phase_{number}.model"
            for name in phase.model:
                if name not in spec.of_phase:
                    which = ", ".join(spec.of_phase) or "none"
                    raise InputError(
                        f"config.{section}.{name}: must be the same in all phases; those of this "
                        f"encoder's fields that a phase may change: {which}"
                    )
            _check_types(f"config.{section}", type(spec), phase.model)
            now = build(section, partial(dataclasses.replace, spec), phase.model)
            for name in spec.of_phase if before and before[0] == phase.length else ():
                was, value = getattr(before[1], name), getattr(now, name)
                if was != value:
                    raise InputError(
                        f"config.{section}.{name}={value}: it was {was} in the phase before, which "
                        f"has the same length {phase.length}: change config.phase_{number}.length "
                        f"too, or leave {name} as it was"
                    )
            before = (phase.length, now) if phase.share else before

    def spec(self, vocab_size: int) -> EncoderSpec:
        """The model's shape, for a vocabulary of this size."""
        fields = {"vocab_size": vocab_size, "causal": self.objective.causal} | dict(self.model)
        name = fields.pop("encoder", "bert")  # configs from before there were others
        if name not in ENCODERS:
            choices = ", ".join(ENCODERS)
            raise InputError(f"config.model.encoder={name!r}: must be one of {choices}")
        family = ENCODERS[name]
        if self.objective.kind and self.objective.kind not in family.heads:
            raise InputError(
                f"config.objective={self.objective.name!r}: {name} has no head for it: choose "
                "another objective, such as 'masked_lm', or another config.model.encoder"
            )
        _check_types("config.model", family.spec, fields)
        spec = build("model", family.spec.named if "size" in fields else family.spec, fields)
        if spec.vocab_size < vocab_size:
            raise InputError(
                f"config.model.vocab_size={spec.vocab_size} is less than the {vocab_size} pieces "
                "of the corpus's vocabulary: leave it out"
            )
        return spec

    def schedule(self) -> optax.Schedule:
        """Update count -> learning rate."""
        return make_schedule(self.optimizer, self.total_steps)

    def steps(self) -> list[tuple[str, PhaseSpec, range]]:
        """Each phase that has any: its name, the phase, its steps of the run."""
        return [
            (f"phase {number}", phase, steps)
            for number, (phase, steps) in enumerate(zip(self.phases, self.ranges(), strict=True), 1)
            if steps
        ]

    def ranges(self) -> list[range]:
        """The steps of every phase; empty where it has none."""
        found, done = [], 0.0
        for phase in self.phases:
            first, done = round(done * self.total_steps), done + phase.share
            found.append(range(first, round(done * self.total_steps)))
        return found

    def spec_at(self, step: int, spec: EncoderSpec) -> EncoderSpec:
        """The model's shape `spec`, as the phase that made update `step` (from 1) computes it."""
        phase = next(phase for _, phase, steps in self.steps() if step <= steps.stop)
        return dataclasses.replace(spec, **phase.model)

    def example_spec(self, phase: PhaseSpec, stream: str, batch_size: int) -> ExampleSpec:
        """The settings of the examples of one phase in one stream."""
        return ExampleSpec(
            layout=self.objective.layout,
            corruption=self.objective.corruption(phase.masking),
            length=phase.length,
            batch_size=batch_size,
            seed=self.seed,
            stream=stream,
            short_probability=self.short_probability,
        )


def plain_config(config: ml_collections.ConfigDict | Mapping[str, Any]) -> dict[str, Any]:
    """A config as config.json holds it: nested dicts, and lists for tuples.

    Raises:
      InputError: no config, or a number in it that cannot be meant.
    """
    if not isinstance(config, ml_collections.ConfigDict | Mapping):
        raise InputError(
            f"--config: get_config returned {config!r:.80}: it must return an "
            "ml_collections.ConfigDict, as the files in configs/ do"
        )
    plain = config.to_dict() if isinstance(config, ml_collections.ConfigDict) else dict(config)
    plain = json.loads(json.dumps(plain))
    check_numbers("config", plain)
    return plain


def check_tensors(optimizer: str, spec: EncoderSpec) -> None:
    """Raises InputError for an optimizer that is another one with layers stored as `spec` has."""
    if optimizer in PER_TENSOR and spec.scan_layers:
        raise InputError(
            f"config.optimizer.name={optimizer!r} adapts the rate of each tensor, and "
            "config.model.scan_layers=True makes one tensor of all layers: set it to False"
        )


def flat(plain: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"model.size": ...} from {"model": {"size": ...}}."""
    found = {}
    for key, value in plain.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def phase_keys(config: Mapping[str, Any]) -> list[str]:
    """The keys phase_1, phase_2, ... of a config, in the order of their numbers."""
    keys = filter(re.compile(r"phase_\d+").fullmatch, config)
    return sorted(keys, key=lambda key: int(key.rpartition("_")[2]))


def _corpora(names: Any) -> tuple[str, ...]:
    """("a@0.7", "b@0.3") from "a@0.7,b@0.3"."""
    return tuple(filter(None, (name.strip() for name in str(names).split(","))))


def _build_phase(key: str, section: Any, masking: Mapping[str, Any]) -> PhaseSpec:
    """A phase of the config; a field of masking that its section lacks is that of `masking`."""
    _check_section(f"config.{key}", section)
    rule = section.get("masking", {})
    _check_section(f"config.{key}.masking", rule)
    own = dict(
        masking=build(f"{key}.masking", MaskingRule, {**masking, **rule}),
        corpus=_corpora(section.get("corpus", "")),
    )
    return build(key, PhaseSpec, {**section, **own})


def _check_section(prefix: str, fields: Any) -> None:
    if not isinstance(fields, Mapping):
        raise InputError(f"{prefix}={fields!r}: must be a dict of keys")


def build(section: str, make: type[T], fields: Mapping[str, Any]) -> T:
    """make(**fields), and any mistake raised as one in a section ("": the whole) of the config."""
    prefix = f"config.{section}" if section else "config"
    _check_section(prefix, fields)
    if dataclasses.is_dataclass(make):
        _check_types(prefix, make, fields)
    try:
        return make(**fields)
    except TypeError as error:  # an unknown key, or a missing one
        message = str(error).split("()", 1)[-1].replace("argument", "key").strip()
        raise InputError(f"{prefix}: {message}") from error
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{prefix}: {error}") from error


# How messages about a config call the types of fields.
_WORDS = {
    **{int: "a whole number", float: "a number", str: "a text", bool: "True or False"},
    Mapping: "a dict of keys",
}


def _check_types(prefix: str, make: type, fields: Mapping[str, Any]) -> None:
    """Raises InputError for a field of a dataclass that is of another type than it says."""
    for field in dataclasses.fields(make):
        kind = get_origin(field.type) or field.type
        if kind not in _WORDS or field.name not in fields:
            continue
        value = fields[field.name]
        if not is_of(value, {} if kind is Mapping else kind):
            raise InputError(f"{prefix}.{field.name}={value!r:.80}: must be {_WORDS[kind]}")


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
    )
    abstract = abstract_state(init, optimizer, placement, recipe.ema)
    return Training(placement, optimizer, init, abstract, trainer)


def init_params(model: nn.Module, key: jax.Array):
    """Fresh parameters, each with its logical axes."""
    ids = jax.numpy.zeros((1, 8), "int32")
    return model.init(key, ids, ids, ids, deterministic=True)["params"]
