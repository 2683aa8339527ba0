"""Packed documents: every token once an epoch, next to no padding, and no pair across documents."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.examples.masking import MaskingRule
from bertjax.data.examples.packing import Composition, pack
from bertjax.objectives.left_to_right import LeftToRight
from bertjax.objectives.masked_lm import MaskedLM
from tests.data.examples.places import CLS, FIRST, PAD, SEP, Corpus, assert_uniform, many, unmask

MASKED = dict(objective=MaskedLM("packed"))


# ------------------------------------------------------------------------ packing of lengths


def counts_of(lengths, size):
    return np.bincount(np.minimum(lengths, size), minlength=size + 1)


def gaps_piece_by_piece(lengths, size):
    """The free places of each row, sorted, by best fit with one piece at a time."""
    gaps = []
    for length in sorted(lengths, reverse=True):
        fitting = [gap for gap in gaps if gap >= length]
        if fitting:
            gaps.remove(min(fitting))
        gaps.append((min(fitting) if fitting else size) - length)
    return sorted(gaps)


def gaps_of(compositions, size):
    return sorted(
        size - sum(length * times for length, times in lengths)
        for lengths, rows in compositions
        for _ in range(rows)
    )


def test_packing_by_hand():
    """Rows of 10: 7 + 3 twice, a third 7 with the last 3, 4 + 4 twice, and the last 4 alone."""
    counts = np.zeros(11, int)
    counts[[7, 4, 3]] = 3, 5, 3
    assert sorted(pack(counts)) == [
        Composition(((4, 1),), 1),
        Composition(((4, 2),), 2),
        Composition(((7, 1), (3, 1)), 3),
    ]


@pytest.mark.parametrize("size, pieces", [(1, 5), (7, 40), (64, 300), (129, 700)])
def test_packing_is_best_fit(size, pieces):
    rng = np.random.default_rng(size)
    for lengths in (
        rng.integers(1, size + 1, pieces),
        np.maximum(rng.integers(1, size + 1, pieces) // 6, 1),
        np.minimum(rng.lognormal(np.log(size / 3), 1, pieces).astype(int) + 1, size),
        np.full(pieces, size // 3 + 1),
    ):
        compositions = pack(counts_of(lengths, size))
        packed = np.zeros(size + 1, int)
        for each, rows in compositions:
            for length, times in each:
                packed[length] += rows * times
        np.testing.assert_array_equal(packed, counts_of(lengths, size))
        assert gaps_of(compositions, size) == gaps_piece_by_piece(lengths.tolist(), size)


@pytest.mark.parametrize("size", [128, 512, 1024])
def test_next_to_no_padding(size):
    """Lengths like those of web pages: half have less than 545 tokens, a tenth over 2,500."""
    lengths = np.random.default_rng(0).lognormal(6.3, 1.2, 30_000).astype(int) + 2
    whole, rest = np.divmod(lengths, size - 2)
    pieces = np.concatenate([np.full(whole.sum(), size), rest[rest > 0] + 2])
    compositions = pack(counts_of(pieces, size))
    rows = sum(composition.rows for composition in compositions)
    padding = 1 - pieces.sum() / (rows * size)
    assert padding < 2e-4
    assert len(compositions) < 4 * size  # and so the tables are small


def test_nothing_to_pack():
    assert pack(np.zeros(9, int)) == []


# ------------------------------------------------------------------------------------- rows


def pieces_of(batch):
    """Decodes packed rows, and asserts [CLS] text [SEP] [CLS] text [SEP] ... [PAD]...

    Returns:
      int64 [T] each: the row, the position of the first token, and the number of tokens.
    """
    ids, documents = unmask(batch), batch["segment_ids"]
    lengths = batch["input_mask"].sum(1)
    inside = np.arange(ids.shape[1]) < lengths[:, None]
    np.testing.assert_array_equal(batch["input_mask"], inside)
    np.testing.assert_array_equal(ids == PAD, ~inside)
    np.testing.assert_array_equal(documents > 0, inside)
    assert not batch["token_type_ids"].any()
    edge = np.zeros((len(ids), 1), int)
    begins = inside & (np.diff(documents, axis=1, prepend=edge) != 0)
    ends = inside & (np.diff(documents, axis=1, append=edge) != 0)
    np.testing.assert_array_equal(documents, np.cumsum(begins, axis=1) * inside)  # 1, 2, ...
    np.testing.assert_array_equal(ids == CLS, begins)
    np.testing.assert_array_equal(ids == SEP, ends)
    text = inside & ~begins & ~ends
    follows = text[:, 1:] & text[:, :-1]
    assert (ids[text] >= FIRST).all() and (np.diff(ids, axis=1)[follows] == 1).all()
    (row, first), (_, last) = np.nonzero(begins), np.nonzero(ends)
    return row, ids[row, first + 1] - np.int64(FIRST), last - first - 1


def epoch_of(corpus, examples, number, source=0):
    """The rows of one epoch of a source."""
    packer = examples._lay_out.packer
    rows = np.diff(packer._source_rows)[source]
    index = np.arange(8192 * (1 + (number + 1) * rows // 1000))
    which, rank = packer._mixture.locate(index)
    chosen = index[(which == source) & (rank // rows == number)]
    assert len(chosen) == rows
    return examples._lay_out(chosen).arrays


@pytest.mark.parametrize("length", [5, 33, 128, 1024])
def test_an_epoch_has_every_token_once(corpus, length):
    examples = corpus.examples(length, **MASKED)
    ends = corpus.store.document_starts
    for number, source in enumerate(corpus.store.sources):
        all_lengths = []
        for epoch in (0, 1, 5):
            _, start, tokens = pieces_of(epoch_of(corpus, examples, epoch, number))
            order = np.argsort(start)
            start, tokens = start[order], tokens[order]
            # One after the other, they are the text of the source.
            assert start[0] == ends[source.first_document]
            np.testing.assert_array_equal(start[1:], (start + tokens)[:-1])
            assert (start + tokens)[-1] == ends[source.last_document_exclusive]
            # No piece has text of two documents, and documents that fit are whole.
            document = corpus.document(start)
            np.testing.assert_array_equal(document, corpus.document(start + tokens - 1))
            pieces = np.bincount(document)[source.first_document :]
            size = np.diff(ends)[source.first_document : source.last_document_exclusive]
            np.testing.assert_array_equal(pieces, -(-size // (length - 2)))
            all_lengths.append(np.sort(tokens))
        assert all((each == all_lengths[0]).all() for each in all_lengths)


def test_rows_are_full(long_documents, short_documents):
    for corpus, length, most in (
        (long_documents, 128, 0.003),
        (long_documents, 1024, 0.02),
        (short_documents, 128, 0.02),
        (short_documents, 1024, 0.006),  # 158 rows, of which the last is not full
    ):
        mask = epoch_of(corpus, corpus.examples(length, **MASKED), 0)["input_mask"]
        assert 1 - mask.mean() < most, (length, mask.mean())


def test_epochs_differ(long_documents, short_documents):
    """Rows come in another order, borders move, and pieces are next to other pieces."""
    examples = long_documents.examples(129, **MASKED)
    one, two = (pieces_of(epoch_of(long_documents, examples, epoch)) for epoch in (0, 1))
    first, other = (start[np.diff(row, prepend=-1) > 0] for row, start, _ in (one, two))
    assert (first == other).mean() < 0.01
    # A piece stays where the rest is before it, or after it, in both epochs: two in three do.
    assert 0.5 < np.isin(one[1], two[1]).mean() < 0.8

    examples = short_documents.examples(301, **MASKED)
    companions = []
    for epoch in (0, 1):
        row, start, _ = pieces_of(epoch_of(short_documents, examples, epoch))
        documents = np.split(short_documents.document(start), np.flatnonzero(np.diff(row)) + 1)
        companions.append({frozenset(each.tolist()) for each in documents if len(each) > 1})
    assert len(companions[0] & companions[1]) < 0.25 * len(companions[0])


def test_the_rest_of_a_document_is_anywhere(tmp_path):
    """A document of 3 pieces of 8 tokens and a rest of 5: the rest has four possible places."""
    corpus = Corpus(tmp_path / "c", [("a", None, [[29], [8]], [])])
    examples = corpus.examples(8 + 2, **MASKED)
    assert examples._lay_out.packer._source_rows[-1] == 5
    _, start, tokens = pieces_of(examples._lay_out(np.arange(5 * 4000)).arrays)
    rest = start[tokens == 5]
    assert len(rest) == 4000 and set(rest) == {0, 8, 16, 24}
    assert_uniform(np.bincount(rest // 8))


def test_pieces_of_a_length_meet_at_random(tmp_path):
    """Five documents of 6 tokens and five of 10 in rows of 20: all pairs are equally likely."""
    corpus = Corpus(tmp_path / "c", [("a", None, [[6], [10]] * 5, [])])
    examples = corpus.examples(20, **MASKED)
    row, start, _ = pieces_of(examples._lay_out(np.arange(5 * 4000)).arrays)
    document = corpus.document(start)
    assert (np.bincount(row) == 2).all()
    first, second = np.sort(document.reshape(-1, 2) % 2 * 100 + document.reshape(-1, 2)).T
    pairs = np.bincount(first // 2 * 5 + (second - 100) // 2, minlength=25)
    assert_uniform(pairs)
    # And each row of an epoch is as often each of the five.
    assert_uniform(np.bincount(first[::5] // 2, minlength=5))


def test_rows_come_in_another_order_in_every_epoch(tmp_path):
    """Five documents of 17 to 21 tokens in rows of 24: each is a row, and as often the first."""
    corpus = Corpus(tmp_path / "c", [("a", None, [[17], [18], [19], [20], [21]], [])])
    examples = corpus.examples(24, **MASKED)
    row, start, _ = pieces_of(examples._lay_out(np.arange(5 * 4000)).arrays)
    np.testing.assert_array_equal(row, np.arange(5 * 4000))
    epochs = corpus.document(start).reshape(-1, 5)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(np.arange(5), (4000, 1)))
    for place in range(5):
        assert_uniform(np.bincount(epochs[:, place], minlength=5))
    # The next epoch's first row does not depend on that of this one.
    assert_uniform(np.bincount(epochs[:-1, 0] * 5 + epochs[1:, 0], minlength=25))


def test_sources_come_by_their_shares(corpus):
    row, start, _ = pieces_of(many(corpus.examples(64, **MASKED), 16))
    source = corpus.source(start)
    of_row = np.zeros(8192, int)
    of_row[row] = source
    np.testing.assert_array_equal(of_row[row], source)  # a row has one source
    for block in of_row.reshape(2, 4096):
        assert np.bincount(block).tolist() == [2867, 1229]


# ---------------------------------------------------------------------- what is to be learned


@pytest.mark.parametrize("whole_words", [False, True])
def test_masked_places(long_documents, whole_words):
    """Their width is fixed over the row; words end where their document ends."""
    rule = MaskingRule(whole_words=whole_words)
    examples = long_documents.examples(257, masking=rule, batch_size=301, **MASKED)
    batch = examples.batch(4)
    pieces_of(batch)  # the text is complete when the masked tokens are restored
    assert batch["masked_lm_positions"].shape == (301, rule.width(257)) == (301, 39)
    ids, hidden = unmask(batch), np.zeros(batch["input_ids"].shape, bool)
    row, place = np.nonzero(batch["masked_lm_weights"])
    hidden[row, batch["masked_lm_positions"][row, place]] = True
    assert (ids[hidden] >= FIRST).all()
    np.testing.assert_array_equal(ids[~hidden], batch["input_ids"][~hidden])
    tokens = batch["input_mask"].sum()
    assert abs(hidden.sum() - 0.15 * tokens) < 301
    if whole_words:
        continues = long_documents.tokenizer.continues_word[ids]
        same = batch["segment_ids"][:, 1:] == batch["segment_ids"][:, :-1]
        joined = continues[:, 1:] & same & (ids[:, :-1] >= FIRST)
        assert joined.mean() > 0.25
        np.testing.assert_array_equal(hidden[:, 1:][joined], hidden[:, :-1][joined])


def test_masked_places_are_anywhere(short_documents):
    """Each token of a row of two documents has the same chance, whichever document it is in."""
    batch = many(short_documents.examples(200, batch_size=500, **MASKED), 10)
    batch = {name: array[batch["segment_ids"].max(1) == 2] for name, array in batch.items()}
    hidden = np.zeros(batch["input_ids"].shape, bool)
    row, place = np.nonzero(batch["masked_lm_weights"])
    hidden[row, batch["masked_lm_positions"][row, place]] = True
    text = unmask(batch) >= FIRST
    rate = hidden.sum() / text.sum()
    for number in (1, 2):
        there = text & (batch["segment_ids"] == number)
        assert there.sum() > 10_000
        share = hidden[there].mean() / rate
        assert abs(share - 1) < 0.05, number


def test_left_to_right_predicts_within_documents(corpus):
    batch = many(corpus.examples(64, objective=LeftToRight("packed")), 4)
    ids, target, weights = batch["input_ids"], batch["target_ids"], batch["target_weights"]
    pieces_of(batch)
    ends = ids == SEP
    np.testing.assert_array_equal(weights, (batch["input_mask"] == 1) & ~ends)
    np.testing.assert_array_equal(
        target[:, :-1][weights[:, :-1] == 1], ids[:, 1:][weights[:, :-1] == 1]
    )
    assert not target[weights == 0].any()
    assert (target[:, :-1][ends[:, 1:]] == SEP).all() and not (target == CLS).any()


# --------------------------------------------------------------------------------- bad input


def test_rows_that_are_too_short(corpus):
    with pytest.raises(InputError, match="the sequence length leaves room for 1 tokens"):
        corpus.examples(3, **MASKED)


def test_packed_rows_are_not_short(corpus):
    with pytest.raises(ValueError, match=r"short_probability=0\.2: must be 0, because"):
        corpus.examples(64, short_probability=0.2, **MASKED)
