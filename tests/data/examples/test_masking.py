"""Masking: which tokens are predicted, and what replaces them (sections 3.1 and A.1, Table 8)."""

import numpy as np
import pytest

from bertjax.data.examples.draws import Draws
from bertjax.data.examples.masking import Masker, MaskingRule
from tests.data.examples.places import (
    FIRST,
    MASK,
    assert_rate,
    assert_uniform,
    fake_tokenizer,
    many,
    unmask,
)

SIZE = 997  # ids in the rows made up here
PAPER = MaskingRule()


def rows_of(lengths, length, seed=0, low=FIRST):
    """Makes rows [CLS] ... [SEP] ... [SEP] [PAD]..., int32 [R, length], and their lengths."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(low, SIZE, (len(lengths), length), dtype=np.int32)
    column = np.arange(length)
    ids[column >= np.array(lengths)[:, None]] = 0
    ids[:, 0] = 2
    row = np.arange(len(lengths))
    ids[row, np.array(lengths) // 2] = ids[row, np.array(lengths) - 1] = 3
    return ids, np.array(lengths)


def mask(ids, lengths, rule=PAPER, seed=0, continues_word=0.0):
    """Masks rows; returns (masked ids, Masked)."""
    tokenizer = fake_tokenizer(SIZE, continues_word)
    masker = Masker(
        rule,
        mask_id=MASK,
        ordinary=np.arange(SIZE) >= FIRST,
        continues_word=tokenizer.continues_word,
    )
    hidden = ids.copy()
    return hidden, masker.mask(hidden, lengths, Draws(seed, "m"), np.arange(len(ids)))


@pytest.mark.parametrize("length", [5, 8, 20, 64, 128, 200, 512])
@pytest.mark.parametrize("whole_words", [False, True])
def test_recorded_ids_and_positions_fit_the_masked_rows(length, whole_words):
    lengths = np.random.default_rng(1).integers(5, length + 1, 300)
    ids, lengths = rows_of(lengths, length)
    rule = MaskingRule(whole_words=whole_words)
    hidden, masked = mask(ids, lengths, rule, continues_word=0.3)
    assert masked.positions.shape == (300, rule.width(length))
    used = masked.weights == 1
    assert set(np.unique(masked.weights)) <= {0, 1}
    row, place = np.nonzero(used)
    at = masked.positions[row, place]
    # The original ids are at ascending positions without repetition; unused entries are last and 0.
    np.testing.assert_array_equal(masked.ids[row, place], ids[row, at])
    assert (np.diff(masked.positions, axis=1) > 0)[used[:, 1:]].all()
    assert (np.diff(used.astype(int), axis=1) <= 0).all()
    assert not masked.positions[~used].any() and not masked.ids[~used].any()
    # Special tokens are never masked or put in, and no other token changes.
    assert (ids[row, at] >= FIRST).all()
    assert ((hidden[row, at] >= FIRST) | (hidden[row, at] == MASK)).all()
    untouched = np.ones(ids.shape, bool)
    untouched[row, at] = False
    np.testing.assert_array_equal(hidden[untouched], ids[untouched])
    assert {name: a.dtype for name, a in masked._asdict().items()} == {
        "positions": np.int32,
        "ids": np.int32,
        "weights": np.float32,
    }


@pytest.mark.parametrize("rate", [0.15, 0.4, 0.08])
@pytest.mark.parametrize("tokens", [128, 100, 61, 33])
def test_the_share_of_predicted_tokens_is_exact_on_average(rate, tokens):
    """The count is rounded at random: its mean is tokens x rate, and it differs by less than 1."""
    ids, lengths = rows_of([tokens] * 20_000, 128)
    _, masked = mask(ids, lengths, MaskingRule(rate=rate))
    count = masked.weights.sum(1)
    expected = tokens * rate
    assert set(np.unique(count)) <= {np.floor(expected), np.ceil(expected)}
    assert_rate(int((count - np.floor(expected)).sum()), len(ids), expected % 1)


def test_widths_of_the_paper():
    assert [MaskingRule().width(length) for length in (20, 128, 512)] == [3, 20, 77]


def test_at_least_one_token_and_never_more_than_there_are():
    ids, lengths = rows_of([5, 4] * 500, 16)  # [CLS] a [SEP] b [SEP]; [CLS] a [SEP] [SEP]
    _, masked = mask(ids, lengths)
    assert (masked.weights.sum(1) == 1).all()
    _, masked = mask(ids, lengths, MaskingRule(rate=0.9))
    np.testing.assert_array_equal(masked.weights.sum(1), [2, 1] * 500)


TABLE_8 = [(0.8, 0.1), (1.0, 0.0), (0.8, 0.0), (0.8, 0.2), (0.0, 0.2), (0.0, 1.0), (0.0, 0.0)]


@pytest.mark.parametrize("mask_share, random_share", TABLE_8)
def test_replacements_have_the_shares_asked_for(mask_share, random_share):
    ids, lengths = rows_of([128] * 4000, 128)
    hidden, masked = mask(ids, lengths, MaskingRule(mask=mask_share, random=random_share))
    row, place = np.nonzero(masked.weights)
    now, before = hidden[row, masked.positions[row, place]], masked.ids[row, place]
    total = len(row)
    assert_rate((now == MASK).sum(), total, mask_share)
    # One random token in SIZE - FIRST is the token itself.
    different = random_share * (1 - 1 / (SIZE - FIRST))
    assert_rate(((now != MASK) & (now != before)).sum(), total, different)
    assert_rate((now == before).sum(), total, 1 - mask_share - different)


def test_random_replacements_are_uniform_over_ordinary_tokens():
    ids, lengths = rows_of([128] * 8000, 128, low=SIZE - 1)  # all text is one token
    hidden, masked = mask(ids, lengths, MaskingRule(mask=0.0, random=1.0))
    row, place = np.nonzero(masked.weights)
    put_in = hidden[row, masked.positions[row, place]]
    assert_uniform(np.bincount(put_in, minlength=SIZE)[FIRST:])
    assert not (put_in < FIRST).any()


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("length, tokens", [(128, 128), (128, 90), (40, 37)])
def test_every_position_is_hidden_as_often(whole_words, length, tokens):
    ids, lengths = rows_of([tokens] * 20_000, length)
    _, masked = mask(ids, lengths, MaskingRule(whole_words=whole_words))
    positions = masked.positions[masked.weights == 1]
    hits = np.bincount(positions, minlength=length)
    ordinary = np.arange(length) < tokens
    ordinary[[0, tokens // 2, tokens - 1]] = False
    assert not hits[~ordinary].any()
    assert_uniform(hits[ordinary])


def test_pairs_of_positions_are_hidden_independently():
    """Neighbours are masked together as often as positions far apart."""
    ids, lengths = rows_of([128] * 30_000, 128)
    _, masked = mask(ids, lengths)
    hidden = np.zeros(ids.shape, bool)
    row, place = np.nonzero(masked.weights)
    hidden[row, masked.positions[row, place]] = True
    count = masked.weights.sum(1)
    rate = (count * (count - 1)).mean() / (125 * 124)
    for first, second in ((1, 2), (70, 71), (5, 120), (31, 33)):
        assert_rate((hidden[:, first] & hidden[:, second]).sum(), len(ids), rate)


def words_of(ids, continues):
    """The number of each token's word; -1 for special tokens."""
    word = np.full(ids.shape, -1)
    for r, row in enumerate(ids):
        for c, token in enumerate(row):
            if token >= FIRST:
                goes_on = continues[token] and row[c - 1] >= FIRST
                word[r, c] = word[r, c - 1] if goes_on else c
    return word


@pytest.mark.parametrize("length, share", [(128, 0.3), (64, 0.6), (512, 0.3), (31, 0.9)])
def test_whole_words_are_hidden_together(length, share):
    lengths = np.random.default_rng(1).integers(max(5, length - 40), length + 1, 200)
    ids, lengths = rows_of(lengths, length)
    rule = MaskingRule(whole_words=True)
    _, masked = mask(ids, lengths, rule, continues_word=share)
    words = words_of(ids, fake_tokenizer(SIZE, share).continues_word)
    hidden = np.zeros(ids.shape, bool)
    row, place = np.nonzero(masked.weights)
    hidden[row, masked.positions[row, place]] = True
    for r in range(len(ids)):
        some, none = set(words[r, hidden[r]]), set(words[r, ~hidden[r]])
        assert not some & none, "a word hidden but for some pieces"
    assert (hidden.sum(1) <= np.ceil(lengths * rule.rate)).all()


def test_words_end_where_classes_differ():
    """Pieces that could go on a word do so only after a piece of their class."""
    ids, lengths = rows_of([31] * 400, 31)
    begins, ends = np.arange(SIZE) % 4, np.arange(SIZE) // 4 % 4  # classes; 0: of no word
    links = np.array([0, 1, 2, 4], np.uint8)[np.stack([begins, ends])]
    masker = Masker(
        MaskingRule(rate=0.4, whole_words=True),
        mask_id=MASK,
        ordinary=np.arange(SIZE) >= FIRST,
        continues_word=links[0] != 0,
        word_links=links,
    )
    masked = masker.mask(ids.copy(), lengths, Draws(0, "m"), np.arange(len(ids)))
    hidden = np.zeros(ids.shape, bool)
    row, place = np.nonzero(masked.weights)
    hidden[row, masked.positions[row, place]] = True
    linked = (links[0][ids[:, 1:]] & links[1][ids[:, :-1]]) != 0
    linked &= (ids[:, 1:] >= FIRST) & (ids[:, :-1] >= FIRST)
    differ = hidden[:, 1:] != hidden[:, :-1]
    assert linked.sum() > 1500 and not (differ & linked).any()
    unlinked = (links[0][ids[:, 1:]] != 0) & ~linked & (ids[:, :-1] >= FIRST)
    assert differ[unlinked].mean() > 0.3


def test_whole_words_keep_the_rate():
    """Words of one piece fill the space that is left, so at most one token is missing."""
    ids, lengths = rows_of([128] * 4000, 128)
    _, masked = mask(ids, lengths, MaskingRule(whole_words=True), continues_word=0.3)
    _, by_pieces = mask(ids, lengths, continues_word=0.3)
    np.testing.assert_array_equal(masked.weights.sum(1), by_pieces.weights.sum(1))


def test_words_of_every_length_have_the_same_chance():
    """For each length, the share of masked words is that of masked tokens, except for chance."""
    ids, lengths = rows_of([128] * 8_000, 128)
    _, masked = mask(ids, lengths, MaskingRule(whole_words=True), continues_word=0.4)
    words = words_of(ids, fake_tokenizer(SIZE, 0.4).continues_word)
    row, place = np.nonzero(masked.weights)
    hidden = np.zeros(ids.shape, bool)
    hidden[row, masked.positions[row, place]] = True
    first = words == np.arange(ids.shape[1])
    index = (np.arange(len(ids))[:, None] * 128 + words)[words >= 0]
    sizes = np.bincount(index, minlength=ids.size).reshape(ids.shape)
    rate = hidden.sum() / (words >= 0).sum()
    assert rate == pytest.approx(128 * 0.15 / 125, rel=1e-3)
    for pieces in range(1, 7):
        there = first & (sizes == pieces)
        assert there.sum() > 1000
        assert_rate(hidden[there].sum(), there.sum(), rate)


def test_a_text_of_words_that_do_not_fit_is_filled_with_single_pieces():
    """Every other word has twelve pieces, which is more than the masked tokens of 64."""
    ids, lengths = rows_of([64] * 2000, 64)
    text = ids >= FIRST
    column = np.arange(64)
    ids[text] = np.broadcast_to(np.where(column % 13 == 5, FIRST, SIZE - 1), ids.shape)[text]
    masker = Masker(
        MaskingRule(whole_words=True),
        mask_id=MASK,
        ordinary=np.arange(SIZE) >= FIRST,
        continues_word=np.arange(SIZE) == SIZE - 1,
    )
    words = words_of(ids, np.arange(SIZE) == SIZE - 1)
    masked = masker.mask(ids.copy(), lengths, Draws(0, "m"), np.arange(2000))
    hidden = np.zeros(ids.shape, bool)
    row, place = np.nonzero(masked.weights)
    hidden[row, masked.positions[row, place]] = True
    assert hidden.sum(1).max() <= 10
    for r in range(0, 2000, 10):
        assert not set(words[r, hidden[r]]) & set(words[r, ~hidden[r]])


def test_a_row_that_is_one_long_word_hides_nothing():
    """No whole word fits: the weights are zero, and the row still trains the other task."""
    ids, lengths = rows_of([64] * 10, 64)
    ids[(ids >= FIRST)] = SIZE - 1
    masker = Masker(
        MaskingRule(whole_words=True),
        mask_id=MASK,
        ordinary=np.arange(SIZE) >= FIRST,
        continues_word=np.arange(SIZE) == SIZE - 1,
    )
    hidden = ids.copy()
    masked = masker.mask(hidden, lengths, Draws(0, "m"), np.arange(10))
    assert not masked.weights.any() and not masked.positions.any()
    np.testing.assert_array_equal(hidden, ids)


@pytest.mark.parametrize("fields", [{"rate": 0}, {"rate": 1}, {"mask": -0.1}, {"random": 0.3}])
def test_shares_of_no_whole(fields):
    with pytest.raises(ValueError, match="must be|most 1"):
        MaskingRule(**fields)


def test_masks_are_fresh_in_every_epoch(long_documents):
    """The same text gets other masks: tokens that are masked twice are so by chance."""
    examples = long_documents.examples(128, batch_size=256)
    batch = many(examples, 60)
    hidden = np.zeros(batch["input_ids"].shape, bool)
    row, place = np.nonzero(batch["masked_lm_weights"])
    hidden[row, batch["masked_lm_positions"][row, place]] = True
    times = np.bincount(unmask(batch).ravel(), minlength=long_documents.tokenizer.vocabulary_size)
    hits = np.bincount(unmask(batch)[hidden], minlength=len(times))
    times, hits = times[FIRST:], hits[FIRST:]
    often = times >= 8
    assert often.mean() > 0.5
    # Of tokens that are seen n times, a share of 0.85 to the n is never masked (0.1536 of the text
    # is masked).
    rate = hits.sum() / times.sum()
    for n in (8, 10, 12):
        shown = times == n
        assert_rate((hits[shown] == 0).sum(), shown.sum(), (1 - rate) ** n)


# ------------------------------------------------------------------------ the unigram baseline

ZIPF = 1 / np.arange(1, 48) / (1 / np.arange(1, 48)).sum()


def _entropy(shares):
    return -(shares[shares > 0] * np.log(shares[shares > 0])).sum()


@pytest.mark.parametrize(
    "rule",
    [
        PAPER,
        MaskingRule(mask=0.6, random=0.0),
        MaskingRule(mask=0.0, random=0.7),
        MaskingRule(mask=0.5, random=0.5),
    ],
)
@pytest.mark.parametrize("frequencies", [ZIPF, np.array([0.7, 0.0, 0.3, 0.0])])
def test_the_unigram_baseline_is_the_entropy_of_the_word_given_what_is_shown(rule, frequencies):
    """The joint distribution of both, written out."""
    size = len(frequencies)
    same = (1 - rule.mask - rule.random) * np.diag(frequencies)
    other = rule.random * np.outer(frequencies, np.full(size, 1 / size))
    joint = np.column_stack([rule.mask * frequencies, same + other])  # [word, [MASK] or a token]
    expected = _entropy(joint) - _entropy(joint.sum(0))
    assert rule.unigram_baseline(frequencies) == pytest.approx(expected, rel=1e-12)


def test_the_ends_of_the_unigram_baseline():
    hidden, shown = MaskingRule(mask=1.0, random=0.0), MaskingRule(mask=0.0, random=0.0)
    assert hidden.unigram_baseline(ZIPF) == pytest.approx(_entropy(ZIPF))
    assert shown.unigram_baseline(ZIPF) == pytest.approx(0, abs=1e-12)
    assert 0.8 * _entropy(ZIPF) < PAPER.unigram_baseline(ZIPF) < _entropy(ZIPF)


def test_rates_by_a_cosine():
    """Each sequence has its own rate; their mean is the rule's, and their form is the cosine's."""
    rule = MaskingRule(rate=0.3, cosine=True, mask=1.0, random=0.0)
    ids, lengths = rows_of([202] * 6000, 202)
    _, masked = mask(ids, lengths, rule)
    assert masked.positions.shape[1] == rule.width(202) == 167  # 202 times 0.3 / (1 - 2 / pi)
    rates = masked.weights.sum(1) / 202
    most = 0.3 / (1 - 2 / np.pi)
    assert abs(rates.mean() - 0.3) < 4 * rates.std() / 6000**0.5
    # The share of sequences with a rate below r is (2 / pi) arccos(1 - r / most).
    for r in (0.05, 0.2, 0.5, 0.8):
        share = 2 / np.pi * np.arccos(1 - r / most)
        assert abs((rates < r).mean() - share) < 0.02
    with pytest.raises(ValueError, match=r"^rate=0\.4: must be at most 0\.3634 with cosine"):
        MaskingRule(rate=0.4, cosine=True)
