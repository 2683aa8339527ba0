"""Tasks, features and blanks in the templates of RoBERTa and XLNet."""

import dataclasses
import json

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.inference.blanks import fill
from bertjax.inference.features.texts import TextEncoder
from bertjax.runs.fine_tuning.data import encoder
from bertjax.tasks.classification import Classification, TextPair
from bertjax.tasks.question_answering import Question, QuestionAnswering
from bertjax.tasks.squad import Answer
from bertjax.tasks.tagging import Sentence, Tagging
from bertjax.text.template import Template
from bertjax.text.tokenizer import Tokenizer
from tests.helpers.closeness import rounding
from tests.helpers.small_models import PIECES, SPEC, small_model
from tests.text.small_vocabularies import added, wordpiece

PAD, UNK, CLS, SEP, MASK = range(5)
ROBERTAS = Template((CLS,), (SEP, SEP), (SEP,), second_type=0)
XLNETS = Template((), (SEP,), (SEP, CLS), last_type=2)
DATA = "\n".join(PIECES).encode()


def tokenizer_with(template: Template) -> Tokenizer:
    return wordpiece(PIECES, cased=False, template=template)


def shown(tokenizer: Tokenizer, encoded) -> list[str]:
    bounds = zip(encoded.starts, encoded.starts[1:], strict=False)
    return [" ".join(tokenizer.tokens[i] for i in encoded.ids[a:b]) for a, b in bounds]


@pytest.mark.parametrize(
    ("template", "rows", "types"),
    [
        (
            ROBERTAS,
            ["[CLS] the cat [SEP] [SEP] a dog [SEP]", "[CLS] the cat of a house run [SEP]"],
            [0] * 16,
        ),
        (
            XLNETS,
            ["the cat [SEP] a dog run [SEP] [CLS]", "the cat of a house run [SEP] [CLS]"],
            [0, 0, 0, 1, 1, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 2],
        ),
    ],
    ids=["roberta", "xlnet"],
)
def test_classification(template, rows, types):
    tokenizer = tokenizer_with(template)
    examples = [
        TextPair("1", "the cat", "a dog runs", None, "here"),
        TextPair("2", "the cat of a house runs", None, None, "here"),
    ]
    encoded = Classification(("yes",)).encode(examples, tokenizer, 8, labelled=False)
    assert shown(tokenizer, encoded) == rows and encoded.token_types.tolist() == types
    assert encoded.cut == {8: 2}


@pytest.mark.parametrize("template", [ROBERTAS, XLNETS], ids=["roberta", "xlnet"])
def test_questions(template):
    """The labels of a window, and the answer that perfect outputs give, are at their places."""
    tokenizer = tokenizer_with(template)
    context = "the cat of a blue house, a dog"
    answer = Answer("blue house", context.index("blue"))
    family = QuestionAnswering(max_query_length=3, stride=2, n_best=1)
    example = Question("q", "the dog?", context, (answer,), where="here")
    encoded = family.encode([example], tokenizer, 12, labelled=True)
    first = template.begins(3)[1]
    assert encoded.first.tolist() == [first] * len(encoded)
    starts, ends = (encoded.labels[f"{name}_positions"] for name in ("start", "end"))
    rows = np.split(encoded.ids, encoded.starts[1:-1])
    outputs = {"start": [], "end": []}
    for number, row in enumerate(rows):
        size = encoded.size[number]
        assert len(row) == 3 + size + template.specials(pair=True) <= 12
        if ends[number]:
            words = [tokenizer.tokens[i] for i in row[starts[number] : ends[number] + 1]]
            assert words == ["blue", "house"]
        for name, place in (("start", starts[number]), ("end", ends[number])):
            outputs[name].append(np.where(np.arange(len(row)) == place, 9.0, 0.0))
    assert ends.any()
    (prediction,) = family.decode([example], encoded, outputs)
    assert prediction.answers[0].text == "blue house"
    specials = template.specials(pair=True)
    with pytest.raises(InputError, match=f"max_length=8 less {specials} and max_query_length=3 le"):
        dataclasses.replace(family, stride=3).encode([example], tokenizer, 8, labelled=True)


@pytest.mark.parametrize("template", [ROBERTAS, XLNETS], ids=["roberta", "xlnet"])
def test_tags(template):
    tokenizer = tokenizer_with(template)
    words = ("the", "cats", "running", "dog", "of", "a")
    sentence = Sentence(words, ("x", "y", "x", "y", "x", "y"), 0, "here")
    family = Tagging(("x", "y"))
    encoded = family.encode([sentence], tokenizer, 6, labelled=True)
    firsts = [tokenizer.tokens[i] for i in encoded.ids[encoded.words]]
    assert firsts == ["the", "cat", "[UNK]", "dog", "of", "a"]
    assert encoded.labels["label_ids"][encoded.words].tolist() == [0, 1, 0, 1, 0, 1]
    for row in shown(tokenizer, encoded):
        assert row.startswith("[CLS]") == bool(template.before) and "[SEP]" in row


def test_the_vector_of_a_text_is_that_of_cls():
    for template, place in ((ROBERTAS, 0), (XLNETS, -1)):
        (text,) = TextEncoder(tokenizer_with(template), "cls", 9).encode(["the cat ||| a dog run"])
        assert np.flatnonzero(text.groups == 0).tolist() == [place % len(text.ids)]
        assert text.length == 5 + template.specials(pair=True)


def test_pairs_for_a_model_of_one_token_type(tmp_path):
    """RoBERTa's pairs are of one type, and BERT's are not."""
    (tmp_path / "vocab.txt").write_bytes(DATA)
    spec = dataclasses.replace(SPEC, type_vocab_size=1)
    model = small_model(tmp_path / "vocab.txt", "BertForSequenceClassification", spec)
    example = TextPair("1", "the cat", "a dog", None, "here")
    family = Classification(("no", "maybe", "yes"))
    with pytest.raises(InputError, match="has only one segment: it does not take two texts"):
        encoder(family, model, 9)([example], "dev", labelled=False)
    model = dataclasses.replace(model, tokenizer=tokenizer_with(ROBERTAS))
    encoded = encoder(family, model, 9)([example], "dev", labelled=False)
    assert shown(model.tokenizer, encoded) == ["[CLS] the cat [SEP] [SEP] a dog [SEP]"]


def test_blanks_are_written_alike_for_every_model(tmp_path):
    """[MASK] in a text is the model's own token, and the text stands in the model's template."""
    (tmp_path / "vocab.txt").write_bytes(DATA)
    model = small_model(tmp_path / "vocab.txt", "BertForMaskedLM")
    ids = {piece: number for number, piece in enumerate(PIECES)}
    names = {
        "[PAD]": "<pad>",
        "[UNK]": "<unk>",
        "[CLS]": "<s>",
        "[SEP]": "</s>",
        "[MASK]": "<mask>",
    }
    pieces = [names.get(piece, f"\u2581{piece}") for piece in PIECES]
    steps = [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "\u2581"}]
    content = {
        "model": {"unk_id": UNK, "vocab": [[piece, -1.0] for piece in pieces]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "added_tokens": [added(ids[old], new, special=True) for old, new in names.items()],
    }
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    unigram = Tokenizer.open(path)
    assert unigram.template == ROBERTAS
    other = dataclasses.replace(model, tokenizer=unigram)
    texts = ["the [MASK] of a cat", "[MASK] dog"]
    expected = fill(model, texts, 3)
    found = fill(other, texts, 3)
    for result, reference in zip(found, expected, strict=True):
        for one, two in zip(result, reference, strict=True):
            assert [g.token.strip("\u2581") for g in one] == [
                names.get(g.token, g.token) for g in two
            ]
            np.testing.assert_allclose(
                [g.probability for g in one], [g.probability for g in two], rounding(1)
            )
