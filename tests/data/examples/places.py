"""A store in which every token's id is its position, so that a batch shows where it came from."""

import types
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertjax.data.corpus.manifest import write_manifest
from bertjax.data.corpus.shards import HELDOUT, SPLITS, TRAIN, ShardWriter
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.batches import Examples, ExampleSpec
from bertjax.data.examples.masking import MaskingRule
from bertjax.objectives.masked_lm import MaskedLMNextSentence
from bertjax.objectives.objective import PretrainingObjective
from bertjax.text.template import Template

PAD, UNK, CLS, SEP, MASK = range(5)
FIRST = 5  # the id of the token at place 0; held-out text follows the training text

_RULE, _PAIRS = MaskingRule(), MaskedLMNextSentence()

Document = list[int]  # the lengths of its sentences


def some_documents(rng: np.random.Generator, count: int) -> list[Document]:
    """Documents of every kind: long, short, of one sentence, of huge sentences, of two tokens."""
    documents = []
    for _ in range(count):
        kind = rng.choice(6, p=[0.35, 0.25, 0.1, 0.1, 0.1, 0.1])
        documents.append(
            {
                0: lambda: rng.integers(3, 40, rng.integers(30, 120)),
                1: lambda: rng.integers(2, 12, rng.integers(1, 5)),
                2: lambda: rng.integers(2, 400, 1),
                3: lambda: rng.integers(200, 900, rng.integers(1, 4)),
                4: lambda: [2],
                5: lambda: [1, 1],
            }[int(kind)]()
        )
    return [[int(length) for length in document] for document in documents]


class Decoded(NamedTuple):
    """The content of a batch's rows, as positions; all int64 [R]."""

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray  # 0 without a span B
    b_length: np.ndarray
    ids: np.ndarray  # [R, S], with the masked tokens restored


class Corpus:
    """A store of positions, its fake tokenizer, and functions to make and read its batches.

    Args:
      folder: the folder of the store.
      sources: (name, weight, training documents, held-out documents).
      continues_word: the share of ids that continue a word.
    """

    def __init__(
        self,
        folder: Path,
        sources: list[tuple[str, float | None, list[Document], list[Document]]],
        continues_word: float = 0.0,
    ):
        splits = {split: [source[2 + i] for source in sources] for i, split in enumerate(SPLITS)}
        tokens = {s: sum(map(sum, sum(documents, []))) for s, documents in splits.items()}
        size = FIRST + sum(tokens.values())
        place = {TRAIN: FIRST, HELDOUT: FIRST + tokens[TRAIN]}
        shards = []
        for number in range(len(sources)):
            with ShardWriter(folder, number, vocabulary_size=size, unknown_id=UNK) as writer:
                for split in SPLITS:
                    for document in splits[split][number]:
                        ids = np.arange(place[split], place[split] + sum(document))
                        writer.add(split, ids, np.array(document), words=1)
                        place[split] += len(ids)
                shards.append(writer.finish(source=number))
        write_manifest(
            folder,
            sources=[source[:2] for source in sources],
            tokenizer_identity="places",
            vocabulary_size=size,
            held_out=0.1,
            shards=shards,
        )
        self.folder, self.train_tokens = folder, tokens[TRAIN]
        self.tokenizer = fake_tokenizer(size, continues_word)
        self.store = TokenStore.open(folder, TRAIN)

    def examples(
        self,
        length: int,
        split: str = TRAIN,
        objective: PretrainingObjective = _PAIRS,
        masking: MaskingRule = _RULE,
        **spec,
    ) -> Examples:
        """Examples of length `length`; `spec` are fields of ExampleSpec."""
        short = 0.1 if objective.layout.has_short_rows else 0.0
        spec = ExampleSpec(
            objective.layout,
            objective.corruption(masking),
            length,
            **dict(batch_size=512, seed=3, stream="x", short_probability=short) | spec,
        )
        return Examples(TokenStore.open(self.folder, split), self.tokenizer, spec)

    def document(self, place: np.ndarray) -> np.ndarray:
        """The number of the training document at a position."""
        return np.searchsorted(self.store.document_starts, place, side="right") - 1

    def sentence(self, place: np.ndarray) -> np.ndarray:
        """The number of the training sentence at a position."""
        return np.searchsorted(self.store.sentence_starts, place, side="right") - 1

    def source(self, place: np.ndarray) -> np.ndarray:
        """The number of the source at a position of the training text."""
        ends = [source.last_document_exclusive for source in self.store.sources]
        return np.searchsorted(ends, self.document(place), side="right")


def fake_tokenizer(size: int, continues_word: float = 0.0) -> types.SimpleNamespace:
    """A tokenizer with only the attributes that `Examples` uses, for ids that are positions."""
    continues = np.random.default_rng(0).random(size) < continues_word
    continues[:FIRST] = False
    return types.SimpleNamespace(
        identity="places",
        vocabulary_size=size,
        pad_id=PAD,
        sep_id=SEP,
        end_id=SEP,
        mask_id=MASK,
        template=Template((CLS,), (SEP,), (SEP,)),
        special_ids=(PAD, UNK, CLS, SEP, MASK),
        ordinary=np.arange(size) >= FIRST,
        continues_word=continues,
        word_links=None,
    )


def unmask(batch: dict[str, np.ndarray]) -> np.ndarray:
    """The input_ids int32 [R, S] with the masked tokens restored."""
    ids = batch["input_ids"].copy()
    if "masked_lm_ids" in batch:
        row, column = np.nonzero(batch["masked_lm_weights"])
        ids[row, batch["masked_lm_positions"][row, column]] = batch["masked_lm_ids"][row, column]
    return ids


def decode(batch: dict[str, np.ndarray]) -> Decoded:
    """Decodes a batch, and asserts [CLS] A [SEP] B [SEP] [PAD]... with contiguous A and B."""
    ids = unmask(batch)
    column = np.arange(ids.shape[1])
    length = batch["input_mask"].sum(1)[:, None]
    pairs = bool(batch["token_type_ids"].any())
    first = (ids == SEP).argmax(1)[:, None]  # where A ends
    np.testing.assert_array_equal(batch["input_mask"], column < length)
    np.testing.assert_array_equal(ids == PAD, column >= length)
    np.testing.assert_array_equal(ids == CLS, np.broadcast_to(column == 0, ids.shape))
    np.testing.assert_array_equal(ids == SEP, (column == first) | (column == length - 1))
    np.testing.assert_array_equal(batch["token_type_ids"], (column > first) & (column < length))
    assert (first == length - 1).all() != pairs
    in_a = (column >= 1) & (column < first)
    in_b = (column > first) & (column < length - 1)
    place = ids - np.int64(FIRST)
    a_start = place[:, 1]
    b_start = (
        np.take_along_axis(place, (first + 1) % ids.shape[1], 1)[:, 0] if pairs else a_start * 0
    )
    np.testing.assert_array_equal(place[in_a], (a_start[:, None] + column - 1)[in_a])
    np.testing.assert_array_equal(place[in_b], (b_start[:, None] + column - first - 1)[in_b])
    assert (ids[in_a | in_b] >= FIRST).all()
    return Decoded(a_start, in_a.sum(1), b_start, in_b.sum(1), ids)


def many(examples: Examples, steps: int) -> dict[str, np.ndarray]:
    """The rows of the first `steps` batches, joined."""
    made = [examples.batch(step) for step in range(steps)]
    return {name: np.concatenate([batch[name] for batch in made]) for name in made[0]}


def assert_rate(hits: int, trials: int, rate: float, sigmas: float = 5.0) -> None:
    """Asserts that `hits` of `trials` independent draws agree with a probability."""
    bound = sigmas * np.sqrt(trials * rate * (1 - rate)) + 1e-9
    assert abs(hits - trials * rate) <= bound, f"{hits} of {trials}, expected {trials * rate:.1f}"


def assert_uniform(counts: np.ndarray, sigmas: float = 5.0) -> None:
    """Asserts that counts agree with equally likely classes, by an approximate chi-square test."""
    freedom = counts.size - 1
    expected = counts.sum() / counts.size
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - freedom) <= sigmas * np.sqrt(2 * freedom), chi_square / freedom
