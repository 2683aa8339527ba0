"""Random sequences of every family, and a model that is small enough to train in seconds."""

import numpy as np

from bertjax.models.encoders.presets import BertSpec
from bertjax.tasks.choice import MultipleChoice
from bertjax.tasks.classification import AnsweredPairs, Classification, Regression
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.multi_label import MultiLabel
from bertjax.tasks.question_answering import QuestionAnswering
from bertjax.tasks.tagging import Tagging
from bertjax.tasks.task import Family

LONGEST = 40
SPEC = BertSpec(
    vocab_size=61,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=40,
    max_position_embeddings=LONGEST,
    initializer_range=0.3,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
FAMILIES: dict[str, Family] = {
    "classification": Classification(("no", "maybe", "yes")),
    "answers": AnsweredPairs(("no", "maybe", "yes"), True, steps=3, step_dropout=0.0),
    "labels": MultiLabel(("no", "maybe", "yes")),
    "regression": Regression(),
    "choice": MultipleChoice(3),
    "tagging": Tagging(("O", "B", "I")),
    "questions": QuestionAnswering(),
}


def random_sequences(family: Family, examples: int, seed: int = 0) -> Encoded:
    """Labelled examples of 3 to `LONGEST` tokens, classified at many tokens or at few."""
    rng = np.random.default_rng(seed)
    choices = getattr(family, "choices", 1)
    lengths = rng.integers(3, LONGEST + 1, examples * choices)
    lengths[rng.integers(len(lengths))] = LONGEST
    sequences = [
        (
            rng.integers(1, SPEC.vocab_size, length).tolist(),
            (np.arange(length) >= rng.integers(1, length + 1)).tolist(),
        )
        for length in lengths
    ]
    starts, ends = rng.integers(0, 1000, (2, examples)) % lengths.reshape(examples, -1).min(1)
    tokens = rng.integers(0, 3, lengths.sum())
    classified = rng.random(lengths.sum()) < np.repeat(rng.random(len(lengths)), lengths)
    labels = {
        "classification": {"label_ids": rng.integers(0, 3, examples)},
        "labels": {"targets": rng.integers(0, 2, (examples, 3))},
        "regression": {"targets": rng.normal(size=examples)},
        "choice": {"label_ids": rng.integers(0, 3, examples)},
        "tagging": {"label_ids": np.where(classified, tokens, -1)},
        "questions": {"start_positions": starts, "end_positions": ends},
        "answers": {"label_ids": rng.integers(0, 3, examples)},
    }[next(name for name, each in FAMILIES.items() if each == family)]
    kinds = {name: np.float32 if name == "targets" else np.int32 for name in labels}
    labels = {name: array.astype(kinds[name]) for name, array in labels.items()}
    second = np.array([types.count(False) for _, types in sequences])
    return Encoded.of(sequences, labels, choices=choices, second=second)
