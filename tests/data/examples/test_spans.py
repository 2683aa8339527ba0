"""The text of examples: spans A and B, their documents and lengths (sections 3.1 and A.2)."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.shards import HELDOUT
from bertjax.objectives.left_to_right import LeftToRight
from bertjax.objectives.masked_lm import MaskedLM, MaskedLMNextSentence
from tests.data.examples.places import (
    Corpus,
    assert_rate,
    assert_uniform,
    decode,
    many,
    some_documents,
)


@pytest.mark.parametrize("length", [5, 16, 37, 128, 512])
def test_spans_are_whole_runs_of_one_document_each(corpus, length):
    batch = many(corpus.examples(length, short_probability=0.3), 8)
    a_start, a_length, b_start, b_length, _ = decode(batch)
    label = batch["next_sentence_labels"]
    assert a_length.min() >= 1 and b_length.min() >= 1
    assert (a_length + b_length + 3).max() == length
    a_document, b_document = corpus.document(a_start), corpus.document(b_start)
    np.testing.assert_array_equal(corpus.document(a_start + a_length - 1), a_document)
    np.testing.assert_array_equal(corpus.document(b_start + b_length - 1), b_document)

    follows = label == 0
    np.testing.assert_array_equal(b_start[follows], (a_start + a_length)[follows])
    assert (a_document[follows] == b_document[follows]).all()
    assert (a_document[~follows] != b_document[~follows]).all()
    assert (corpus.source(a_start) == corpus.source(b_start)).all()
    assert_rate(follows.sum(), follows.size, 0.5)


@pytest.mark.parametrize(
    "objective", [MaskedLM(), LeftToRight()], ids=["masked_lm", "left_to_right"]
)
@pytest.mark.parametrize("length", [4, 33, 128])
def test_one_span_where_there_are_no_pairs(corpus, objective, length):
    batch = many(corpus.examples(length, objective=objective, short_probability=0.3), 8)
    start, count, _, none, _ = decode(batch)
    assert not none.any()
    assert count.min() == 2 and count.max() == length - 2
    np.testing.assert_array_equal(corpus.document(start), corpus.document(start + count - 1))
    assert not batch["token_type_ids"].any()


def test_spans_begin_with_sentences_and_a_ends_with_one(long_documents):
    """A row has room for many sentences; only a document's last few tokens may be less.

    In the last chunk of a document, A may be replaced: it is cut to the length of the other text.
    """
    corpus, starts = long_documents, long_documents.store.sentence_starts
    batch = many(corpus.examples(128, short_probability=0.0), 16)
    a_start, a_length, b_start, b_length, _ = decode(batch)
    tail = a_length + b_length < 60
    assert tail.mean() < 0.03
    for place in (b_start, a_start + a_length):
        assert np.isin(place, starts)[~tail].all()
    last = np.isin(b_start + b_length, corpus.store.document_starts)
    assert last.mean() < 0.08 and np.isin(a_start, starts)[~tail & ~last].all()
    # The row is full, except for tokens that were removed to make both texts end in the same way.
    total = a_length + b_length
    assert (total >= 123)[~last].mean() > 0.95
    assert (total == 125).mean() > 0.8


def test_spans_of_one_sentence_are_cut_inside_it(corpus):
    """A or B begins inside a sentence only if the chunk is a single sentence."""
    room = 125
    batch = many(corpus.examples(room + 3), 16)
    a_start, a_length, b_start, b_length, _ = decode(batch)
    starts = corpus.store.sentence_starts
    follows = batch["next_sentence_labels"] == 0
    inside = ~np.isin(b_start, starts) & follows
    assert inside.mean() > 0.02
    same_sentence = corpus.sentence(a_start) == corpus.sentence(b_start + b_length - 1)
    assert same_sentence[inside].all()
    # The replacement text is also cut inside one sentence.
    random = ~(np.isin(b_start, starts) | follows)
    assert random.mean() > 0.02
    for start, length in ((a_start, a_length), (b_start, b_length)):
        last = corpus.sentence(start + length - 1)
        assert (corpus.sentence(start) == last)[inside | random].all()
    # A begins inside a sentence only if the sentence is long, or if A may be replaced.
    deep = (a_start - starts[corpus.sentence(a_start)] > room // 2) & follows
    may_go = np.isin(b_start + b_length, corpus.store.document_starts)
    assert (np.isin(a_start, starts) | deep | may_go)[follows].all()


def test_lengths_without_short_examples(long_documents):
    """Rows are full, except for the last chunk of a document and random ends of documents."""
    examples = long_documents.examples(128, objective=MaskedLM(), short_probability=0.0)
    lengths = many(examples, 16)["input_mask"].sum(1)
    assert (lengths == 128).mean() > 0.93
    pairs = many(long_documents.examples(128, short_probability=0.0), 16)["input_mask"].sum(1)
    assert pairs.mean() > 122


def test_lengths_of_short_examples(long_documents):
    """The given share of examples has a random target, uniform from 2 tokens to the whole room."""
    room = 62
    long, short = (
        many(
            long_documents.examples(room + 2, objective=MaskedLM(), short_probability=p, seed=5), 40
        )["input_mask"].sum(1)
        - 2
        for p in (0.0, 1.0)
    )
    whole = long == room  # both have the same chunks; those at documents' ends are excluded
    assert whole.mean() > 0.93
    assert_uniform(np.bincount(short[whole], minlength=room + 1)[2:])
    assert short.min() == 2

    some = (
        many(
            long_documents.examples(room + 2, objective=MaskedLM(), short_probability=0.25, seed=5),
            40,
        )["input_mask"].sum(1)
        - 2
    )
    # One in room - 1 of the short examples has the full length by chance.
    rate = 0.25 * (1 - 1 / (room - 1))
    assert_rate((some < room)[whole].sum(), whole.sum(), rate)


@pytest.mark.parametrize("length", [128, 512])
@pytest.mark.parametrize("documents", ["long_documents", "short_documents"])
def test_the_shape_is_independent_of_the_label(documents, length, request):
    """Only the text itself may show whether B follows A.

    From the labels of each shape in 60,000 pairs, the labels of 60,000 other pairs are guessed.
    The result must be within two points of 50 %; one point is possible by chance.
    """
    corpus = request.getfixturevalue(documents)
    starts = corpus.store.sentence_starts
    spans = corpus.examples(length)._lay_out.sampler.spans(np.arange(120_000))
    a_stop, b_stop = spans.a_start + spans.a_length, spans.b_start + spans.b_length
    places = (spans.a_start, a_stop, spans.b_start, b_stop)
    borders = sum(np.isin(place, starts) * 2**n for n, place in enumerate(places))
    in_a = np.searchsorted(starts, a_stop) - np.searchsorted(starts, spans.a_start)
    first_of_b = starts[np.searchsorted(starts, spans.b_start, side="right")] - spans.b_start
    last_of_a = a_stop - starts[np.searchsorted(starts, a_stop) - 1]
    shapes = {
        "both lengths": (spans.a_length // 16, spans.b_length // 16),
        "total length": (spans.a_length + spans.b_length,),
        "length of A": (spans.a_length,),
        "length of B": (spans.b_length,),
        "sentences of A": (in_a,),
        "first sentence of B": (np.minimum(first_of_b, spans.b_length),),
        "last sentence of A": (np.minimum(last_of_a, spans.a_length),),
    }
    for name, shape in shapes.items():
        assert abs(_guessed((borders, *shape), spans.is_random) - 0.5) < 0.02, name


def _guessed(shape, labels) -> float:
    """The share of every second example whose label is the more frequent one of its shape."""
    _, kind = np.unique(np.ravel_multi_index(shape, (1024,) * len(shape)), return_inverse=True)
    known = np.arange(len(labels)) % 2 == 0
    votes = np.bincount(kind[known], 2 * labels[known] - 1, minlength=kind.max() + 1)
    return ((votes[kind] > 0) == labels)[~known].mean()


def test_both_texts_have_the_same_shape(short_documents):
    """The choice between them is the last draw: another seed for this draw changes no length."""
    corpus = short_documents
    sampler = corpus.examples(64, short_probability=0.3)._lay_out.sampler
    one = sampler.spans(np.arange(20_000))
    below = sampler._draws.below
    sampler._draws.below = lambda limit, purpose, *index: (
        1 - below(limit, purpose, *index)
        if purpose == "is random"
        else below(limit, purpose, *index)
    )
    two = sampler.spans(np.arange(20_000))
    assert (one.is_random + two.is_random == 1).all()
    np.testing.assert_array_equal(one.a_length, two.a_length)
    np.testing.assert_array_equal(one.b_length, two.b_length)
    a_same, b_same = one.a_start == two.a_start, one.b_start == two.b_start
    assert (a_same != b_same).all()
    # Their outer ends are also ends of sentences, except for texts of one or two tokens.
    starts = corpus.store.sentence_starts
    outer = [np.where(a_same, s.b_start + s.b_length, s.a_start) for s in (one, two)]
    differ = np.isin(outer[0], starts) != np.isin(outer[1], starts)
    assert not differ[np.where(a_same, one.b_length, one.a_length) > 2].any()


def test_boundaries_of_chunks_are_uniform(tmp_path):
    """A document that is three tokens shorter than two chunks has four equally likely cuts."""
    corpus = Corpus(tmp_path / "c", [("a", None, [[4] * 30 + [1]] * 2, [])])
    sampler = corpus.examples(64, objective=MaskedLM())._lay_out.sampler
    rank = np.arange(8_000) * 4  # each epoch has four chunks
    for number in range(4):
        document, start, end = sampler._chunk(np.zeros_like(rank), rank + number)
        begin = corpus.store.document_starts[document]
        first = start == begin
        assert first.any()
        assert_uniform(np.bincount((end - begin)[first] - 59, minlength=4))


def test_an_epoch_shows_every_chunk_once(corpus):
    """Without pairs, an example is a chunk's tokens, and every epoch has every document."""
    examples = corpus.examples(64, objective=MaskedLM(), short_probability=0.0, batch_size=100)
    sampler, store = examples._lay_out.sampler, corpus.store
    chunks = np.diff(sampler._chunk_starts)
    np.testing.assert_array_equal(chunks, -(-np.diff(store.document_starts) // 62))
    for number, source in enumerate(store.sources):
        documents = np.arange(source.first_document, source.last_document_exclusive)
        count = chunks[documents].sum()
        for epoch in (0, 1, 7):
            rank = epoch * count + np.arange(count)
            document, start, end = sampler._chunk(np.full(count, number), rank)
            seen = np.bincount(document, minlength=len(chunks))
            np.testing.assert_array_equal(seen[documents], chunks[documents])
            assert seen.sum() == count
            # The chunks of a document cover it, without gap or overlap.
            order = np.argsort(start)
            first = np.flatnonzero(np.diff(document[order], prepend=-1))
            expected = start[order][1:]
            gaps = end[order][:-1] != expected
            assert not gaps[np.setdiff1d(np.arange(count - 1), first[1:] - 1)].any()
            np.testing.assert_array_equal(np.sort(np.unique(document)), documents)
            assert (end - start).sum() == np.diff(store.document_starts)[documents].sum()


def test_chunks_begin_anywhere_that_their_number_allows(tmp_path):
    """10 tokens make 2 chunks of 8: the first has 2 to 8 tokens, each equally often over epochs."""
    corpus = Corpus(tmp_path / "c", [("a", None, [[10], [3]], [])])
    sampler = corpus.examples(8 + 2, objective=MaskedLM())._lay_out.sampler
    document, start, end = sampler._chunk(np.zeros(9_000, int), np.arange(9_000))
    first = (document == 0) & (start == 0)
    assert first.sum() == 3_000
    assert_uniform(np.bincount(end[first], minlength=9)[2:])


def test_every_document_is_reached_within_an_epoch(corpus):
    examples = corpus.examples(128)
    source = np.array([s.share for s in corpus.store.sources])
    chunks = [
        examples._lay_out.sampler._chunk_starts[s.last_document_exclusive]
        - examples._lay_out.sampler._chunk_starts[s.first_document]
        for s in corpus.store.sources
    ]
    # This covers an epoch of the source that is read most slowly, plus a mixing block.
    rows = int((np.array(chunks) / source).max()) + 4096
    batch = many(examples, -(-rows // 512))
    a_start, _, b_start, _, _ = decode(batch)
    # A random pair keeps one piece of its chunk.
    seen = np.union1d(corpus.document(a_start), corpus.document(b_start))
    np.testing.assert_array_equal(seen, np.arange(len(corpus.store.document_starts) - 1))


def test_coverage_is_even_over_a_document(long_documents):
    """Counts how often a token is used, by its distance from each end of its document.

    The bound: all text of a document is used 0.4 to 1.6 times as often as the mean.
    """
    corpus, total = long_documents, long_documents.store.token_count
    examples = corpus.examples(128, short_probability=0.1)
    spans = examples._lay_out.sampler.spans(np.arange(60_000))
    shown = np.zeros(total + 1)
    for start, length in ((spans.a_start, spans.a_length), (spans.b_start, spans.b_length)):
        np.add.at(shown, start, 1)
        np.add.at(shown, start + length, -1)
    shown = np.cumsum(shown)[:total]
    shown /= shown.mean()
    starts = corpus.store.document_starts
    document = corpus.document(np.arange(total))
    for distance in (
        np.arange(total) - starts[document],
        starts[document + 1] - 1 - np.arange(total),
    ):
        for near, far in (
            (0, 1),
            (1, 5),
            (5, 10),
            (10, 20),
            (20, 40),
            (40, 80),
            (80, 160),
            (160, 999),
        ):
            used = shown[(distance >= near) & (distance < far)]
            assert 0.4 < used.mean() < 1.6, (near, far)
    assert (shown > 0).mean() > 0.999


def test_random_spans_replace_b_or_a_and_are_uniform_over_the_other_text(long_documents):
    corpus = long_documents
    batch = many(corpus.examples(64, short_probability=0.0), 80)
    a_start, _, b_start, _, _ = decode(batch)
    # The same chunks without pairs show the document from which the example comes.
    alone = corpus.examples(63, objective=MaskedLM(), short_probability=0.0)
    alone = decode(many(alone, 80))
    own = corpus.document(alone.a_start)
    last = np.isin(alone.a_start + alone.a_length, corpus.store.document_starts)
    random = batch["next_sentence_labels"] == 1
    a_document, b_document = corpus.document(a_start)[random], corpus.document(b_start)[random]
    own, last, a_stays = own[random], last[random], a_document == own[random]
    assert ((b_document == own) == ~a_stays).all()
    # A is replaced in the last chunk of a document; no document here has only one chunk.
    assert last.sum() > 100
    np.testing.assert_array_equal(a_stays, ~last)

    other = np.where(a_stays, b_document, a_document)
    tokens = np.diff(corpus.store.document_starts)
    for document, size in enumerate(tokens):
        may = own != document
        rate = (size / (tokens.sum() - tokens[own[may]])).mean()
        assert_rate((other == document).sum(), may.sum(), rate)


def test_cuts_fall_on_every_inner_sentence(tmp_path):
    """In a chunk of ten sentences, each of the nine inner starts is equally likely."""
    corpus = Corpus(tmp_path / "c", [("a", None, [[4] * 10, [4] * 10], [])])
    batch = many(corpus.examples(43, short_probability=0.0), 20)
    _, a_length, _, _, _ = decode(batch)
    follows = batch["next_sentence_labels"] == 0
    counts = np.bincount(a_length[follows] // 4, minlength=10)[1:]
    assert (a_length[follows] % 4 == 0).all()
    assert_uniform(counts)


def test_either_piece_goes_from_a_document_of_one_chunk(short_documents):
    corpus = short_documents
    spans = corpus.examples(512, short_probability=0.0)._lay_out.sampler.spans(np.arange(20_000))
    random = spans.is_random == 1
    # The piece that is not cut begins or ends with its document.
    starts = corpus.store.document_starts
    a_stays = np.isin(spans.a_start, starts)[random]
    b_stays = np.isin(spans.b_start + spans.b_length, starts)[random]
    assert (a_stays | b_stays).all() and (a_stays & b_stays).mean() < 0.2
    only_a, only_b = (a_stays & ~b_stays).sum(), (b_stays & ~a_stays).sum()
    assert abs(only_a - only_b) < 0.1 * random.sum()


def test_smallest_corpus(tmp_path):
    """The corpus has two documents of two tokens, and all tokens are used."""
    corpus = Corpus(tmp_path / "c", [("a", None, [[2], [1, 1]], [])])
    batch = many(corpus.examples(16), 2)
    a_start, a_length, b_start, b_length, _ = decode(batch)
    label = batch["next_sentence_labels"]
    assert (a_length == 1).all() and (b_length == 1).all()
    assert set(a_start[label == 1]) | set(b_start[label == 1]) == {0, 1, 2, 3}
    assert set(zip(a_start[label == 0], b_start[label == 0], strict=True)) == {(0, 1), (2, 3)}


@pytest.mark.parametrize(
    "objective", [MaskedLMNextSentence(), MaskedLM(), LeftToRight()], ids=lambda each: each.name
)
def test_a_single_document(tmp_path, objective):
    rng = np.random.default_rng(0)
    sources = [("a", None, some_documents(rng, 9), []), ("b", None, [[5, 6, 7]], [])]
    corpus = Corpus(tmp_path / "c", sources)
    if objective in (MaskedLM(), LeftToRight()):
        decode(corpus.examples(16, objective=objective).batch(0))
        return
    with pytest.raises(InputError, match="source 'b' has a single document.*masked_lm"):
        corpus.examples(16, objective=objective)


@pytest.mark.parametrize(
    "objective", [MaskedLMNextSentence(), MaskedLM(), LeftToRight()], ids=lambda each: each.name
)
def test_a_length_without_room(corpus, objective):
    shortest = 4 if objective in (MaskedLM(), LeftToRight()) else 5
    corpus.examples(shortest, objective=objective).batch(0)
    with pytest.raises(InputError, match="leaves room for 1 tokens: at least 2"):
        corpus.examples(shortest - 1, objective=objective)


def test_held_out_text_and_training_text_do_not_meet(corpus):
    training = decode(many(corpus.examples(128), 40)).ids.max()
    held_out = decode(many(corpus.examples(128, HELDOUT), 10)).ids
    assert training < corpus.train_tokens + 5
    assert held_out[held_out >= 5].min() >= corpus.train_tokens + 5
