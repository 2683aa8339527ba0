"""The contract of an objective of pre-training: everything that other files ask of one.

An objective is a frozen dataclass in a file of its own; its fields are the settings of the section
`config.objective`. Only `bertjax.objectives.registry.OBJECTIVES` knows which there are.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from flax import linen as nn

from bertjax.base.fields import LANGUAGE_IDS, OPTIONAL, Field
from bertjax.data.examples.corruption import Corruption
from bertjax.data.examples.layout import TextLayout
from bertjax.data.examples.masking import MaskingRule
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import family_of
from bertjax.models.heads.head_specs import text_inputs
from bertjax.training.model import Model
from bertjax.training.objective import Objective


class PretrainingObjective(Objective):
    """An objective of pre-training.

    Attributes:
      name: its name in the registry.
      layouts: the layouts of text that its field `text` chooses from; {} without such a field.
      causal: whether a token sees only those before it.
      main_metric: the metric by which a run is judged (`bertjax.training.health`): a loss in nats.
      accuracy: the metric that is shown with it, a share of right answers; or "".
      advice: what to do when the main metric stays at the unigram baseline, with the usual causes.
      head_type: that of the model that other programs open, one of
        `bertjax.models.encoders.head_types`; "" if they cannot use the model.
      exported: the part of the model that they open; "" in a model of one part.
      others: the other parts that launch/convert.py --part exports -> their head types.
      needed: the parts that must begin with weights of `config.init_from`.
      warned: what `warning` says, as the health of the run.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]
    name: ClassVar[str]
    layouts: ClassVar[Mapping[str, TextLayout]] = {}
    causal: ClassVar[bool] = False
    main_metric: ClassVar[str] = "loss"
    accuracy: ClassVar[str] = ""
    advice: ClassVar[str] = ""
    head_type: ClassVar[str] = ""
    exported: ClassVar[str] = ""
    others: ClassVar[Mapping[str, str]] = {}
    needed: ClassVar[tuple[str, ...]] = ()
    warned: ClassVar[str] = "warned"

    @property
    def row_group(self) -> int:
        """The rows of a microbatch must divide into groups of so many."""
        return 1

    @property
    @abc.abstractmethod
    def layout(self) -> TextLayout:
        """How text is laid out in a sequence."""

    @abc.abstractmethod
    def corruption(self, rule: MaskingRule, microbatches: int = 1) -> Corruption:
        """The change that is made to the text; it may use `rule`, that of `config.masking`.

        `microbatches` are those of a batch, for a change of some of the rows of each.
        """

    def warning(self, metrics: Mapping[str, float]) -> str:
        """Describes a suspicious metric, its usual causes and what to do; "": there is none.

        A run prints it once, if it lasts beyond the beginning of the training.
        """
        del metrics
        return ""

    def unigram_baseline(self, frequencies: np.ndarray, rule: MaskingRule) -> float | None:
        """The main metric of the best guess that reads no context; None if it is not known.

        A model that stays there has learned how frequent the words are, and no more.
        `frequencies` is float [V], the share of each piece in the text.
        """
        del frequencies, rule
        return None

    @abc.abstractmethod
    def module(self, spec: EncoderSpec) -> nn.Module:
        """The encoder with the heads that are trained, of `bertjax.models.heads` or its own.

        Called with a batch, or the encoder's inputs alone, and `deterministic`, it returns the
        outputs by name. The parameters have a branch for the encoder and one for each head.
        """

    def model(self, spec: EncoderSpec) -> Model:
        """The model that is trained; it has one part, unless an objective needs more."""
        return Model.of(self.module(spec), text_inputs(spec, B=1, S=8))

    def settings_of(self, part: str, spec: EncoderSpec) -> dict[str, Any]:
        """The settings that follow from weights with `spec` with which a part begins, if any."""
        del part, spec
        return {}

    def flops_per_token(
        self, spec: EncoderSpec, length: int, predicted: int, context: float | None = None
    ) -> float:
        """Useful operations of a training step: see `EncoderSpec.flops_per_token`."""
        return spec.flops_per_token(length, predicted, context)

    def check(self, spec: EncoderSpec) -> None:
        """Raises ValueError if it cannot train an encoder of this spec."""
        family = family_of(spec)
        if self.head_type and self.head_type not in family.heads:
            raise ValueError(
                f"objective={self.name!r}: {family.name} has no head for it: choose another "
                "objective, such as 'masked_lm', or another config.model.encoder"
            )
        made = [name for name in self.layout.fields if name in OPTIONAL]
        missing = [name for name in made if name not in family.inputs]
        if missing:
            raise ValueError(
                f"objective={self.name!r}: its text has {', '.join(missing)}, which {family.name} "
                "does not read: choose another text (packed=False), or another "
                "config.model.encoder"
            )
        by_language = spec.type_vocab_size and not LANGUAGE_IDS.keys().isdisjoint(family.inputs)
        if by_language and LANGUAGE_IDS.keys().isdisjoint(made):
            raise ValueError(
                f"model.type_vocab_size={spec.type_vocab_size}: {family.name} has an embedding of "
                f"each language, and the text of objective={self.name!r} names none: set it to 0, "
                "or the objective to dict(name='masked_lm', text='translations', "
                "languages='en,sw')"
            )

    @property
    def fields(self) -> Mapping[str, Field]:
        """The arrays of a batch, which are the same for all rules of masking."""
        return {**self.layout.fields, **self.corruption(MaskingRule()).fields}
