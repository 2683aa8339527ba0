"""The family of a fine-tuned model, which is saved with it and reads new text."""

import dataclasses
from typing import Any

from bertjax.base.checks import check_choice, check_range, input_error_at
from bertjax.base.errors import InputError
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.sentence_transformers import ACTIVATION
from bertjax.models.encoders import head_types
from bertjax.tasks.choice import MultipleChoice
from bertjax.tasks.classification import AnsweredPairs, Classification, Regression
from bertjax.tasks.multi_label import MultiLabel
from bertjax.tasks.question_answering import QuestionAnswering
from bertjax.tasks.table import Table
from bertjax.tasks.tagging import Tagging, TagSequences
from bertjax.tasks.task import Family, Task

# By transformers' problem_type, which says what it does with a sequence's logits.
_PROBLEM_TYPES: dict[str, type[Classification | MultiLabel | Regression]] = {
    "single_label_classification": Classification,
    "multi_label_classification": MultiLabel,
    "regression": Regression,
}
_FAMILIES: dict[str, type[AnsweredPairs | MultipleChoice | Tagging | QuestionAnswering]] = {
    head_types.ANSWER_NETWORK: AnsweredPairs,
    head_types.MULTIPLE_CHOICE: MultipleChoice,
    head_types.TOKEN_CLASSIFICATION: Tagging,
    head_types.TAG_SEQUENCE: TagSequences,
    head_types.QUESTION_ANSWERING: QuestionAnswering,
}
RERANKER = "reranker"
# The loss that a reranker has learned by -> what the number is that it predicts.
_REFERENCE = "reference"  # the loss of a `CrossEncoder` of sentence-transformers
_VALUES = {
    "binary": "it is a logit: 1 / (1 + exp(-value)) is the probability that they do",
    "squared": "it is on the scale of the scores that were learned",
    _REFERENCE: "it is the output before the activation of sentence-transformers' CrossEncoder",
}
_QUESTIONS_LENGTH = 384  # of a window, if the model gives none; from `run_squad.py`


def remembered(family: Family, max_length: int) -> dict[str, Any]:
    """Makes the content of `Pretrained.task`, which `task_family_of` reads."""
    fields = dataclasses.asdict(family)
    fields.pop("classes", None)  # `Pretrained.classes` has them
    head_types = {known.objective: head_type for head_type, known in _PROBLEM_TYPES.items()}
    head_type = head_types.get(family.objective)
    return ({"problem_type": head_type} if head_type else {}) | {"max_length": max_length} | fields


def about_task(task: Task, max_length: int) -> dict[str, Any]:
    """Makes the content of `Pretrained.task` for a model of this task.

    "columns" has the fields of new text that have another name in the user's table.
    """
    columns = task.columns if isinstance(task, Table) else {}
    about = remembered(task.family, max_length) | {"name": task.name}
    return about | ({"columns": columns} if columns else {})


def about_reranker(max_length: int, loss: str) -> dict[str, Any]:
    """The same for a reranker, which reads pairs of texts; `loss` names that which it learns by."""
    return {**remembered(Regression(pairs=True), max_length), "name": RERANKER, "loss": loss}


def _loss_of_reranker(pretrained: Pretrained) -> str | None:
    """The loss that a reranker has learned by; None: it is no reranker."""
    task = pretrained.task
    if task.get("name") == RERANKER:
        return task.get("loss", "")
    is_reranker = len(pretrained.classes) == 1 and "max_length" not in task
    return _REFERENCE if is_reranker and pretrained.kept.get(ACTIVATION) else None


def in_words(pretrained: Pretrained) -> str:
    """Says what the predictions of a model mean, where their names do not; else ""."""
    loss = _loss_of_reranker(pretrained)
    if loss is None:
        return ""
    scale = _VALUES.get(loss, "it compares the passages of one query")
    return f"  value: the greater, the more the texts belong together; {scale}"


def task_family_of(pretrained: Pretrained) -> tuple[Family, int]:
    """How a fine-tuned model reads new text, and the tokens of its longest sequence.

    Raises InputError if the model has no head of a task, or one that bertjax does not serve.
    """
    task = pretrained.task
    family: type[
        Classification | MultiLabel | Regression | MultipleChoice | Tagging | QuestionAnswering
    ]
    if pretrained.head_type == head_types.SEQUENCE_CLASSIFICATION:
        head_type = pretrained.problem_type
        check_choice(f"{pretrained.origin}: problem_type", head_type, _PROBLEM_TYPES)
        if head_type == "regression" and len(pretrained.classes) != 1:
            raise InputError(
                f"{pretrained.origin}: a regression to {len(pretrained.classes)} numbers; only "
                "those to one are served"
            )
        family = _PROBLEM_TYPES[head_type]
    elif pretrained.head_type in _FAMILIES:
        family = _FAMILIES[pretrained.head_type]
    else:
        classes = pretrained.names.classes
        known = (head_types.SEQUENCE_CLASSIFICATION, *_FAMILIES)
        with_heads = ", ".join(classes[head_type] for head_type in known if head_type in classes)
        raise InputError(
            f"{pretrained.origin}: {pretrained.class_name} has no head of a task: give one of "
            f"{with_heads or 'the models that read pieces'}, as launch/finetune.py makes them"
        )
    field_names = {field.name for field in dataclasses.fields(family) if field.init}
    fields = {
        name: value for name, value in task.items() if name in field_names and value is not None
    }
    if _loss_of_reranker(pretrained) is not None:
        fields["pairs"] = True
    if "classes" in field_names:
        fields["classes"] = pretrained.classes
    longest = pretrained.spec.max_position_embeddings
    saved_length = task.get("max_length")
    max_length = longest if saved_length is None else saved_length
    specials = pretrained.tokenizer.template.specials(pair=True)
    name, why = f"{pretrained.origin}: max_length", ", the positions it has"
    check_range(name, max_length, specials, longest, why)
    if family is QuestionAnswering and saved_length is None:
        # Not a model of bertjax: windows as in `run_squad.py`, or less if it has fewer positions.
        max_length = min(max_length, _QUESTIONS_LENGTH)
        query = min(QuestionAnswering.max_query_length, (max_length - specials) // 3)
        stride = min(QuestionAnswering.stride, max_length - specials - query)
        fields |= {"max_query_length": query, "stride": stride}
    with input_error_at(pretrained.origin):  # its file may have been changed
        return family(**fields), max_length
