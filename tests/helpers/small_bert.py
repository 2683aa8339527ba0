"""A small odd-sized BERT and its batches, as fixtures of all tests."""

import numpy as np
import pytest

from bertjax.models.encoders.presets import BertSpec

VOCABULARY, LENGTH = 97, 13


@pytest.fixture(scope="session")
def spec() -> BertSpec:
    """Odd in every size, with weights large enough that every array matters; no dropout."""
    return BertSpec(
        vocab_size=VOCABULARY,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=56,
        max_position_embeddings=LENGTH,
        initializer_range=0.2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


@pytest.fixture(scope="session")
def make_batch():
    """A batch for both tasks, whose rows have from 1 to `length` tokens."""

    def make(rows: int = 6, length: int = LENGTH, predicted: int = 4, seed: int = 0):
        rng = np.random.default_rng(seed)
        lengths = np.linspace(1, length, rows).astype(int)
        inside = np.arange(length) < lengths[:, None]
        ids = np.where(inside, rng.integers(1, VOCABULARY, (rows, length)), 0)
        segments = np.where(inside, np.arange(length) >= lengths[:, None] // 2, 0)
        used = (
            np.arange(predicted)
            < np.minimum(lengths, rng.integers(1, predicted + 1, rows))[:, None]
        )
        positions = np.sort(
            rng.permuted(np.broadcast_to(np.arange(length), (rows, length)), axis=1)
        )
        positions = np.where(used, positions[:, :predicted] % lengths[:, None], 0)
        return {
            "input_ids": ids.astype(np.int32),
            "input_mask": inside.astype(np.int32),
            "token_type_ids": segments.astype(np.int32),
            "masked_lm_positions": positions.astype(np.int32),
            "masked_lm_ids": np.where(used, rng.integers(1, VOCABULARY, used.shape), 0).astype(
                np.int32
            ),
            "masked_lm_weights": used.astype(np.float32),
            "next_sentence_labels": rng.integers(0, 2, rows).astype(np.int32),
        }

    return make
