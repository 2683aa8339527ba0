"""Distillation of a masked LM: a small student learns what a teacher expects (arXiv 1910.01108)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base.limits import Positive, Weight
from bertjax.models.encoders.computation import determined, how_computed
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.heads.head_specs import text_inputs
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.objectives.cross_entropy import divergence, label_logit
from bertjax.objectives.masked_lm import MaskedLM, at_places
from bertjax.training.model import Arrays, Model, Params, Part
from bertjax.training.objective import LossWeights, Rngs

STUDENT, TEACHER = "student", "teacher"


class MaskedLMWithStates(PreTrainingModel):
    """A masked LM that also returns the encoder's output: "sequence" [B, S, D]."""

    next_sentence: bool = False

    def __call__(
        self, inputs: Mapping[str, jax.Array], *, deterministic: bool
    ) -> dict[str, jax.Array]:
        states = self.encoder(inputs, deterministic=deterministic)
        return {"sequence": states, **self.predictions(states, inputs, deterministic)}


@dataclasses.dataclass(frozen=True)
class Distillation(MaskedLM):
    """The student's distribution at each token approaches the teacher's.

    The encoder of `config.model` is the student, which is the part that other programs open and
    export. The teacher stays as it is. It may be of another family, with the same vocabulary.

    Attributes:
      temperature: both models' logits are divided by it in "distil_loss".
      distil_weight: the weight of "distil_loss": the divergence of the student's distribution from
        the teacher's, times the square of the temperature. Its gradient is that of their
        cross-entropy. All weights are those of the paper's code (distillation/README.md).
      restrict_ce_to_mask: whether "distil_loss" is of the masked places alone, as with that flag of
        the paper's code (distiller.py), and not of all tokens.
      mlm_weight: the weight of the masked-LM loss.
      cosine_weight: the weight of "cosine_loss": 1 - the cosine of both models' last hidden states,
        on each token. It is 0 if they are not equally wide.
      teacher: the teacher's model, with keys as in `config.model`; the weights of the teacher in
        `config.init_from` bring it. {}: the sizes of the student.
    """

    temperature: Positive = 2.0
    distil_weight: Weight = 5.0
    restrict_ce_to_mask: bool = False
    mlm_weight: Weight = 2.0
    cosine_weight: Weight = 1.0
    teacher: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    name = "distillation"
    exported = STUDENT
    needed = (TEACHER,)
    columns = (*MaskedLM.columns, "distil_loss", "teacher_accuracy")

    def __post_init__(self):
        super().__post_init__()
        if not self.distil_weight + self.cosine_weight > 0:
            raise ValueError("distil_weight=0 and cosine_weight=0: nothing to learn from a teacher")

    @property
    def loss_weights(self) -> dict[str, float]:
        weights = super().loss_weights | {self.minimized: self.mlm_weight}
        weights["distil_loss"] = self.distil_weight
        return weights | ({"cosine_loss": self.cosine_weight} if self.cosine_weight else {})

    def teacher_spec(self, spec: EncoderSpec) -> EncoderSpec:
        """The spec of the teacher of a student with `spec`; it computes as the student does."""
        fields: dict[str, Any] = dict(self.teacher) or determined(spec)
        name = fields.pop("encoder", spec.encoder)
        if name not in ENCODERS:
            raise ValueError(f"teacher.encoder={name!r}: must be one of {', '.join(ENCODERS)}")
        known = {field.name for field in dataclasses.fields(ENCODERS[name].spec)}
        if unknown := fields.keys() - known - {"size"}:
            raise ValueError(f"teacher.{min(unknown)}: a {name} has no such field")
        same = {key: getattr(spec, key) for key in ("vocab_size", "max_position_embeddings")}
        how = how_computed(spec) | {"scan_layers": False}
        how |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        size, fields = fields.pop("size", None), same | fields | how
        make = ENCODERS[name].spec
        return make.named(size, **fields) if size else make(**fields)

    def settings_of(self, part: str, spec: EncoderSpec) -> dict[str, Any]:
        """The teacher's weights bring its model."""
        if part != TEACHER:
            return {}
        if spec.causal:
            raise ValueError("the teacher reads left to right: take one that fills in blanks")
        return {"teacher": determined(spec)}

    def check(self, spec: EncoderSpec) -> None:
        """Also checks that there is a teacher, and that the losses can compare both."""
        super().check(spec)
        teacher = self.teacher_spec(spec)
        super().check(teacher)
        if self.cosine_weight and teacher.hidden_size != spec.hidden_size:
            raise ValueError(
                f"objective.cosine_weight={self.cosine_weight}: the hidden states of the teacher "
                f"are {teacher.hidden_size} wide and the student's {spec.hidden_size}, so that "
                "they cannot be compared: set it to 0"
            )
        if teacher.max_position_embeddings < spec.max_position_embeddings:
            raise ValueError(
                f"model.max_position_embeddings={spec.max_position_embeddings}: the teacher takes "
                f"{teacher.max_position_embeddings} tokens: set it to that, or less"
            )

    def module(self, spec: EncoderSpec) -> nn.Module:
        """The student, or the teacher."""
        return MaskedLMWithStates(spec)

    def model(self, spec: EncoderSpec) -> Model:
        """The student and the teacher."""
        specs = {STUDENT: spec, TEACHER: self.teacher_spec(spec)}
        return Model(
            {
                name: Part(self.module(each), text_inputs(each, B=1, S=8), frozen=name == TEACHER)
                for name, each in specs.items()
            }
        )

    def outputs(self, model: Model, params: Params, batch: Arrays, rngs: Rngs) -> Arrays:
        """The student's "masked_lm" [B, P, V] and "sequence" [B, S, D].

        Also the teacher's, as "teacher_masked_lm" [B, P, V'] and "teacher_sequence"; and "pieces"
        [V''], which is true for the pieces that both have. P is S if all tokens are compared.
        """
        if not self.restrict_ce_to_mask:
            batch = {name: x for name, x in batch.items() if name != "masked_lm_positions"}
        student = model(params, batch, rngs.dropout(), STUDENT)
        teacher = model(params, batch, part=TEACHER)
        sizes = [part.module.spec.vocab_size for part in model.parts.values()]
        rows = min(each["masked_lm"].shape[-1] for each in (student, teacher))
        return {
            **student,
            **{f"teacher_{name}": output for name, output in teacher.items()},
            "pieces": jnp.arange(rows) < min(sizes),
        }

    def _compared(self, batch: Arrays) -> Arrays:
        """The batch with what is predicted at each place of the logits [B, P, V]."""
        if self.restrict_ce_to_mask:
            return batch
        shape = batch["input_mask"].shape
        targets = {name: batch[name] for name in self.targets}
        spread = {
            name: at_places(batch, x, jnp.zeros(shape, x.dtype)) for name, x in targets.items()
        }
        return {**batch, **spread}

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Adds 1 on each token that is compared: those of the text, or the masked ones."""
        weights = super().weights(self._compared(batch))
        tokens = batch["input_mask"].astype(jnp.float32)
        distilled = weights["mlm_loss"] if self.restrict_ce_to_mask else tokens
        return weights | {"distil_loss": distilled, "cosine_loss": tokens}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Adds the two losses, and "teacher_accuracy": the teacher's, on the masked tokens."""
        batch = self._compared(batch)
        values = super().values(outputs, batch)
        student, teacher = outputs["masked_lm"], outputs["teacher_masked_lm"]
        loss = divergence(student, teacher, self.temperature, outputs["pieces"])
        right = label_logit(teacher, batch[self.targets[0]]) == teacher.max(-1)
        values["mlm_loss"]["teacher_accuracy"] = right
        values["distil_loss"] = {"distil_loss": loss}
        if self.cosine_weight:
            cosine = _cosine(outputs["sequence"], outputs["teacher_sequence"])
            values["cosine_loss"] = {"cosine_loss": 1.0 - cosine}
        return values

    def flops_per_token(
        self, spec: EncoderSpec, length: int, predicted: int, context: float | None = None
    ) -> float:
        """The student's, and the teacher's forward pass, a third of a training step."""
        predicted = predicted if self.restrict_ce_to_mask else length
        teacher = self.teacher_spec(spec).flops_per_token(length, predicted, context)
        return spec.flops_per_token(length, predicted, context) + teacher / 3


def _cosine(a: jax.Array, b: jax.Array) -> jax.Array:
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    return (a * b).sum(-1) / jnp.sqrt(jnp.square(a).sum(-1) * jnp.square(b).sum(-1))
