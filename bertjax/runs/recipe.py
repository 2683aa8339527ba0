"""A config file becomes a recipe; every mistake in it is found here."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import jax

from bertjax.base.errors import InputError
from bertjax.base.validation import converted
from bertjax.data.examples.batches import ExampleSpec
from bertjax.data.examples.masking import MaskingRule
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import ENCODERS
from bertjax.objectives.objective import PretrainingObjective
from bertjax.objectives.registry import OBJECTIVES
from bertjax.objectives.token_prediction import PACKED
from bertjax.runs.budget import Budget
from bertjax.runs.sections import Config, about_config, build, plain_config
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.loop import Intervals
from bertjax.training.optimizers.schedule import Schedule, make_schedule
from bertjax.training.optimizers.spec import PER_TENSOR, WSD, OptimizerSpec
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.rules import sharding_layout
from bertjax.training.subset import AdapterSpec, check_subset

PAPER_VOCABULARY = 30_522  # pieces; for a config without a corpus


@dataclasses.dataclass(frozen=True)
class PhaseSpec:
    """One phase of a run (section A.2).

    Attributes:
      objective: what it minimizes: config.objective, if it has none of its own.
      share: the share of the run's steps; the shares of all phases sum to 1.
      length: S.
      batch_size: sequences of one update, over all devices.
      accumulate: the microbatches of an update.
      masking: the rule of masking: config.masking, with the fields that the phase sets itself.
      corpus: the text that it reads; (): that of config.corpus.
      model: fields of the model's spec that this phase computes with (`EncoderSpec.phase_fields`).
    """

    objective: PretrainingObjective
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

    @property
    def batch_tokens(self) -> int:
        """The positions of a batch, padding included."""
        return self.batch_size * self.length


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A checked config. `plain` is the config as nested dicts, as config.json holds it."""

    plain: Mapping[str, Any] = dataclasses.field(compare=False)
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
    init_from: str | Mapping[str, str] = ""
    exchange_vocabulary: bool = False
    packed: bool = False
    decay_from: str = ""
    budget: str = ""
    language_alpha: float = 1.0
    tracker: str = ""
    adapter: AdapterSpec = AdapterSpec()
    frozen: str = ""

    @classmethod
    def from_config(cls, config: Config) -> "Recipe":
        """Reads a config such as those in `configs/`.

        Raises:
          InputError: a key is unknown or missing, or a value does not fit; the message names it.
        """
        plain = plain_config(config)
        fields = dict(plain)
        fields.pop("dry_run", None)
        sections = dict(
            **dict(optimizer=OptimizerSpec, masking=MaskingRule, mesh=MeshSpec),
            **dict(intervals=Intervals, adapter=AdapterSpec),
        )
        for key, section in sections.items():
            fields[key] = build(key, section, fields.get(key, {}))
        fields["corpus"] = _corpora(fields.get("corpus", ""))
        numbered = phase_keys(fields)
        masking = plain.get("masking", {})
        packed = fields.get("packed", False)
        whole = fields["objective"] = _objective("objective", fields.get("objective"), packed)
        fields["phases"] = tuple(
            _build_phase(key, fields.pop(key), masking, whole, packed) for key in numbered
        )
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
        if not 0 < self.language_alpha <= 1:
            raise InputError(f"config.language_alpha={self.language_alpha}: must be in (0, 1]")
        if self.budget:
            with about_config():
                Budget.of(self.budget)
            if self.decay_from:
                raise InputError(
                    f"config.budget={self.budget}: a run with decay_from is as long as its decay: "
                    "leave one out"
                )
        check_subset(self.adapter, self.frozen, bool(self.sources))
        sharding_layout(self.layout)
        self._check_batches()
        spec = self.spec(vocab_size=1)
        self._check_models(spec)
        self._check_carried(spec)
        check_tensors(self.optimizer.name, spec)
        for number, phase in enumerate(self.phases, 1):
            for rule in {phase.masking, self.masking}:  # its own, and that of held-out text
                with about_config():
                    self._check_examples(phase, rule)
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

    def _check_batches(self) -> None:
        """Checks that the objective can take the batches of the phases."""
        name = self.objective.name
        for number, phase in enumerate(self.phases, 1):
            own = phase.objective
            if own.whole_batch and phase.accumulate > 1:
                raise InputError(
                    f"config.phase_{number}.accumulate={phase.accumulate}: objective={own.name!r} "
                    "compares the rows of a batch with each other, so that it cannot take the "
                    "batch in parts: set it to 1"
                )
            for rows in (phase.batch_size // phase.accumulate, self.eval_batch_size):
                if rows % own.row_group:
                    raise InputError(
                        f"config.phase_{number}: {rows} rows (batch_size / accumulate, or "
                        f"eval_batch_size) do not divide into the groups of {own.row_group} of "
                        f"objective={own.name!r}"
                    )
            if own.headline != self.objective.headline:
                raise InputError(
                    f"config.phase_{number}.objective={own.name!r}: it cannot take turns with "
                    f"config.objective={name!r}: choose another"
                )

    def _check_carried(self, spec: EncoderSpec) -> None:
        """Checks that the phases can hand their arrays to each other."""
        name = self.objective.name
        sizes = {phase.batch_size for phase in self.phases if phase.share}
        carried = self.objective.carried(self.objective.model(spec))
        if carried and len(sizes) > 1:
            raise InputError(
                f"config: the batch_size of the phases are {sorted(sizes)}, and objective={name!r} "
                "hands arrays from each batch to the next: give all phases one batch_size"
            )
        for number, phase in enumerate(self.phases, 1):
            own = phase.objective
            if own != self.objective and own.carried(own.model(spec)) != carried:
                raise InputError(
                    f"config.phase_{number}.objective={own.name!r}: it hands other arrays from "
                    f"batch to batch than config.objective={name!r}: choose another"
                )

    def _check_examples(self, phase: PhaseSpec, rule: MaskingRule) -> None:
        """Raises ValueError if a phase cannot have such examples, or they predict nothing."""
        phase = dataclasses.replace(phase, masking=rule)
        _ = self.example_spec(phase, stream="", batch_size=1).predicted

    def _check_models(self, spec: EncoderSpec) -> None:
        """Checks what phases change of the model.

        They may change `phase_fields` together with the length, and the objective if it trains the
        same parameters.
        """
        length, before = 0, spec  # of the phase before; no phase has a length of 0
        for number, phase in enumerate(self.phases, 1):
            section = f"phase_{number}.model"
            for name in phase.model:
                if name not in spec.phase_fields:
                    which = ", ".join(spec.phase_fields)
                    raise InputError(
                        f"config.{section}.{name}: must be the same in all phases; those of this "
                        f"encoder's fields that a phase may change: {which}"
                    )
            now = build(section, type(spec), dataclasses.asdict(spec) | dict(phase.model))
            changed = [
                name for name in spec.phase_fields if getattr(before, name) != getattr(now, name)
            ]
            if changed and length == phase.length:
                name, was = changed[0], getattr(before, changed[0])
                raise InputError(
                    f"config.{section}.{name}={getattr(now, name)}: it was {was} in the phase "
                    f"before, which has the same length {phase.length}: change "
                    f"config.phase_{number}.length too, or leave {name} as it was"
                )
            if phase.share:
                length, before = phase.length, now
            if phase.objective != self.objective:
                with about_config(f"phase_{number}"):
                    phase.objective.check(spec)
                if _parameters(phase.objective, spec) != _parameters(self.objective, spec):
                    raise InputError(
                        f"config.phase_{number}.objective={phase.objective.name!r} trains other "
                        f"parameters than config.objective={self.objective.name!r}: choose one "
                        "with the same heads"
                    )

    def spec_for(self, tokenizer: Tokenizer) -> EncoderSpec:
        """The spec of an encoder for a vocabulary."""
        return self.spec(tokenizer.vocabulary_size, tokenizer.pad_id)

    def spec(self, vocab_size: int, pad_id: int | None = None) -> EncoderSpec:
        """The spec of the encoder, for a vocabulary of this size.

        Args:
          pad_id: the id of its padding, where positions begin in some families; None: the default.
        """
        fields = {"vocab_size": vocab_size} | dict(self.model)
        name = fields.pop("encoder", None)
        if name not in tuple(ENCODERS):
            choices = ", ".join(ENCODERS)
            raise InputError(f"config.model.encoder={name!r}: must be one of {choices}")
        family = ENCODERS[name]
        given = {"causal": self.objective.causal, "pad_token_id": pad_id}
        known = [field.name for field in dataclasses.fields(family.spec)]
        fields = {
            key: value for key, value in given.items() if key in known and value is not None
        } | fields
        if "size" in fields:
            with about_config("model"):
                named = family.spec.named(converted(fields.pop("size"), str, "config.model.size"))
            fields = dataclasses.asdict(named) | fields
        spec = build("model", family.spec, fields)
        if spec.vocab_size < vocab_size and not family.reads_characters:
            raise InputError(
                f"config.model.vocab_size={spec.vocab_size} is less than the {vocab_size} pieces "
                "of the corpus's vocabulary: leave it out"
            )
        with about_config():
            self.objective.check(spec)
        return spec

    def with_model(self, model: Mapping[str, Any]) -> "Recipe":
        """The same recipe with another section `model`."""
        return Recipe.from_config({**self.plain, "model": model})

    def with_steps(self, total_steps: int) -> "Recipe":
        """The same recipe for a run of other length; its warm-up and decay are scaled with it."""
        steps = {
            name: round(getattr(self.optimizer, name) * total_steps / self.total_steps)
            for name in ("warmup_steps", "decay_steps")
        }
        optimizer = {**self.plain.get("optimizer", {}), **steps}
        return Recipe.from_config(
            {**self.plain, "total_steps": total_steps, "optimizer": optimizer}
        )

    @property
    def sources(self) -> dict[str, str]:
        """The weights to start from, by part of the model; a string is for the main part."""
        if isinstance(self.init_from, Mapping):
            return {part: source for part, source in self.init_from.items() if source}
        return {self.objective.exported: self.init_from} if self.init_from else {}

    def schedule(self) -> Schedule:
        """Update count -> learning rate."""
        return make_schedule(self.optimizer, self.total_steps)

    def steps(self) -> list[tuple[str, PhaseSpec, range]]:
        """The phases that have steps: the name, the phase, and its steps in the run."""
        return [
            (f"phase {number}", phase, steps)
            for number, (phase, steps) in enumerate(zip(self.phases, self.ranges(), strict=True), 1)
            if steps
        ]

    def ranges(self) -> list[range]:
        """The steps of every phase, also of phases that have none."""
        found, done = [], 0.0
        for phase in self.phases:
            first, done = round(done * self.total_steps), done + phase.share
            found.append(range(first, round(done * self.total_steps)))
        return found

    @property
    def tokens(self) -> int:
        """The positions of all batches, padding included."""
        return sum(len(steps) * phase.batch_tokens for _, phase, steps in self.steps())

    def phase_at(self, step: int) -> PhaseSpec:
        """The phase that made update `step`, from 1."""
        return next(phase for _, phase, steps in self.steps() if step <= steps.stop)

    def spec_in(self, phase: PhaseSpec, spec: EncoderSpec) -> EncoderSpec:
        """The spec with which a phase computes the model of `spec`."""
        changed: dict[str, Any] = dict(phase.model)
        if phase.objective.causal != self.objective.causal:
            changed["causal"] = phase.objective.causal
        return dataclasses.replace(spec, **changed)

    def example_spec(self, phase: PhaseSpec, stream: str, batch_size: int) -> ExampleSpec:
        """The settings of the examples of one phase in one stream."""
        return ExampleSpec(
            layout=phase.objective.layout,
            corruption=phase.objective.corruption(phase.masking, phase.accumulate),
            length=phase.length,
            batch_size=batch_size,
            seed=self.seed,
            stream=stream,
            short_probability=self.short_probability,
        )


def check_tensors(optimizer: str, spec: EncoderSpec) -> None:
    """Raises InputError if the optimizer works by tensor, and `spec` stores all layers as one."""
    if optimizer in PER_TENSOR and spec.scan_layers:
        raise InputError(
            f"config.optimizer.name={optimizer!r} adapts the rate of each tensor, and "
            "config.model.scan_layers=True makes one tensor of all layers: set it to False"
        )


def phase_keys(config: Mapping[str, Any]) -> list[str]:
    """The keys phase_1, phase_2, ... of a config, in the order of their numbers."""
    keys = filter(re.compile(r"phase_\d+").fullmatch, config)
    return sorted(keys, key=lambda key: int(key.rpartition("_")[2]))


def _parameters(objective: PretrainingObjective, spec: EncoderSpec) -> Any:
    """The paths and shapes of the parameters that an objective trains."""
    params = jax.eval_shape(objective.model(spec).init, jax.random.key(0))
    return jax.tree_util.tree_flatten_with_path(params)


def _objective(key: str, section: Any, packed: bool) -> PretrainingObjective:
    """The objective of a section, or of a name alone."""
    settings = {"name": section} if isinstance(section, str) else section
    settings = converted(settings, dict, f"config.{key}")
    name = settings.pop("name", None)
    if name not in tuple(OBJECTIVES):
        raise InputError(f"config.{key}={name!r}: must be one of {', '.join(OBJECTIVES)}")
    objective = OBJECTIVES[name]
    if packed:
        if PACKED not in objective.layouts:
            choices = [name for name, each in OBJECTIVES.items() if PACKED in each.layouts]
            raise InputError(
                f"config.packed=True: {key}={name!r} cannot have packed documents: set "
                f"packed=False, or {key} to one of {', '.join(choices)}"
            )
        if settings.setdefault("text", PACKED) != PACKED:
            raise InputError(
                f"config.packed=True and config.{key}.text={settings['text']!r}: leave one out"
            )
    return build(key, objective, settings)


def _corpora(names: Any) -> tuple[str, ...]:
    """("a@0.7", "b@0.3") from "a@0.7,b@0.3"."""
    return tuple(filter(None, (name.strip() for name in str(names).split(","))))


def _build_phase(
    key: str,
    section: Any,
    masking: Mapping[str, Any],
    objective: PretrainingObjective,
    packed: bool,
) -> PhaseSpec:
    """A phase of the config.

    Args:
      masking: the fields of masking that its section may lack.
      objective: the objective of a section without one.
      packed: the config's.
    """
    section = converted(section, dict, f"config.{key}")
    rule = converted(section.get("masking", {}), dict, f"config.{key}.masking")
    if section.get("objective"):
        objective = _objective(f"{key}.objective", section["objective"], packed)
    own = dict(
        objective=objective,
        masking=build(f"{key}.masking", MaskingRule, {**masking, **rule}),
        corpus=_corpora(section.get("corpus", "")),
    )
    return build(key, PhaseSpec, {**section, **own})
