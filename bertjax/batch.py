"""The contract between host and device: the arrays of one batch, for each objective.

The host makes them with numpy (`bertjax.examples.batches`, `bertjax.tasks.encoded`); the step
takes them as a dict of arrays. Field names are those of google-research/bert.
"""

from typing import NamedTuple


class Field(NamedTuple):
    """One array of a batch: a shape letter (see `bertjax.axes`) per dimension, and a dtype."""

    letters: str
    dtype: str


_INPUT = {
    "input_ids": Field("BS", "int32"),
    "input_mask": Field("BS", "int32"),  # 1 on tokens, 0 on padding
    "segment_ids": Field("BS", "int32"),  # 0 on [CLS] A [SEP], 1 on B [SEP]
}
_MASKED_LM = {
    "masked_lm_positions": Field("BP", "int32"),  # ascending; 0 where the weight is 0
    "masked_lm_ids": Field("BP", "int32"),  # the original tokens; 0 where the weight is 0
    "masked_lm_weights": Field("BP", "float32"),  # 1, or 0 on unused places
}

MASKED_LM_NEXT_SENTENCE = "masked_lm_next_sentence"
MASKED_LM = "masked_lm"
LEFT_TO_RIGHT = "left_to_right"

FIELDS = {
    # Section 3.1: both tasks of BERT.
    MASKED_LM_NEXT_SENTENCE: {
        **_INPUT,
        **_MASKED_LM,
        "next_sentence_labels": Field("B", "int32"),  # 0: B follows A; 1: B is random
    },
    # Table 5, "No NSP": one span, masked.
    MASKED_LM: {**_INPUT, **_MASKED_LM},
    # Table 5, "LTR & No NSP": one span, every token predicted from those before it.
    LEFT_TO_RIGHT: {
        **_INPUT,
        "target_ids": Field("BS", "int32"),  # the next token; 0 where the weight is 0
        "target_weights": Field("BS", "float32"),
    },
}
OBJECTIVES = tuple(FIELDS)

# Fine-tuning (section 4). A batch without labels is for prediction.
SEQUENCE_CLASSIFICATION = "sequence_classification"
REGRESSION = "regression"
MULTIPLE_CHOICE = "multiple_choice"
TOKEN_CLASSIFICATION = "token_classification"
QUESTION_ANSWERING = "question_answering"

_IS_REAL = {"is_real_example": Field("B", "float32")}  # 0 on rows that fill up a batch

TASK_FIELDS = {
    SEQUENCE_CLASSIFICATION: {**_INPUT, **_IS_REAL, "label_ids": Field("B", "int32")},
    REGRESSION: {**_INPUT, **_IS_REAL, "targets": Field("B", "float32")},
    MULTIPLE_CHOICE: {
        **{name: Field("BCS", "int32") for name in _INPUT},
        **_IS_REAL,
        "label_ids": Field("B", "int32"),
    },
    TOKEN_CLASSIFICATION: {
        **_INPUT,
        **_IS_REAL,
        "label_ids": Field("BS", "int32"),  # -1 on tokens that are not classified
    },
    QUESTION_ANSWERING: {
        **_INPUT,
        **_IS_REAL,
        "start_positions": Field("B", "int32"),  # both 0, [CLS], where there is no answer
        "end_positions": Field("B", "int32"),
    },
}
