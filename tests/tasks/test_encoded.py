"""Encoded examples, and the arrays of their batches."""

import numpy as np

from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.tasks.encoded import IGNORED, Encoded
from bertjax.text.template import Template

_TEMPLATE = Template((2,), (3,), (3,))
_SEQUENCES = [_TEMPLATE.sequence(*texts) for texts in ([[11, 12], [13]], [[14]], [[15, 16]])]


def test_batch_of_texts():
    encoded = Encoded.of(_SEQUENCES, {"label_ids": np.array([7, 8, 9], np.int32)})
    assert (len(encoded), encoded.lengths.tolist()) == (3, [6, 3, 4])
    fields = TASK_LOSSES["sequence_classification"].fields
    batch = encoded.batch(fields, np.array([2, 0]), rows=3, length=7, pad_id=1)
    assert batch["input_ids"].tolist() == [
        [2, 15, 16, 3, 1, 1, 1],
        [2, 11, 12, 3, 13, 3, 1],
        [1, 1, 1, 1, 1, 1, 1],
    ]
    assert batch["input_mask"].sum(1).tolist() == [4, 6, 0]
    assert batch["token_type_ids"].tolist()[1] == [0, 0, 0, 0, 1, 1, 0]
    assert batch["token_type_ids"][[0, 2]].sum() == 0
    assert batch["is_real_example"].tolist() == [1, 1, 0]
    assert batch["label_ids"].tolist() == [9, 7, 0]
    for name, array in batch.items():
        assert array.dtype == fields[name].dtype


def test_texts_of_pairs_have_numbers():
    encoded = Encoded.of(_SEQUENCES[:1] * 3, {}, second=np.array([4, 1, 5]))
    batch = encoded.batch(
        TASK_LOSSES["answer_network"].fields, np.array([2, 0, 1]), rows=4, length=7, pad_id=1
    )
    assert batch["text_numbers"].tolist() == [
        [1, 1, 1, 1, 1, 2, 0],
        [1, 1, 1, 1, 2, 2, 0],
        [1, 2, 2, 2, 2, 2, 0],
        [0] * 7,
    ]
    assert batch["text_numbers"].dtype == TASK_LOSSES["answer_network"].fields["text_numbers"].dtype


def test_labels_of_tokens_are_padded_with_ignored():
    labels = np.arange(13, dtype=np.int32)
    encoded = Encoded.of(_SEQUENCES, {"label_ids": labels})
    batch = encoded.batch(
        TASK_LOSSES["token_classification"].fields, np.array([1]), rows=2, length=4, pad_id=0
    )
    assert batch["label_ids"].tolist() == [[6, 7, 8, IGNORED], [IGNORED] * 4]


def test_choices_are_rows_of_one_example():
    sequences = [([2, 10 + i] + [5] * i + [3], [0, 0] + [1] * (i + 1)) for i in range(6)]
    labels = {"label_ids": np.array([2, 0], np.int32)}
    encoded = Encoded.of(sequences, labels, choices=3)
    assert (len(encoded), encoded.lengths.tolist()) == (2, [5, 8])
    batch = encoded.batch(
        TASK_LOSSES["multiple_choice"].fields, np.array([1]), rows=2, length=9, pad_id=0
    )
    assert batch["input_ids"].shape == (2, 3, 9)
    assert batch["input_ids"][0, :, 1].tolist() == [13, 14, 15]
    assert batch["input_mask"][0].sum(1).tolist() == [6, 7, 8]
    assert batch["token_type_ids"][0].sum(1).tolist() == [4, 5, 6]
    assert batch["label_ids"].tolist() == [0, 0]
    assert set(batch) == set(TASK_LOSSES["multiple_choice"].fields)
