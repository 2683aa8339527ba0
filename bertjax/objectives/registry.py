"""Every objective, by its name: a line for each."""

from bertjax.objectives.both_directions import BothDirections
from bertjax.objectives.classification import (
    ANSWER_NETWORK,
    MULTIPLE_CHOICE,
    SEQUENCE_CLASSIFICATION,
    TAG_SEQUENCE,
    TOKEN_CLASSIFICATION,
)
from bertjax.objectives.distillation import Distillation
from bertjax.objectives.electra import ReplacedTokenDetection
from bertjax.objectives.fine_tuning import TaskObjective
from bertjax.objectives.hybrid import Hybrid
from bertjax.objectives.left_to_right import LeftToRight
from bertjax.objectives.masked_lm import MaskedLM, MaskedLMNextSentence
from bertjax.objectives.multi_label import MULTI_LABEL
from bertjax.objectives.objective import PretrainingObjective
from bertjax.objectives.permutation import PermutationLM
from bertjax.objectives.question_answering import QUESTION_ANSWERING
from bertjax.objectives.regression import REGRESSION

# `config.objective.name` of pre-training.
_OBJECTIVES = (
    *(MaskedLMNextSentence, MaskedLM, LeftToRight, Hybrid),
    *(ReplacedTokenDetection, Distillation, PermutationLM, BothDirections),
)
OBJECTIVES: dict[str, type[PretrainingObjective]] = {
    objective.name: objective for objective in _OBJECTIVES
}

# `Family.objective` of fine-tuning (`bertjax.tasks.task`), each without settings.
TASK_OBJECTIVES: dict[str, TaskObjective] = {
    objective.name: objective
    for objective in (
        SEQUENCE_CLASSIFICATION,
        ANSWER_NETWORK,
        MULTI_LABEL,
        REGRESSION,
        MULTIPLE_CHOICE,
        TOKEN_CLASSIFICATION,
        TAG_SEQUENCE,
        QUESTION_ANSWERING,
    )
}
