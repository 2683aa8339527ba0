"""The store of activations, and batches of words from it."""

import dataclasses
import errno
import json
import os

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.inference.features import activations
from bertjax.inference.features.activations import (
    CHOICES,
    WordFeatures,
    all_layers,
    chosen_layers,
    compute,
)
from bertjax.inference.features.compute import Extractor
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders.presets import BertSpec
from bertjax.models.encoders.transformer import Transformer
from bertjax.models.heads.head_specs import text_inputs
from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.tasks.tagging import Sentence, Tagging
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.model import zeros

CLASSES = ("O", "B-PER", "I-PER")
MAX_LENGTH, WIDTH, LAYERS = 16, 24, 3
LETTERS = "abcdefgh"


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> Pretrained:
    """A model of three layers of 24 with random weights, and a piece for each letter."""
    file = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    pieces = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    file.write_text("\n".join(pieces) + "\n")
    spec = BertSpec(
        vocab_size=len(pieces),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.3,
    )
    inputs = zeros(text_inputs(spec, B=1, S=8))
    boxed = jax.jit(lambda key: Transformer(spec).init(key, inputs, deterministic=True))(
        jax.random.key(0)
    )
    params = jax.tree.map(
        lambda box: np.asarray(box.value), boxed["params"], is_leaf=lambda x: hasattr(x, "value")
    )
    return Pretrained("random", "BertModel", spec, {"bert": params}, Tokenizer.open(file))


@pytest.fixture(scope="module")
def sentences() -> list[Sentence]:
    """Two documents of several windows each, and a single sentence."""
    rng = np.random.default_rng(0)
    result = []
    for document in [1] * 6 + [2] * 7 + [0]:
        letters = rng.choice(list(LETTERS), (rng.integers(1, 9), 3))
        words = tuple("".join(some[: rng.integers(1, 4)]) for some in letters)
        result.append(Sentence(words, tuple(rng.choice(CLASSES, len(words))), document, "here"))
    return result


@pytest.fixture(scope="module")
def encoded(pretrained, sentences):
    return Tagging(CLASSES).encode(sentences, pretrained.tokenizer, MAX_LENGTH, labelled=False)


@pytest.fixture(scope="module")
def expected(pretrained, encoded) -> np.ndarray:
    """The activations [layers, words, D], computed window by window."""
    bert = Transformer(pretrained.spec)
    forward = jax.jit(
        lambda params, batch: bert.apply(
            {"params": params}, batch, deterministic=True, method="hidden_states"
        )
    )
    tokens = []
    for window in range(len(encoded)):
        ids = np.full((1, MAX_LENGTH), pretrained.tokenizer.pad_id)
        some = encoded.ids[encoded.starts[window] : encoded.starts[window + 1]]
        ids[0, : len(some)] = some
        mask = (np.arange(MAX_LENGTH) < len(some)).astype(np.int32)[None]
        batch = {"input_ids": ids, "input_mask": mask, "token_type_ids": 0 * ids}
        states = forward(pretrained.params["bert"], batch)
        tokens.append(np.stack([state[0, : len(some)] for state in states]))
    return np.concatenate(tokens, 1)[:, encoded.words]


@pytest.mark.slow
def test_activations_of_every_word(pretrained, encoded, expected, tmp_path):
    found = compute(tmp_path / "store", "train", encoded, all_layers(pretrained, MAX_LENGTH))
    assert found.dtype == np.float16
    assert found.shape == (LAYERS + 1, len(encoded.words), WIDTH)
    np.testing.assert_allclose(found, expected, atol=4e-3)  # half of the last bit at 4 is 2e-3
    (file,) = (path for path in (tmp_path / "store").iterdir() if path.name != ".lock")
    assert file.name.startswith("train-") and file.suffix == ".npy"


def test_computed_once(pretrained, encoded, tmp_path, monkeypatch):
    extractor = all_layers(pretrained, MAX_LENGTH)
    first = compute(tmp_path, "dev", encoded, extractor)
    with monkeypatch.context() as patch:
        patch.setattr(Extractor, "vectors", lambda *_: pytest.fail("computed again"))
        np.testing.assert_array_equal(compute(tmp_path, "dev", encoded, extractor), first)

    # Other words, windows or weights give another file.
    ids = np.where(encoded.ids == 5, 6, encoded.ids)
    other = compute(tmp_path, "dev", dataclasses.replace(encoded, ids=ids), extractor)
    assert np.abs(other - first).max() > 0.1
    params = jax.tree.map(lambda x: x * 1.1, pretrained.params)
    scaled = all_layers(dataclasses.replace(pretrained, params=params), MAX_LENGTH)
    assert np.abs(compute(tmp_path, "dev", encoded, scaled) - first).max() > 0.1
    assert len(list(tmp_path.glob("dev-*.npy"))) == 3


def test_damaged_activations_are_refused(pretrained, encoded, tmp_path):
    extractor = all_layers(pretrained, MAX_LENGTH)
    compute(tmp_path, "dev", encoded, extractor)
    (file,) = tmp_path.glob("dev-*.npy")
    content = file.read_bytes()
    flipped = content[:-7] + bytes([content[-7] ^ 4]) + content[-6:]
    for damaged in (flipped, content[:-2], b""):
        file.write_bytes(damaged)
        with pytest.raises(InputError, match=rf"{file}: damaged \(.*\): remove it and repeat"):
            compute(tmp_path, "dev", encoded, extractor)
    file.unlink()
    compute(tmp_path, "dev", encoded, extractor)
    assert file.read_bytes() == content


@pytest.mark.slow
def test_goes_on_where_it_was_interrupted(pretrained, encoded, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(activations, "_BLOCK_BYTES", 4 * (LAYERS + 1) * WIDTH * 12)  # 12 words
    extractor, computed, vectors = all_layers(pretrained, MAX_LENGTH), [], Extractor.vectors

    def some(self, texts, progress):
        if sum(computed) > len(encoded) // 2 and interrupted:
            raise KeyboardInterrupt
        computed.append(len(texts))
        return vectors(self, texts, progress)

    monkeypatch.setattr(Extractor, "vectors", some)
    interrupted = True
    with pytest.raises(KeyboardInterrupt):
        compute(tmp_path, "train", encoded, extractor)
    assert not list(tmp_path.glob("*.npy"))
    (note,) = tmp_path.glob("*.json")
    assert json.loads(note.read_text()) == {"windows": sum(computed)}
    assert len(computed) > 1

    interrupted = False
    found = compute(tmp_path, "train", encoded, extractor)
    assert sum(computed) == len(encoded)
    np.testing.assert_allclose(found, expected, atol=4e-3)
    assert not list(tmp_path.glob("*.json")) + list(tmp_path.glob("*.partial"))


def test_a_full_disk_is_noticed_beforehand(pretrained, encoded, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(InputError, match="no room for [1-9][0-9.]* KiB of .*No space left"):
        compute(tmp_path, "train", encoded, all_layers(pretrained, MAX_LENGTH))
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_batches_of_words(pretrained, encoded, sentences, expected, tmp_path):
    store = compute(tmp_path, "train", encoded, all_layers(pretrained, MAX_LENGTH))
    family, layers = Tagging(CLASSES), (3, 1)
    words = WordFeatures.of_sentences(sentences, family, store, layers, labelled=True)
    assert len(words) == len(sentences)
    assert words.lengths.tolist() == [len(sentence.words) for sentence in sentences]

    numbers, length = np.array([7, 0, 13]), 8
    batch = words.batch(
        TASK_LOSSES["token_classification"].fields, numbers, 4, length, pretrained.tokenizer.pad_id
    )
    shapes = {name: (array.shape, array.dtype.name) for name, array in batch.items()}
    assert shapes == {
        "activations": ((4, length, 2, WIDTH), "float16"),
        "word_mask": ((4, length), "int32"),
        "label_ids": ((4, length), "int32"),
        "is_real_example": ((4,), "float32"),
    }
    ends = np.cumsum(words.lengths)
    for row, number in enumerate(numbers):
        size = words.lengths[number]
        some = slice(ends[number] - size, ends[number])
        for place, layer in enumerate(layers):
            found = batch["activations"][row, :size, place]
            np.testing.assert_allclose(found, expected[layer, some], atol=4e-3)
        assert not batch["activations"][row, size:].any()
        assert batch["word_mask"][row].tolist() == [1] * size + [0] * (length - size)
        tags = [CLASSES.index(tag) for tag in sentences[number].tags]
        assert batch["label_ids"][row].tolist() == tags + [-1] * (length - size)
    assert not batch["word_mask"][3].any()
    assert batch["is_real_example"].tolist() == [1, 1, 1, 0]

    # Outputs are decoded as in other tagging models.
    right = np.eye(len(CLASSES))[family.class_ids(sentences)].astype(np.float32)
    outputs = {"logits": np.split(right, ends[:-1])}
    found = map(family.tags, family.decode(sentences, words, outputs))
    assert list(found) == [each.tags for each in sentences]


def test_choices_of_table_7():
    assert {name: chosen_layers(choice, 12) for name, choice in CHOICES.items()} == {
        "embeddings": (0,),
        "second_to_last": (11,),
        "last": (12,),
        "weighted_sum_last_four": (9, 10, 11, 12),
        "concat_last_four": (9, 10, 11, 12),
        "weighted_sum_all": tuple(range(1, 13)),
        "mix_all": tuple(range(13)),
        "mix_all_twice": tuple(range(13)),
    }
    assert chosen_layers(CHOICES["last"], 1) == (1,)
    assert chosen_layers(CHOICES["concat_last_four"], 4) == (1, 2, 3, 4)
    with pytest.raises(InputError, match="4 layers chosen, but the model has 3"):
        chosen_layers(CHOICES["weighted_sum_last_four"], 3)
