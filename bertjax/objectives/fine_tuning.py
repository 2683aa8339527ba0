"""The base class of the objectives of fine-tuning (section 4)."""

from bertjax.base.fields import Field
from bertjax.training.model import Arrays
from bertjax.training.objective import LossWeights, Objective

IS_REAL = {"is_real_example": Field("B", "float32")}  # 0 on rows that fill up a batch


class TaskObjective(Objective):
    """An objective with the labels of a task; a batch without labels is for prediction.

    Its loss is "task_loss". All but a regression also have the metric "accuracy".

    Attributes:
      kind: the model that learns it: one of `bertjax.encoders.kinds`.
      of_tokens: whether the outputs have a place for each token of a sequence.
      has_classes: whether the output layer has a row for each class.
    """

    kind: str
    loss_weights = {"task_loss": 1.0}
    of_tokens: bool = False
    has_classes: bool = True

    def weights(self, batch: Arrays) -> dict[str, LossWeights]:
        """1 on each example."""
        return {"task_loss": batch["is_real_example"]}
