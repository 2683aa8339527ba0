"""A language model forward and one backward, which share a softmax (ELMo, arXiv 1802.05365)."""

import dataclasses
import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.base.limits import Count, Share, check_limits
from bertjax.data.examples.corruption import Corruption, Unchanged
from bertjax.data.examples.layout import TextLayout
from bertjax.data.examples.masking import MaskingRule
from bertjax.data.examples.two_way_layout import TWO_WAY
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import family_of
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.models.heads.next_words import NextWordsModel, draw_words
from bertjax.objectives.cross_entropy import entropy
from bertjax.objectives.objective import PretrainingObjective
from bertjax.training.model import Arrays, Model, Params
from bertjax.training.objective import LossWeights, Rngs

_LOSSES = ("forward_loss", "backward_loss")


@dataclasses.dataclass(frozen=True)
class BothDirections(PretrainingObjective):
    """Each word is predicted from those before it, and by another model from those after it.

    "loss" is the mean of both directions. The states in which a batch ends are those in which the
    next one begins.

    Attributes:
      sampled: the words of the softmax in training, besides the right one (bilm-tf: 8,192). They
        are drawn anew for each microbatch. Evaluation has all words.
      restart: the probability that a row begins a batch with states of zeros (arXiv 1707.05589,
        section 4). With 0, as in bilm-tf, a model may know no text that begins with them.
    """

    sampled: Count = 8192
    restart: Share = 0.0

    name = "both_directions"
    head_type = head_types.BIDIRECTIONAL_LM
    columns = ("loss", "forward_perplexity", "backward_perplexity")
    advice = (
        "Usual causes: a learning rate that is too high or too low, a warm-up that is too short, "
        "or few updates. Try a third of the rate, and three times the rate"
    )

    def __post_init__(self):
        check_limits(self)

    @property
    def layout(self) -> TextLayout:
        """A stream of sentences, and one of the mirrored sentences."""
        return TWO_WAY

    @property
    def loss_weights(self) -> dict[str, float]:
        return dict.fromkeys(_LOSSES, 0.5)

    def corruption(self, rule: MaskingRule, microbatches: int = 1) -> Corruption:
        """Nothing is masked."""
        del rule, microbatches
        return Unchanged()

    def module(self, spec: EncoderSpec) -> NextWordsModel:
        """The encoder with the softmax."""
        return NextWordsModel(spec)

    def model(self, spec: EncoderSpec) -> Model:
        return Model.of(self.module(spec), HEAD_SPECS[self.head_type].inputs(spec, B=1, S=8))

    def carried(self, model: Model) -> dict[str, jax.ShapeDtypeStruct]:
        """The states of the encoder."""
        spec = _spec(model)
        states = family_of(spec).states
        assert states is not None  # of a family with this kind
        return {"states": jax.ShapeDtypeStruct(states(spec), jnp.float32)}

    def outputs(self, model: Model, params: Params, batch: Arrays, rngs: Rngs) -> Arrays:
        """One call of the model; no gradient goes into the batch before."""
        if not rngs.deterministic:
            key = rngs.draw("words of the softmax")
            drawn = draw_words(key, self.sampled, _spec(model).vocab_size)
            batch = {**batch, **drawn._asdict()}
        if self.restart and not rngs.deterministic:
            states = batch["states"]
            rows = (len(states),) + (1,) * (states.ndim - 1)
            begins = jax.random.bernoulli(rngs.draw("rows that begin anew"), self.restart, rows)
            batch = {**batch, "states": jnp.where(begins, 0.0, states)}
        outputs = model(params, batch, rngs.dropout())
        return outputs | {"states": jax.lax.stop_gradient(outputs["states"])}

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Every place counts."""
        return dict.fromkeys(_LOSSES, batch["input_mask"].size)

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """The losses that the model has computed."""
        del batch
        return {name: {name: outputs[name]} for name in _LOSSES}

    def derived(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The perplexity of each direction, over all words."""
        return {
            name.replace("loss", "perplexity"): math.exp(min(metrics[name], 700.0))
            for name in _LOSSES
        }

    def unigram_baseline(self, frequencies: np.ndarray, rule: MaskingRule) -> float:
        """The entropy of the words, without the end of a sentence."""
        del rule
        return entropy(frequencies)

    def flops_per_token(
        self, spec: EncoderSpec, length: int, predicted: int, context: float | None = None
    ) -> float:
        """Each direction reads words of its own, and predicts one of the drawn words."""
        del predicted
        softmax = spec.hidden_size * min(self.sampled, spec.vocab_size)
        softmax_flops = 6.0 * (spec.word_products + softmax)  # type: ignore[attr-defined]  # with this kind
        return spec.flops_per_token(length, 0, context) + softmax_flops


def _spec(model: Model) -> EncoderSpec:
    module = model.parts[""].module
    assert isinstance(module, NextWordsModel)
    return module.spec
