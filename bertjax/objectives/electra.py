"""Detection of replaced tokens (ELECTRA, arXiv 2003.10555): a generator and a discriminator."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import linen as nn

from bertjax.base.limits import Positive, PositiveShare, require
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.head_specs import text_inputs
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.models.heads.replaced_tokens import Discriminator
from bertjax.objectives.masked_lm import MaskedLM, at_places
from bertjax.training.model import Arrays, Model, Params, Part
from bertjax.training.objective import LossWeights, Rngs

GENERATOR, DISCRIMINATOR = "generator", "discriminator"


@dataclasses.dataclass(frozen=True)
class ReplacedTokenDetection(MaskedLM):
    """A masked LM fills the masked places by samples, and the main model says which are wrong.

    Both learn at once, each by its own loss; no gradient goes through the samples. The encoder of
    `config.model` is the discriminator, which is the part that other programs open and export.

    Attributes:
      generator_width: the generator's share of the discriminator's hidden size, attention heads and
        feed-forward width.
      generator_layers: its share of the layers.
      discriminator_weight: the weight of the discriminator's loss (lambda); the generator's is 1.
      shared_embeddings: whether the generator has the discriminator's embeddings. Both must have
        the same width. ELECTRA's own encoders have `embedding_size` for it; others need
        generator_width=1.
      disentangled: whether of shared embeddings only the generator's loss changes the common
        table, to which the discriminator adds a table of its own (DeBERTaV3, arXiv 2111.09543,
        section 3.3).
    """

    generator_width: PositiveShare = 0.25
    generator_layers: PositiveShare = 1.0
    discriminator_weight: Positive = 50.0
    shared_embeddings: bool = True
    disentangled: bool = False

    name = "electra"
    head_type = head_types.REPLACED_TOKENS
    exported = DISCRIMINATOR
    others = {GENERATOR: head_types.MASKED_LM}
    columns = (*MaskedLM.columns, "disc_loss", "disc_accuracy", "sampled_accuracy")

    def __post_init__(self):
        super().__post_init__()
        fits = self.shared_embeddings or not self.disentangled
        require(fits, self, "disentangled", "needs shared_embeddings=True")

    @property
    def loss_weights(self) -> dict[str, float]:
        return super().loss_weights | {"disc_loss": self.discriminator_weight}

    def generator_spec(self, spec: EncoderSpec) -> EncoderSpec:
        """The generator's spec; ValueError if there is none, or it cannot share the embeddings."""

        def scaled(field: str, share: float) -> int:
            return max(1, round(getattr(spec, field) * share))

        width = self.generator_width
        sizes = {"num_hidden_layers": scaled("num_hidden_layers", self.generator_layers)}
        for field in ("hidden_size", "num_attention_heads", "intermediate_size"):
            sizes[field] = scaled(field, width)
        try:
            generator = dataclasses.replace(spec, **sizes)
        except ValueError as error:
            raise ValueError(
                f"generator_width={width}: of the generator, {error}: set another width"
            ) from error
        widths = [each.embedding_width for each in (spec, generator)]
        problem = (
            f"the embeddings of the generator would be {widths[1]} wide and those of the "
            f"discriminator {widths[0]}, so that they cannot be shared: set generator_width=1 (and "
            "generator_layers to less), shared_embeddings=False, or config.model.encoder="
            "'electra', whose embeddings have a width of their own"
        )
        fits = not self.shared_embeddings or widths[0] == widths[1]
        require(fits, self, "generator_width", problem)
        return generator

    def check(self, spec: EncoderSpec) -> None:
        """Also checks that there is a generator for the spec."""
        super().check(spec)
        self.generator_spec(spec)

    def module(self, spec: EncoderSpec) -> nn.Module:
        """The discriminator."""
        return Discriminator(spec)

    def model(self, spec: EncoderSpec) -> Model:
        """The generator and the discriminator."""
        generator, inputs = self.generator_spec(spec), text_inputs(spec, B=1, S=8)
        masked_lm = Part(PreTrainingModel(generator, next_sentence=False), inputs)
        discriminator = Part(self.module(spec), inputs)
        path = f"{spec.encoder}/embeddings"
        if self.disentangled:
            discriminator = dataclasses.replace(discriminator, added={path: GENERATOR})
        elif self.shared_embeddings:
            masked_lm = dataclasses.replace(masked_lm, shared={path: DISCRIMINATOR})
        return Model({GENERATOR: masked_lm, DISCRIMINATOR: discriminator})

    def outputs(self, model: Model, params: Params, batch: Arrays, rngs: Rngs) -> Arrays:
        """The generator's "masked_lm" [B, P, V]; "replaced" [B, S] of the text with its samples.

        Also "sampled_ids" [B, P], and "is_replaced" [B, S]: 1 on the tokens that are not the
        text's. A sample that is the text's own token counts as not replaced (section 2).
        """
        logits = model(params, batch, rngs.dropout(0), GENERATOR)["masked_lm"]
        with jax.named_scope("samples"):
            noise = jax.random.gumbel(rngs.draw("samples"), logits.shape)
            sampled = jax.lax.stop_gradient(logits + noise).argmax(-1).astype(jnp.int32)
            ids, labels = batch["input_ids"], batch["masked_lm_ids"]
            wrong = (sampled != labels).astype(jnp.int32)
            text = {**batch, "input_ids": at_places(batch, sampled, ids)}
            is_replaced = at_places(batch, wrong, jnp.zeros_like(ids))
        return {
            "masked_lm": logits,
            "sampled_ids": sampled,
            "is_replaced": is_replaced,
            **model(params, text, rngs.dropout(1), DISCRIMINATOR),
        }

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """Adds 1 on each token of the text, special ones too (section 3.1)."""
        return super().weights(batch) | {"disc_loss": batch["input_mask"].astype(jnp.float32)}

    def values(self, outputs: Arrays, batch: Arrays) -> dict[str, dict[str, jax.Array]]:
        """Adds the discriminator's values, and "sampled_accuracy": whether samples are right."""
        logits, replaced = outputs["replaced"], outputs["is_replaced"]
        values = super().values(outputs, batch)
        sampled = outputs["sampled_ids"] == batch["masked_lm_ids"]
        values["mlm_loss"]["sampled_accuracy"] = sampled.astype(jnp.float32)
        signs = jnp.where(replaced > 0, -logits, logits)
        values["disc_loss"] = {
            "disc_loss": jax.nn.softplus(signs),
            "disc_accuracy": ((logits > 0) == (replaced > 0)).astype(jnp.float32),
        }
        return values

    def flops_per_token(
        self, spec: EncoderSpec, length: int, predicted: int, context: float | None = None
    ) -> float:
        """The sum of both models; of the discriminator's head, the dense layer counts."""
        generator = self.generator_spec(spec).flops_per_token(length, predicted, context)
        return generator + spec.flops_per_token(length, 0, context) + 6.0 * spec.hidden_size**2
