"""A config file becomes a recipe; every mistake in it is found here."""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Annotated, Any

import jax

from bertjax.base.checks import check_choice, check_divides
from bertjax.base.errors import InputError
from bertjax.base.limits import (
    Count,
    CountOrNone,
    Free,
    Key,
    Many,
    Names,
    PositiveShare,
    Rate,
    Share,
)
from bertjax.base.validation import converted
from bertjax.data.examples.batches import ExampleSpec
from bertjax.data.examples.masking import MaskingRule
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import ENCODERS
from bertjax.objectives.masked_lm import MaskedLMNextSentence
from bertjax.objectives.objective import PretrainingObjective
from bertjax.objectives.registry import OBJECTIVES
from bertjax.objectives.token_prediction import PACKED
from bertjax.runs.budget import Budget
from bertjax.runs.read import Config, OneOf, about_config, config_dict_of, read
from bertjax.runs.training_recipe import TrainingRecipe
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.loop import Intervals
from bertjax.training.optimizers.schedule import Schedule, make_schedule
from bertjax.training.optimizers.spec import PER_TENSOR, WSD

_PAPER_VOCABULARY = 30_522  # pieces


ObjectiveSection = Annotated[PretrainingObjective, OneOf("name", OBJECTIVES, alone=True)]


@dataclasses.dataclass(frozen=True)
class PhaseSpec:
    """One phase of a run (section A.2).

    Attributes:
      objective: what it minimizes: config.objective, if it has none of its own.
      share: the share of the run's steps; the shares of all phases sum to 1.
      length: S, the tokens of a row.
      batch_size: sequences of one update, over all devices.
      accumulate: the microbatches of an update.
      masking: the rule of masking: config.masking, with the fields that the phase sets itself.
      corpus: the text that it reads; "": that of config.corpus.
      model: fields of the model's spec that this phase computes with (`EncoderSpec.phase_fields`):
        --config.phase_2.model.remat=layer.
    """

    objective: ObjectiveSection
    share: Share
    length: Count
    batch_size: Many
    accumulate: Count = 1
    masking: MaskingRule = MaskingRule()
    corpus: Free[Names] = ()
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def batch_tokens(self) -> int:
        """The positions of a batch, padding included."""
        return self.batch_size * self.length


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(TrainingRecipe):
    """A checked config of pre-training; the defaults are the paper's.

    Attributes:
      corpus: the DIR of launch/prepare_corpus.py; several are given as "DIR@0.7,DIR@0.3".
      language_alpha: languages are drawn by their tokens to this power: below 1, those with little
        text come more often (XLM: 0.7, XLM-R: 0.3). Then all sources of the corpus name their
        language.
      init_from: weights to start from: RUN, hf:FOLDER, hf:NAME or tf1:FOLDER; or SOURCE#0,2,4 for
        some layers. The model gets their sizes. For a model of several parts, a section with a
        source for each.
      exchange_vocabulary: whether those weights get the corpus's vocabulary, whatever it is: the
        row of a piece is the mean of its old pieces' rows. A vocabulary with more pieces after
        theirs needs no flag.
      decay_from: another run whose rate is constant (schedule "wsd"), as RUN or RUN@STEP: this run
        goes on from its checkpoint in a folder of its own, with a rate that falls for
        optimizer.decay_steps.
      seed: determines the random parameters, the order of the text, spans, masks and dropout.
      objective: "masked_lm_next_sentence"; Table 5's "masked_lm" and "left_to_right"; "hybrid",
        "electra", "permutation", "both_directions" or "distillation". With settings it is a
        section: dict(name="masked_lm", focal=1.0).
      packed: whether a row has several documents, each of which sees only itself, and almost no
        padding. It needs an objective that can have them ("masked_lm", ...), and
        short_probability=0.
      masking: which tokens are predicted, in held-out text and in each phase that says nothing
        else.
      short_probability: the share of examples with a random shorter length.
      total_steps: the updates of all phases.
      budget: the most that the run may cost: "20min" or "3h" on this machine, "80e6tokens" or
        "1e17flops". When it begins, total_steps, the warm-up and the decay are scaled to that. ""
        means no budget.
      phases: phase_1, phase_2 and so on: any number, each with its share of the steps.
      ema: the decay of a moving average of the parameters (EMA). The average is evaluated, exported
        and fine-tuned in place of the parameters. 0 means no average.
      intervals: steps between lines of metrics, evaluations and checkpoints.
      eval_batch_size: sequences of a batch of an evaluation, over all devices.
      keep_checkpoints: how many of the newest checkpoints to keep.
      keep_checkpoint_every: checkpoints at multiples of so many steps are kept, too; 0: none.
      dry_run: whether to do only one update and one evaluation of each phase, and to write nothing.
    """

    corpus: Free[Names] = ()
    language_alpha: PositiveShare = 1.0
    init_from: str | Mapping[str, str] = ""
    exchange_vocabulary: bool = False
    decay_from: str = ""
    seed: CountOrNone = 0
    objective: ObjectiveSection = MaskedLMNextSentence()
    packed: bool = False
    masking: MaskingRule = MaskingRule()
    short_probability: Share = 0.1
    total_steps: Count = 1_000_000
    budget: str = ""
    phases: Annotated[tuple[PhaseSpec, ...], Key(("phase_1", "phase_2"))]
    ema: Rate = 0.0
    intervals: Free[Intervals] = Intervals()
    eval_batch_size: Free[Many] = 256
    keep_checkpoints: Free[Count] = 3
    keep_checkpoint_every: Free[CountOrNone] = 0
    dry_run: Free[bool] = False

    @classmethod
    def from_config(cls, config: Config) -> "Recipe":
        """Reads a config; raises InputError, which names the first mistake in it."""
        config_dict = config_dict_of(config)
        fields, packed = dict(config_dict), config_dict.get("packed", False)
        masking = read(MaskingRule, config_dict.get("masking", {}), "config.masking")
        name = fields.get("objective", MaskedLMNextSentence.name)
        objective = fields["objective"] = _objective("objective", name, packed)
        fields["phases"] = tuple(
            _phase(key, fields.pop(key), masking, objective, packed)
            for key in phase_keys(config_dict)
        )
        recipe = read(cls, fields | dict(masking=masking, config_dict=config_dict))
        recipe._check()
        return recipe

    def _check(self) -> None:
        if abs(sum(phase.share for phase in self.phases) - 1) > 1e-6:
            raise InputError("config: the shares of the phases must sum to 1")
        if self.budget:
            with about_config():
                Budget.of(self.budget)
            if self.decay_from:
                why = "a run with decay_from is as long as its decay: leave one out"
                raise self.wrong("budget", why)
        self.check_shared(has_weights=bool(self.sources))
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
        self.schedule()  # raises for a warm-up or a decay that is longer than the run
        if self.decay_from and not (self.optimizer.schedule == WSD and self.optimizer.decay_steps):
            raise self.wrong(
                "decay_from",
                f"set config.optimizer.schedule={WSD!r}, and config.optimizer.decay_steps to the "
                "updates in which the rate shall fall",
            )

    def _check_batches(self) -> None:
        name = self.objective.name
        for number, phase in enumerate(self.phases, 1):
            learns, key = phase.objective, f"config.phase_{number}"
            accumulate = f"{key}.accumulate", phase.accumulate
            check_divides(f"{key}.batch_size", phase.batch_size, *accumulate)
            if learns.needs_full_batch and phase.accumulate > 1:
                raise InputError(
                    f"{key}.accumulate={phase.accumulate}: objective={learns.name!r} compares the "
                    "rows of a batch with each other, so that it cannot take the batch in "
                    "microbatches: set it to 1"
                )
            for rows in (phase.batch_size // phase.accumulate, self.eval_batch_size):
                if rows % learns.row_group:
                    raise InputError(
                        f"{key}: {rows} rows (batch_size / accumulate, or eval_batch_size) do not "
                        f"divide into the groups of {learns.row_group} of objective={learns.name!r}"
                    )
            if learns.main_metric != self.objective.main_metric:
                raise InputError(
                    f"{key}.objective={learns.name!r}: it cannot take turns with config.objective="
                    f"{name!r}: choose another"
                )

    def _check_carried(self, spec: EncoderSpec) -> None:
        name = self.objective.name
        sizes = {phase.batch_size for phase in self.phases if phase.share}
        carried = self.objective.carried(self.objective.model(spec))
        if carried and len(sizes) > 1:
            raise InputError(
                f"config: the batch_size of the phases are {sorted(sizes)}, and objective={name!r} "
                "hands arrays from each batch to the next: give all phases one batch_size"
            )
        for number, phase in enumerate(self.phases, 1):
            learns = phase.objective
            if learns != self.objective and learns.carried(learns.model(spec)) != carried:
                raise InputError(
                    f"config.phase_{number}.objective={learns.name!r}: it hands other arrays from "
                    f"batch to batch than config.objective={name!r}: choose another"
                )

    def _check_examples(self, phase: PhaseSpec, rule: MaskingRule) -> None:
        """Raises ValueError if a phase cannot have such examples, or they predict nothing."""
        phase = dataclasses.replace(phase, masking=rule)
        _ = self.example_spec(phase, stream="", batch_size=1).predicted

    def _check_models(self, spec: EncoderSpec) -> None:
        """Checks that phases change only `phase_fields`, and train the same parameters."""
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
            found = read(type(spec), phase.model, f"config.{section}", spec)
            changed = [
                name for name in spec.phase_fields if getattr(before, name) != getattr(found, name)
            ]
            if changed and length == phase.length:
                name, was = changed[0], getattr(before, changed[0])
                raise InputError(
                    f"config.{section}.{name}={getattr(found, name)}: it was {was} in the phase "
                    f"before, which has the same length {phase.length}: change "
                    f"config.phase_{number}.length too, or leave {name} as it was"
                )
            if phase.share:
                length, before = phase.length, found
            if phase.objective != self.objective:
                with about_config(f"phase_{number}"):
                    phase.objective.check(self.spec_in(phase, spec))
                if _parameters(phase.objective, spec) != _parameters(self.objective, spec):
                    raise InputError(
                        f"config.phase_{number}.objective={phase.objective.name!r} trains other "
                        f"parameters than config.objective={self.objective.name!r}: choose one "
                        "with the same heads"
                    )

    def spec_for(self, tokenizer: Tokenizer) -> EncoderSpec:
        """The spec of an encoder for a vocabulary."""
        return self.spec(tokenizer.vocabulary_size, tokenizer.pad_id)

    def spec(self, vocab_size: int | None = None, pad_id: int | None = None) -> EncoderSpec:
        """The spec of the encoder, for the size of a vocabulary and the id of its padding.

        Without a vocabulary, its size is config.model.vocab_size, or that of the paper. In some
        families, positions begin at the padding; None is their default.
        """
        if vocab_size is None:
            vocab_size = self.model.get("vocab_size", _PAPER_VOCABULARY)
        fields = dict(self.model)
        name = fields.pop("encoder", None)
        size = converted(fields.pop("size", ""), str, "config.model.size")
        check_choice("config.model.encoder", name, ENCODERS)
        family = ENCODERS[name]
        settings = dict(vocab_size=vocab_size, causal=self.objective.causal, pad_token_id=pad_id)
        known = [field.name for field in dataclasses.fields(family.spec)]
        settings = {
            key: value for key, value in settings.items() if key in known and value is not None
        }
        fields = settings | fields
        if size:
            with about_config("model"):
                named = family.spec.named(size)
        spec = read(family.spec, fields, "config.model", named if size else None)
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
        return Recipe.from_config({**self.config_dict, "model": model})

    def with_steps(self, total_steps: int) -> "Recipe":
        """The same recipe for a run of other length; its warm-up and decay are scaled with it."""
        steps = {
            name: round(getattr(self.optimizer, name) * total_steps / self.total_steps)
            for name in ("warmup_steps", "decay_steps")
        }
        optimizer = {**self.config_dict.get("optimizer", {}), **steps}
        return Recipe.from_config(
            {**self.config_dict, "total_steps": total_steps, "optimizer": optimizer}
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


@functools.cache  # phases, and the runs of a study, have the same models
def _parameters(objective: PretrainingObjective, spec: EncoderSpec) -> Any:
    params = jax.eval_shape(objective.model(spec).init, jax.random.key(0))
    return jax.tree_util.tree_flatten_with_path(params)


def _objective(key: str, section: Any, packed: bool) -> PretrainingObjective:
    place = f"config.{key}"
    settings = {"name": section} if isinstance(section, str) else section
    settings = converted(settings, dict, place)
    objective = OBJECTIVES.get(str(settings.get("name")))
    if packed and objective:
        if PACKED not in objective.layouts:
            choices = [name for name, each in OBJECTIVES.items() if PACKED in each.layouts]
            raise InputError(
                f"config.packed=True: {key}={objective.name!r} cannot have packed documents: set "
                f"packed=False, or {key} to one of {', '.join(choices)}"
            )
        if settings.setdefault("text", PACKED) != PACKED:
            raise InputError(
                f"config.packed=True and {place}.text={settings['text']!r}: leave one out"
            )
    return read(ObjectiveSection, settings, place)


def _phase(
    key: str, section: Any, masking: MaskingRule, objective: PretrainingObjective, packed: bool
) -> PhaseSpec:
    """A phase of the config, with what its section leaves to the whole config's."""
    place = f"config.{key}"
    section = converted(section, dict, place)
    if section.get("objective"):
        objective = _objective(f"{key}.objective", section["objective"], packed)
    masking = read(MaskingRule, section.get("masking", {}), f"{place}.masking", masking)
    return read(PhaseSpec, {**section, "objective": objective, "masking": masking}, place)
