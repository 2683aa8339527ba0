"""A config file becomes a recipe; every mistake in it is found here."""

import dataclasses
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import ml_collections
import optax

from bertjax.base.errors import InputError
from bertjax.encoders.contract import EncoderSpec
from bertjax.encoders.registry import ENCODERS
from bertjax.examples.batches import ExampleSpec
from bertjax.examples.masking import MaskingRule
from bertjax.objectives.objective import PretrainingObjective
from bertjax.objectives.registry import find_objective
from bertjax.optimizers.schedule import make_schedule
from bertjax.optimizers.spec import PER_TENSOR, WSD, OptimizerSpec
from bertjax.runs.sections import build, check_section, check_types, plain_config
from bertjax.sharding.mesh import MeshSpec
from bertjax.sharding.rules import layout
from bertjax.training.loop import Intervals

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
            for rule in {phase.masking, self.masking}:  # its own, and that of held-out text
                build("", partial(self._check_examples, phase), dict(rule=rule))
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

    def _check_examples(self, phase: PhaseSpec, rule: MaskingRule) -> None:
        """Raises ValueError if the examples of a phase cannot be, or have nothing to predict."""
        phase = dataclasses.replace(phase, masking=rule)
        _ = self.example_spec(phase, stream="", batch_size=1).predicted

    def _check_models(self, spec: EncoderSpec) -> None:
        """Checks what phases change in the model: fields of `of_phase`, each with the length."""
        before: tuple[int, EncoderSpec] | None = None
        for number, phase in enumerate(self.phases, 1):
            section = f"phase_{number}.model"
            for name in phase.model:
                if name not in spec.of_phase:
                    which = ", ".join(spec.of_phase)
                    raise InputError(
                        f"config.{section}.{name}: must be the same in all phases; those of this "
                        f"encoder's fields that a phase may change: {which}"
                    )
            check_types(f"config.{section}", type(spec), phase.model)
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
        check_types("config.model", family.spec, fields)
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


def check_tensors(optimizer: str, spec: EncoderSpec) -> None:
    """Raises InputError for an optimizer that is another one with layers stored as `spec` has."""
    if optimizer in PER_TENSOR and spec.scan_layers:
        raise InputError(
            f"config.optimizer.name={optimizer!r} adapts the rate of each tensor, and "
            "config.model.scan_layers=True makes one tensor of all layers: set it to False"
        )


def phase_keys(config: Mapping[str, Any]) -> list[str]:
    """The keys phase_1, phase_2, ... of a config, in the order of their numbers."""
    keys = filter(re.compile(r"phase_\d+").fullmatch, config)
    return sorted(keys, key=lambda key: int(key.rpartition("_")[2]))


def _corpora(names: Any) -> tuple[str, ...]:
    """("a@0.7", "b@0.3") from "a@0.7,b@0.3"."""
    return tuple(filter(None, (name.strip() for name in str(names).split(","))))


def _build_phase(key: str, section: Any, masking: Mapping[str, Any]) -> PhaseSpec:
    """A phase of the config; a field of masking that its section lacks is that of `masking`."""
    check_section(f"config.{key}", section)
    rule = section.get("masking", {})
    check_section(f"config.{key}.masking", rule)
    own = dict(
        masking=build(f"{key}.masking", MaskingRule, {**masking, **rule}),
        corpus=_corpora(section.get("corpus", "")),
    )
    return build(key, PhaseSpec, {**section, **own})
