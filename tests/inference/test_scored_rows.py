"""The rows of a batch: what is masked, and what the targets are."""

import numpy as np
import pytest

from bertjax.inference.scored_rows import MaskedRows, WholeRows
from bertjax.tasks.encoded import Encoded
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn

WORDS = [["the", " catalogs", " ran", "!"], [" 49"], ["no", ",", " no", "!"]]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """Of byte-level BPE, in which the piece before decides, too, whether a word goes on."""
    path = tmp_path_factory.mktemp("bpe") / "bpe.json"
    sentences = [f"the log {n} ran on and no cat, no dog!" for n in range(40)]
    learn("bpe", sentences, path, size=290, cased=True)
    return Tokenizer.open(path)


@pytest.fixture(scope="module")
def sentences(tokenizer) -> tuple[Encoded, list[list[int]]]:
    """The sentences, and how many pieces each of their words has."""
    ids = [tokenizer.encode(words) for words in WORDS]
    encoded = Encoded.of((tokenizer.template.sequence(sum(each, [])) for each in ids), {})
    joined = tokenizer.encode(["".join(words) for words in WORDS])
    assert joined == [sum(each, []) for each in ids]
    return encoded, [list(map(len, each)) for each in ids]


@pytest.mark.parametrize("masking", ["token", "word"])
def test_a_token_is_masked_with_the_rest_of_its_word(tokenizer, sentences, masking):
    encoded, sizes = sentences
    rows = MaskedRows(encoded, tokenizer, masking)
    expected = []  # (sentence, first masked place, last masked place)
    for sentence, words in enumerate(sizes):
        place = 1
        for size in words:
            ends = range(place, place + size) if masking == "token" else [place + size - 1] * size
            expected += [(sentence, place + n, end) for n, end in enumerate(ends)]
            place += size
    assert max(map(max, sizes)) > 2
    assert rows.sentence.tolist() == [sentence for sentence, _, _ in expected]

    numbers = np.random.default_rng(0).permutation(len(expected))[:-2]
    length = int(encoded.lengths.max()) + 3
    batch = rows.batch(numbers, len(expected), length)
    for row, number in enumerate(numbers):
        sentence, first, last = expected[number]
        ids = encoded.ids[encoded.starts[sentence] : encoded.starts[sentence + 1]]
        masked = ids.copy()
        masked[first : last + 1] = tokenizer.mask_id
        assert batch["input_ids"][row].tolist() == [
            *masked.tolist(),
            *[tokenizer.pad_id] * (length - len(ids)),
        ]
        assert batch["input_mask"][row].sum() == len(ids)
        assert batch["masked_lm_positions"][row].tolist() == [first]
        assert batch["target_ids"][row].tolist() == [ids[first]]
    assert batch["target_weights"].shape == (len(expected), 1)
    assert not batch["input_mask"][len(numbers) :].any()


def test_left_to_right_the_targets_are_those_of_the_text_alone(tokenizer, sentences):
    encoded, sizes = sentences
    rows = WholeRows(encoded, tokenizer)
    batch = rows.batch(np.array([2, 1]), 4, 30)
    for row, number in enumerate([2, 1]):
        ids = encoded.ids[encoded.starts[number] : encoded.starts[number + 1]]
        scored = batch["target_weights"][row].astype(bool)
        assert np.flatnonzero(scored).tolist() == list(range(sum(sizes[number])))
        assert batch["target_ids"][row, scored].tolist() == ids[1:-1].tolist()
        assert batch["input_ids"][row, : len(ids)].tolist() == ids.tolist()
    assert not batch["target_weights"][2:].any()
