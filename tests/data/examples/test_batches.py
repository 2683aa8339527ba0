"""A batch is a pure function of (seed, stream, step, row), with the agreed fields."""

import dataclasses

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.shards import TRAIN
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.batches import Examples, ExampleSpec
from bertjax.data.examples.draws import Draws
from bertjax.data.examples.layout import PAIRS, SINGLE_SPANS, RowSpec, ragged_arange
from bertjax.data.examples.masking import MaskingRule
from bertjax.data.examples.packed_layout import PACKED_DOCUMENTS
from bertjax.objectives.left_to_right import LeftToRight
from bertjax.objectives.masked_lm import MaskedLM
from bertjax.objectives.registry import OBJECTIVES
from bertjax.text.template import Template
from tests.data.examples.places import (
    CLS,
    FIRST,
    MASK,
    PAD,
    SEP,
    Corpus,
    assert_rate,
    decode,
    fake_tokenizer,
    many,
    some_documents,
    unmask,
)

EVERY = {
    f"{name} {text}": objective(text=text)
    for name, objective in OBJECTIVES.items()
    # The batches of electra are those of masked_lm; rows that go on are in test_permutation.py.
    if name not in ("electra", "permutation")
    for text in objective.layouts
}
MASKED = MaskedLM().layout, MaskedLM().corruption(MaskingRule())


def assert_equal_batches(one, two):
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


@pytest.mark.parametrize("objective", EVERY.values(), ids=list(EVERY))
@pytest.mark.parametrize("length", [5, 33, 128])
@pytest.mark.parametrize("whole_words", [False, True])
def test_fields_are_those_of_the_contract(corpus, objective, length, whole_words):
    masking = MaskingRule(whole_words=whole_words)
    examples = corpus.examples(length, objective=objective, batch_size=12, masking=masking)
    batch = examples.batch(3)
    sizes = {"B": 12, "S": length, "P": examples.spec.predicted}
    assert batch.keys() == objective.fields.keys()
    for name, field in objective.fields.items():
        assert batch[name].shape == tuple(sizes[letter] for letter in field.letters), name
        assert batch[name].dtype == field.dtype, name


@pytest.mark.parametrize("objective", EVERY.values(), ids=list(EVERY))
@pytest.mark.parametrize("hosts", [1, 2, 4, 8])
def test_rows_do_not_depend_on_the_number_of_hosts(corpus, objective, hosts):
    examples = corpus.examples(64, objective=objective, batch_size=48)
    for step in (0, 1, 977):
        whole = examples.batch(step)
        size = 48 // hosts
        slices = [examples.batch(step, slice(h * size, (h + 1) * size)) for h in range(hosts)]
        joined = {name: np.concatenate([each[name] for each in slices]) for name in whole}
        assert_equal_batches(joined, whole)


@pytest.mark.parametrize("objective", EVERY.values(), ids=list(EVERY))
def test_any_row_can_be_made_alone(corpus, objective):
    examples = corpus.examples(64, objective=objective, batch_size=30)
    whole = examples.batch(5)
    for rows in (slice(0, 1), slice(29, 30), slice(7, 12), slice(None, 4), slice(26, None)):
        alone = examples.batch(5, rows)
        assert_equal_batches(alone, {name: array[rows] for name, array in whole.items()})


def test_examples_are_numbered_through_the_run(corpus):
    """The stream is one sequence of examples, which the batch size only cuts."""
    small, large = corpus.examples(64, batch_size=10), corpus.examples(64, batch_size=30)
    assert_equal_batches(many(small, 6), many(large, 2))


@pytest.mark.parametrize("objective", EVERY.values(), ids=list(EVERY))
def test_nothing_is_kept_between_batches(corpus, objective):
    examples = corpus.examples(64, objective=objective)
    first = examples.batch(2)
    examples.batch(9)
    assert_equal_batches(examples.batch(2), first)
    again = corpus.examples(64, objective=objective)
    assert_equal_batches(again.batch(2), first)


@pytest.mark.parametrize("change", [{"seed": 4}, {"stream": "y"}])
def test_other_seeds_and_streams_are_other_examples(corpus, change):
    one, two = corpus.examples(64).batch(0), corpus.examples(64, **change).batch(0)
    assert (one["input_ids"] != two["input_ids"]).any(1).mean() > 0.99
    agree = (one["next_sentence_labels"] == two["next_sentence_labels"]).sum()
    assert_rate(agree, 512, 0.5)


def test_every_epoch_is_other_examples(long_documents):
    examples = long_documents.examples(128, objective=MaskedLM(), short_probability=0.0)
    chunks = int(examples._lay_out.sampler._chunk_starts[-1])
    batch = many(examples, 2 * chunks // 512 + 1)
    starts = decode(batch).a_start
    first, second = starts[:chunks], starts[chunks : 2 * chunks]
    assert len(set(first)) > 0.85 * chunks  # few chunks are moved to the same sentence
    assert (first == second).mean() < 0.01
    assert len(set(first) & set(second)) < 0.5 * chunks  # the boundaries have moved


def test_left_to_right_predicts_every_next_token(corpus):
    batch = many(corpus.examples(64, objective=LeftToRight(), short_probability=0.3), 4)
    ids, target, weights = batch["input_ids"], batch["target_ids"], batch["target_weights"]
    lengths = batch["input_mask"].sum(1)
    np.testing.assert_array_equal(weights, np.arange(64) < lengths[:, None] - 1)
    np.testing.assert_array_equal(
        target[:, :-1][weights[:, :-1] == 1], ids[:, 1:][weights[:, :-1] == 1]
    )
    assert not target[weights == 0].any()
    assert (target[np.arange(len(ids)), lengths - 2] == 3).all()  # [SEP] ends the text
    decode(batch)  # nothing is hidden


def test_predicted_places():
    spec = ExampleSpec(*MASKED, 512, 8, 0, "")
    assert spec.predicted == 77
    assert (
        dataclasses.replace(spec, corruption=LeftToRight().corruption(MaskingRule())).predicted
        == 512
    )


def test_sources_come_by_their_shares(corpus):
    """Every 4096 examples have exactly these shares, for sources of any sizes."""
    batch = many(corpus.examples(64), 16)
    source = corpus.source(decode(batch).a_start)
    for block in source.reshape(2, 4096):
        assert np.bincount(block).tolist() == [2867, 1229]


def test_corpora_mix_by_weight(tmp_path):
    rng = np.random.default_rng(5)
    tokens = {}
    for name in ("one", "two"):
        corpus = Corpus(tmp_path / name, [("a", None, some_documents(rng, 30), [])])
        tokens[name] = corpus.train_tokens
    size = corpus.tokenizer.vocabulary_size
    folders = [f"{tmp_path / 'one'}@0.25", f"{tmp_path / 'two'}@0.75"]
    store = TokenStore.open(folders)
    tokenizer = fake_tokenizer(max(size, store.vocabulary_size, sum(tokens.values()) + 5))
    spec = ExampleSpec(*MASKED, 32, 512, 0, "", short_probability=0.0)
    examples = Examples(store, tokenizer, spec)
    spans = examples._lay_out.sampler.spans(np.arange(4096))
    assert (spans.a_start < tokens["one"]).sum() == 1024


def test_hidden_tokens_are_those_of_the_text(corpus):
    batch = many(corpus.examples(64), 4)
    decode(batch)  # the text is complete when the masked tokens are restored
    changed = (unmask(batch) != batch["input_ids"]).sum()
    # One in ten stays unchanged; a random token is rarely the same.
    predicted = int(batch["masked_lm_weights"].sum())
    assert_rate(changed, predicted, 0.9)


def test_a_store_of_another_tokenizer(corpus):
    other = fake_tokenizer(corpus.tokenizer.vocabulary_size)
    other.identity = "another"
    spec = ExampleSpec(*MASKED, 32, 4, 0, "")
    with pytest.raises(InputError, match="built with another tokenizer"):
        Examples(corpus.store, other, spec)


def test_the_contract_itself():
    assert {"masked_lm_next_sentence", "masked_lm", "left_to_right"} < set(OBJECTIVES)
    for objective in EVERY.values():
        fields = objective.fields
        assert {"input_ids", "input_mask", "token_type_ids"} <= fields.keys()
        assert all(field.letters[0] == "B" for field in fields.values())


def test_ragged_arange():
    starts, lengths = np.array([5, 0, 100, 7]), np.array([3, 0, 1, 2])
    np.testing.assert_array_equal(ragged_arange(starts, lengths), [5, 6, 7, 100, 7, 8])


# ------------------------------------------------------------------------------ templates

TEMPLATES = {
    "bert": Template((CLS,), (SEP,), (SEP,)),
    "roberta": Template((CLS,), (SEP, SEP), (SEP,), second_type=0),
    "xlnet": Template((), (SEP,), (SEP, CLS), last_type=2),
    "none": Template(),
}
LENGTH, ROWS = 37, 200


def rows_in(corpus, layout, template):
    """The rows of a layout over the positions of `corpus`, and the object that made them."""
    tokenizer = fake_tokenizer(corpus.store.vocabulary_size)
    tokenizer.template = template
    short = 0.1 if layout.has_short_rows else 0.0
    spec = RowSpec(tokenizer, LENGTH, Draws(0, "x"), ROWS, short)
    rows = layout.open(TokenStore.open(corpus.folder, TRAIN), spec)
    return rows, rows(np.arange(ROWS))


def padded(ids: list[int]) -> list[int]:
    return ids + [PAD] * (LENGTH - len(ids))


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("layout", [SINGLE_SPANS, PAIRS], ids=["single", "pairs"])
def test_spans_in_every_template(corpus, layout, template):
    rows, made = rows_in(corpus, layout, template)
    spans = rows.sampler.spans(np.arange(ROWS))
    full = 0
    for row in range(ROWS):
        a, b = (
            list(range(start[row] + FIRST, start[row] + length[row] + FIRST))
            for start, length in ((spans.a_start, spans.a_length), (spans.b_start, spans.b_length))
        )
        ids, types = template.sequence(a, b) if layout.pairs else template.sequence(a)
        assert made.arrays["input_ids"][row].tolist() == padded(ids)
        assert made.arrays["token_type_ids"][row].tolist() == types + [0] * (LENGTH - len(ids))
        assert made.arrays["input_mask"][row].sum() == made.lengths[row] == len(ids)
        full += len(ids) == LENGTH
    assert full > ROWS / 2


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_packed_documents_in_every_template(corpus, template):
    rows, made = rows_in(corpus, PACKED_DOCUMENTS, template)
    pieces = rows.packer.pieces(np.arange(ROWS))
    for row in range(ROWS):
        ids, types, documents = [], [], []
        for number, piece in enumerate(np.flatnonzero(pieces.row == row), start=1):
            assert pieces.column[piece] == len(ids)
            start = pieces.start[piece] + FIRST
            text = list(range(start, start + pieces.length[piece]))
            sequence = template.sequence(text)
            ids, types = ids + sequence.ids, types + sequence.token_types
            documents += [number] * len(sequence.ids)
        empty = [0] * (LENGTH - len(ids))
        assert made.arrays["input_ids"][row].tolist() == padded(ids)
        assert made.arrays["token_type_ids"][row].tolist() == types + empty
        assert made.arrays["segment_ids"][row].tolist() == documents + empty
        assert made.lengths[row] == len(ids)
    assert MASK not in made.arrays["input_ids"]
