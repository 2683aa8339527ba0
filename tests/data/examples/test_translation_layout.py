"""Rows of a text and its translation: which pair, how it is cut, positions, languages, masks."""

import dataclasses

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.examples.translation_layout import TranslationLayout
from bertjax.objectives.masked_lm import MaskedLM
from bertjax.text.template import Template
from tests.data.examples.places import CLS, FIRST, PAD, SEP, Corpus, assert_rate, many, unmask

TRANSLATIONS = MaskedLM("translations")
NAMES = ("sw=text:a", "en-sw=parallel:b|c", "en=text:d")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Swahili, pairs with texts of 1 to 29 tokens, some of 70 and more, and English."""
    rng = np.random.default_rng(5)
    spans = [rng.integers(3, 20, rng.integers(2, 9)).tolist() for _ in range(90)]
    pairs = rng.integers(1, 30, (257, 2))
    pairs[::10] += rng.integers(0, 70, (26, 2))
    pairs[3], pairs[4] = (100, 2), (2, 100)
    pairs = pairs.tolist()
    folder = tmp_path_factory.mktemp("translations") / "corpus"
    documents = (spans[:60], pairs, spans[60:])
    sources = [(n, w, d, d[:5]) for n, w, d in zip(NAMES, (2, 5, 1), documents, strict=True)]
    return Corpus(folder, sources)


def split_rows(corpus, batch):
    """The ids with masked tokens restored, and which rows are of the parallel source."""
    ids = unmask(batch)
    return ids, corpus.source(ids[:, 1] - FIRST) == 1


def test_every_pair_once_an_epoch_cut_so_that_both_texts_fit(corpus):
    length, room = 52, 49
    examples = corpus.examples(length, objective=TRANSLATIONS, batch_size=4096)
    batch = examples.batch(0)
    ids, parallel = split_rows(corpus, batch)
    shares = np.bincount(corpus.source(ids[:, 1] - FIRST)) / len(ids)
    np.testing.assert_allclose(shares, [0.25, 0.625, 0.125], atol=1e-3)
    starts = corpus.store.sentence_starts
    seen = []
    for row in ids[parallel]:
        number = int(corpus.document(row[1] - FIRST))
        begin, middle, end = starts[np.searchsorted(starts, row[1] - FIRST) + np.arange(3)]
        a, b = middle - begin, end - middle
        if a + b > room:
            # The shorter text stays whole if it is at most half of the room.
            a, b = (24, 25) if min(a, b) > 24 else ((a, room - a) if a < b else (room - b, b))
        texts = np.arange(begin, begin + a) + FIRST, np.arange(middle, middle + b) + FIRST
        wanted = [CLS, *texts[0], SEP, *texts[1], SEP]
        assert row.tolist() == wanted + [PAD] * (length - a - b - 3)
        seen.append(number)
    first = corpus.store.sources[1].first_document
    pairs = range(first, first + 257)
    assert sorted(seen[:257]) == sorted(seen[257:514]) == list(pairs)  # each epoch in its order
    assert seen[:257] != seen[257:514] != list(pairs)


def test_other_rows_are_those_of_spans(corpus):
    result, spans = (
        many(corpus.examples(40, objective=objective), 2)
        for objective in (TRANSLATIONS, MaskedLM("spans"))
    )
    _, parallel = split_rows(corpus, result)
    for name in spans:
        np.testing.assert_array_equal(result[name][~parallel], spans[name][~parallel])
    np.testing.assert_array_equal(
        result["position_ids"][~parallel], np.broadcast_to(np.arange(40), ((~parallel).sum(), 40))
    )


@pytest.mark.parametrize("between", [(SEP,), (SEP, CLS), ()], ids=len)
def test_positions_begin_again_at_the_first_special_token_of_the_second_text(corpus, between):
    """As in XLM: the first token between the texts ends A, and a second one belongs to B."""
    other = dataclasses.replace(Template((CLS,), between, (SEP,), second_type=0))
    tokenizer = corpus.tokenizer
    kept, tokenizer.template = tokenizer.template, other
    try:
        batch = many(corpus.examples(64, objective=TRANSLATIONS), 1)
    finally:
        tokenizer.template = kept
    ids, parallel = split_rows(corpus, batch)
    starts = corpus.store.sentence_starts
    for row, positions in zip(ids[parallel], batch["position_ids"][parallel], strict=True):
        places = row - FIRST
        sentence = corpus.sentence(places[1])
        second = int(((places >= starts[sentence + 1]) & (row >= FIRST)).argmax())
        begin = second - max(0, len(between) - 1)
        assert positions.tolist() == [*range(begin), *range(64 - begin)]
    assert batch["position_ids"].dtype == np.int32


def test_both_texts_are_masked(corpus):
    batch = many(corpus.examples(60, objective=TRANSLATIONS), 8)
    ids, parallel = split_rows(corpus, batch)
    types, real = batch["token_type_ids"] == 1, (ids >= FIRST)
    at = batch["masked_lm_positions"][parallel]
    weights = batch["masked_lm_weights"][parallel]
    in_b = np.take_along_axis(types[parallel], at, 1)
    share = (types & real)[parallel].sum() / real[parallel].sum()
    assert 0.4 < share < 0.6
    assert_rate(int(weights[in_b].sum()), int(weights.sum()), share)
    assert not types[~parallel].any()


def test_the_languages_of_tokens(corpus):
    objective = MaskedLM("translations", languages="en,fr,sw")
    batch = many(corpus.examples(40, objective=objective), 1)
    without = many(corpus.examples(40, objective=TRANSLATIONS), 1)
    ids, _ = split_rows(corpus, batch)
    source = corpus.source(ids[:, 1] - FIRST)
    found = batch.pop("language_ids")
    assert (found[source == 0] == 2).all() and (found[source == 2] == 0).all()
    begins = (batch["token_type_ids"].argmax(1))[source == 1]
    wanted = np.where(np.arange(40) >= begins[:, None], 2, 0)
    np.testing.assert_array_equal(found[source == 1], wanted)
    assert batch.keys() == without.keys() and "language_ids" not in without
    for name, array in without.items():
        np.testing.assert_array_equal(batch[name], array)
    with pytest.raises(InputError, match=r"'sw=text:a': its language \(sw\) is not among .*'en'"):
        corpus.examples(40, objective=MaskedLM("translations", languages="en"))
    with pytest.raises(ValueError, match="languages='en,en': must be different codes"):
        MaskedLM("translations", languages="en,en")
    with pytest.raises(ValueError, match="languages='en,sw': .*needs text='translations'"):
        MaskedLM(languages="en,sw")
    assert objective.layout == TranslationLayout(("en", "fr", "sw"))


def test_a_row_does_not_depend_on_the_others(corpus):
    examples = corpus.examples(33, objective=TRANSLATIONS, batch_size=40)
    whole = examples.batch(3)
    for row in range(0, 40, 7):
        alone = examples.batch(3, slice(row, row + 1))
        for name, array in whole.items():
            np.testing.assert_array_equal(alone[name][0], array[row])


def test_rows_that_are_too_short_for_a_pair(corpus):
    with pytest.raises(InputError, match="leaves room for 1 tokens"):
        corpus.examples(4, objective=TRANSLATIONS)
