"""Every objective of pre-training, by its name: a line for each."""

from bertjax.objectives.both_directions import BothDirections
from bertjax.objectives.distillation import Distillation
from bertjax.objectives.electra import ReplacedTokenDetection
from bertjax.objectives.hybrid import Hybrid
from bertjax.objectives.left_to_right import LeftToRight
from bertjax.objectives.masked_lm import MaskedLM, MaskedLMNextSentence
from bertjax.objectives.objective import PretrainingObjective
from bertjax.objectives.permutation import PermutationLM

# `config.objective.name` of pre-training.
_OBJECTIVES = (
    *(MaskedLMNextSentence, MaskedLM, LeftToRight, Hybrid),
    *(ReplacedTokenDetection, Distillation, PermutationLM, BothDirections),
)
OBJECTIVES: dict[str, type[PretrainingObjective]] = {
    objective.name: objective for objective in _OBJECTIVES
}
