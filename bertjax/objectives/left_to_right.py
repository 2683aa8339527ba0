"""Every token of one span from those before it (Table 5, "LTR & No NSP")."""

from bertjax.encoders import kinds
from bertjax.examples.corruption import NextTokens
from bertjax.examples.layout import SINGLE_SPANS
from bertjax.heads.pretraining import PreTrainingModel
from bertjax.objectives.cross_entropy import perplexity, token_values
from bertjax.objectives.objective import PretrainingObjective


class LeftToRight(PretrainingObjective):
    """A language model."""

    name = "left_to_right"
    layout = SINGLE_SPANS
    causal = True
    kind = kinds.CAUSAL_LM
    loss_weights = {"mlm_loss": 1.0}
    columns = ("mlm_loss", "mlm_perplexity", "mlm_accuracy")

    def corruption(self, rule):
        """Nothing is hidden."""
        del rule
        return NextTokens()

    def model(self, spec):
        """With the masked-LM head, which predicts at every position."""
        return PreTrainingModel(spec, next_sentence=False)

    def weights(self, batch):
        """1 on each token that another follows."""
        return {"mlm_loss": batch["target_weights"]}

    def values(self, outputs, batch):
        """Compares "masked_lm" [B, S, V] with the next tokens."""
        return {"mlm_loss": token_values(outputs["masked_lm"], batch["target_ids"])}

    def derived(self, metrics):
        """The perplexity."""
        return {"mlm_perplexity": perplexity(metrics["mlm_loss"])}


LEFT_TO_RIGHT = LeftToRight()
