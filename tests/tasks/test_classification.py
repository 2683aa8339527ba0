"""Classification and regression: their encoding, predictions and input lines."""

import dataclasses

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.tasks.classification import Classification, Regression, TextPair
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from tests.helpers.closeness import assert_close

FAMILY = Classification(("no", "yes", "maybe"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A tokenizer with a token for each of the words a to f."""
    return Tokenizer("wordpiece", "\n".join([*SPECIAL_TOKENS, *"abcdef"]).encode(), "here")


def pair(a: str, b: str | None = None, label=None) -> TextPair:
    return TextPair("0", a, b, label, "data.tsv line 7")


def rows_of(encoded, tokenizer):
    tokens = [tokenizer.tokens[i] for i in encoded.ids]
    return [" ".join(tokens[a:b]) for a, b in zip(encoded.starts, encoded.starts[1:], strict=False)]


def test_one_text_and_two_in_one_set(tokenizer):
    examples = [pair("a b", "c", "yes"), pair("d", None, "no"), pair("e", "", "maybe")]
    encoded = FAMILY.encode(examples, tokenizer, 16, labelled=True)
    assert rows_of(encoded, tokenizer) == [
        "[CLS] a b [SEP] c [SEP]",
        "[CLS] d [SEP]",
        "[CLS] e [SEP] [SEP]",
    ]
    assert encoded.token_types.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1]
    labels = encoded.labels["label_ids"]
    assert (labels.tolist(), labels.dtype) == ([1, 0, 2], np.int32)
    assert FAMILY.encode(examples, tokenizer, 16, labelled=False).labels == {}


def test_the_longer_text_loses_its_end(tokenizer):
    encoded = FAMILY.encode(
        [pair("a b c d", "e f"), pair("a b c d e f")], tokenizer, 7, labelled=False
    )
    assert rows_of(encoded, tokenizer) == ["[CLS] a b [SEP] e f [SEP]", "[CLS] a b c d e [SEP]"]
    assert encoded.cut == {7: 2}
    whole = [pair("a b", "e f"), pair("a b c d e"), pair("a", "")]
    assert FAMILY.encode(whole, tokenizer, 7, labelled=False).cut == {7: 0}


def test_where_the_second_text_begins(tokenizer):
    """Also in a template like RoBERTa's, whose token types do not tell the texts apart."""
    examples = [pair("a b c d", "e f"), pair("a", "c d"), pair("b", "")]
    encoded = FAMILY.encode(examples, tokenizer, 7, labelled=False)
    assert encoded.second.tolist() == [4, 3, 3]
    template = tokenizer.template
    double = dataclasses.replace(template, between=2 * template.between, second_type=0)
    other = Tokenizer("wordpiece", tokenizer.vocabulary, "here", template=double)
    encoded = FAMILY.encode(examples, other, 9, labelled=False)
    assert encoded.second.tolist() == [6, 4, 4] and not encoded.token_types.any()


def test_many_examples_in_order(tokenizer):
    examples = [pair("abcdef"[n % 6], "abcdef"[n % 5] if n % 3 else None) for n in range(20_011)]
    encoded = FAMILY.encode(examples, tokenizer, 8, labelled=False)
    rows = rows_of(encoded, tokenizer)
    for n, row in enumerate(rows):
        second = f" {'abcdef'[n % 5]} [SEP]" if n % 3 else ""
        assert row == f"[CLS] {'abcdef'[n % 6]} [SEP]{second}"


def test_predictions_are_probabilities(tokenizer):
    examples = [pair("a"), pair("b")]
    logits = [np.array([0, np.log(3), 0], np.float32), np.array([1e4, -1e4, 0], np.float32)]
    predictions = FAMILY.decode(examples, None, {"logits": logits})
    assert_close(list(predictions), [[0.2, 0.6, 0.2], [1, 0, 0]])
    shown = FAMILY.show(pair("a", "b"), predictions[0], {})
    assert list(shown) == ["text", "text_b", "label", "probabilities"]
    assert shown["label"] == "yes" and shown["probabilities"]["yes"] == pytest.approx(0.6)
    assert FAMILY.degenerate(predictions, {}) == ""
    assert FAMILY.degenerate(predictions[:1], {}) == "all are 'yes'"


def test_numbers(tokenizer):
    examples = [pair("a", None, 1.5), pair("b", None, -2.0)]
    encoded = Regression().encode(examples, tokenizer, 8, labelled=True)
    targets = encoded.labels["targets"]
    assert (targets.tolist(), targets.dtype) == ([1.5, -2.0], np.float32)
    for logits in ([np.float32(0.5), np.float32(2)], [np.array([0.5]), np.array([2.0])]):
        predictions = Regression().decode(examples, encoded, {"logits": logits})
        assert predictions == [0.5, 2.0]
    assert Regression().show(pair("a"), 0.5, {}) == {"text": "a", "value": 0.5}
    assert Regression().degenerate([0.5, 2.0], {}) == ""
    assert Regression().degenerate([0.5, 0.5004], {}) == "all are about 0.500"
    assert Regression().degenerate([0.5, float("nan")], {}) == "some are not numbers"


@pytest.mark.parametrize("family", [FAMILY, Regression()])
def test_bad_labels(family, tokenizer):
    for label in ("other", None):
        with pytest.raises(InputError, match=f"data.tsv line 7: label {label!r} is "):
            family.encode([pair("a", None, label)], tokenizer, 8, labelled=True)
    with pytest.raises(InputError, match="known ones are 'no', 'yes', 'maybe'"):
        FAMILY.label_ids([pair("a", None, "Yes")])


@pytest.mark.parametrize(
    "line, a, b",
    [
        ("one text", "one text", None),
        ("one ||| two", "one", "two"),
        ("x ||| y ||| z", "x ||| y", "z"),  # as in the reference's extract_features.py
        ('{"text": "a ||| b"}', "a ||| b", None),
        ('{"text": "\\u00e9\\n", "text_b": "{"}', "é\n", "{"),
        ('{"text": "a", "text_b": null}', "a", None),
    ],
)
def test_parse(line, a, b):
    for family in (FAMILY, Regression()):
        for pairs in (None, b is not None):
            family = dataclasses.replace(family, pairs=pairs)
            assert family.parse(line, "line 3") == TextPair("line 3", a, b, None, "line 3")


@pytest.mark.parametrize(
    "line",
    [
        *('{"not json', '{"text": 1}', '{"a": "b"}', '{"text": "a", "texts_b": "b"}'),
        *('{"text": "a"', "{'text': 'a'}", '{text: "a"}', '[{"text": "a"}]', ' { text : "a"}'),
    ],
)
def test_bad_lines(line):
    with pytest.raises(InputError, match='line 3: .*write {"text"'):
        FAMILY.parse(line, "line 3")


@pytest.mark.parametrize("family", [FAMILY, Regression()])
def test_texts_that_are_not_as_those_learned_from(family):
    for line in (" ", "a ||| ", " ||| b", '{"text": ""}', '{"text": "a", "text_b": " "}'):
        with pytest.raises(InputError, match="line 3: .*: a text is empty"):
            family.parse(line, "line 3")
    with pytest.raises(InputError, match="line 3: a ||| b: two texts, but the model .* from one"):
        dataclasses.replace(family, pairs=False).parse("a ||| b", "line 3")
    with pytest.raises(InputError, match="line 3: a: one text, but the model .* write 'A ||| B'"):
        dataclasses.replace(family, pairs=True).parse("a", "line 3")
