"""A family as a fine-tuned model remembers it, so that new text is put to it as in training."""

import dataclasses
from typing import Any

from bertjax.base.errors import InputError
from bertjax.encoders import kinds
from bertjax.interop.pretrained import Pretrained
from bertjax.tasks.choice import MultipleChoice
from bertjax.tasks.classification import Classification, Regression
from bertjax.tasks.question_answering import QuestionAnswering
from bertjax.tasks.table import Table
from bertjax.tasks.tagging import Tagging
from bertjax.tasks.task import Family, Task

_PROBLEM_TYPES = {  # transformers' words for what it does with a sequence's logits
    "single_label_classification": Classification,
    "regression": Regression,
}
_FAMILIES = {
    kinds.MULTIPLE_CHOICE: MultipleChoice,
    kinds.TOKEN_CLASSIFICATION: Tagging,
    kinds.QUESTION_ANSWERING: QuestionAnswering,
}
_QUESTIONS_LENGTH = 384  # of a window, where a model does not say: that of `run_squad.py`


def remembered(family: Family, max_length: int) -> dict[str, Any]:
    """Makes the content of `Pretrained.task`, which `family_of` reads."""
    fields = dataclasses.asdict(family)
    fields.pop("classes", None)  # a model has them besides
    kinds = {known.objective: kind for kind, known in _PROBLEM_TYPES.items()}
    kind = kinds.get(family.objective)
    return ({"problem_type": kind} if kind else {}) | {"max_length": max_length} | fields


def about_task(task: Task, max_length: int) -> dict[str, Any]:
    """Makes the content of `Pretrained.task` for a model of this task.

    "columns" has the fields of new text that have another name in the user's table.
    """
    columns = task.columns if isinstance(task, Table) else {}
    about = remembered(task.family, max_length) | {"name": task.name}
    return about | ({"columns": columns} if columns else {})


def family_of(pretrained: Pretrained) -> tuple[Family, int]:
    """How new text is put to a fine-tuned model, and the tokens of its longest sequence.

    Raises:
      InputError: a model without the head of a task, or with one of another kind.
    """
    task = pretrained.task
    if pretrained.kind == kinds.SEQUENCE_CLASSIFICATION:
        kind = task["problem_type"]
        if kind not in _PROBLEM_TYPES:
            raise InputError(
                f"{pretrained.origin}: problem_type={kind!r}: must be one of "
                f"{', '.join(_PROBLEM_TYPES)}"
            )
        if kind == "regression" and len(pretrained.classes) != 1:
            raise InputError(
                f"{pretrained.origin}: a regression to {len(pretrained.classes)} numbers; only "
                "those to one are served"
            )
        family = _PROBLEM_TYPES[kind]
    elif pretrained.kind in _FAMILIES:
        family = _FAMILIES[pretrained.kind]
    else:
        classes = pretrained.family.hugging_face.classes
        with_heads = (classes[kind] for kind in (kinds.SEQUENCE_CLASSIFICATION, *_FAMILIES))
        raise InputError(
            f"{pretrained.origin}: {pretrained.class_name} has no head of a task: give one of "
            f"{', '.join(with_heads)}, as launch/finetune_*.py makes them"
        )
    own = {field.name for field in dataclasses.fields(family) if field.init}
    fields = {name: value for name, value in task.items() if name in own and value is not None}
    if "classes" in own:
        fields["classes"] = pretrained.classes
    longest = pretrained.spec.max_position_embeddings
    given = task.get("max_length")
    max_length = longest if given is None else given
    if not 3 <= max_length <= longest:
        raise InputError(
            f"{pretrained.origin}: max_length={max_length}: must be from 3 to {longest}, the "
            "positions it has"
        )
    if family is QuestionAnswering and given is None:
        # Another's model: windows as in `run_squad.py`, or what its positions leave room for.
        max_length = min(max_length, _QUESTIONS_LENGTH)
        query = min(QuestionAnswering.max_query_length, (max_length - 3) // 3)
        stride = min(QuestionAnswering.stride, max_length - 3 - query)
        fields |= {"max_query_length": query, "stride": stride}
    return family(**fields), max_length
