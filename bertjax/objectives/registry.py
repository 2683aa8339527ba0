"""Every objective, by its name: a line for each."""

from bertjax.objectives.classification import (
    MULTIPLE_CHOICE,
    SEQUENCE_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
)
from bertjax.objectives.fine_tuning import TaskObjective
from bertjax.objectives.left_to_right import LEFT_TO_RIGHT, PACKED_LEFT_TO_RIGHT
from bertjax.objectives.masked_lm import (
    MASKED_LM,
    MASKED_LM_NEXT_SENTENCE,
    PACKED_MASKED_LM,
)
from bertjax.objectives.objective import PretrainingObjective
from bertjax.objectives.question_answering import QUESTION_ANSWERING
from bertjax.objectives.regression import REGRESSION

# `config.objective` of pre-training.
OBJECTIVES: dict[str, PretrainingObjective] = {
    objective.name: objective
    for objective in (
        MASKED_LM_NEXT_SENTENCE,
        MASKED_LM,
        LEFT_TO_RIGHT,
    )
}

# The same with `config.packed`: those that have a form for rows of packed documents.
PACKED_OBJECTIVES: dict[str, PretrainingObjective] = {
    objective.name: objective for objective in (PACKED_MASKED_LM, PACKED_LEFT_TO_RIGHT)
}

# `Family.objective` of fine-tuning (`bertjax.tasks.task`).
TASK_OBJECTIVES: dict[str, TaskObjective] = {
    objective.name: objective
    for objective in (
        SEQUENCE_CLASSIFICATION,
        REGRESSION,
        MULTIPLE_CHOICE,
        TOKEN_CLASSIFICATION,
        QUESTION_ANSWERING,
    )
}


def find_objective(objective: str, packed: bool = False) -> PretrainingObjective:
    """The objective of pre-training with a name.

    Args:
      packed: whether several documents stand in a row.

    Raises:
      ValueError: there is none.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective={objective!r}: must be one of {', '.join(OBJECTIVES)}")
    if packed and objective not in PACKED_OBJECTIVES:
        choices = ", ".join(PACKED_OBJECTIVES)
        raise ValueError(
            f"packed=True: objective={objective!r} cannot have packed documents: set packed=False, "
            f"or objective to one of {choices}"
        )
    return (PACKED_OBJECTIVES if packed else OBJECTIVES)[objective]
