"""The family of tagging tasks: windows of words, and a tag for each word."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.tasks.encoded import IGNORED
from bertjax.tasks.tagging import NO_DOCUMENT, Sentence, Tagging
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn

CLASSES = ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """A tokenizer with a piece for each letter: a word of n letters has n tokens."""
    path = tmp_path_factory.mktemp("letters") / "vocab.txt"
    pieces = [*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), '"', "é", "東"]
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return Tokenizer.open(path, cased=True)


def sentence(words: str, tags: str | None = None, document: int = 1) -> Sentence:
    return Sentence(tuple(words.split()), tags and tuple(tags.split()), document, "a.txt line 1")


def tokens(tokenizer, encoded):
    """The text of each sequence."""
    bounds = zip(encoded.starts, encoded.starts[1:], strict=False)
    return [" ".join(tokenizer.tokens[i] for i in encoded.ids[a:b]) for a, b in bounds]


def test_words_have_the_space_before_them(tmp_path):
    """The ids of a sentence are those of its text, where the tokenizer keeps spaces."""
    path = tmp_path / "bpe.json"
    learn("bpe", ["the cat sat on the mat"] * 3, path, size=270, cased=True)
    bpe = Tokenizer.open(path)
    encoded = Tagging(CLASSES).encode([sentence("the cat é", "O O O")], bpe, 20, labelled=True)
    assert encoded.ids[1:-1].tolist() == bpe.encode(["the cat é"])[0]
    assert [bpe.decode([encoded.ids[i]]) for i in encoded.words[:2]] == ["the", " cat"]


def outputs_of(encoded, class_ids):
    """Logits that predict `class_ids` (of all words) at the first tokens, and noise elsewhere."""
    logits = np.random.default_rng(0).normal(size=(len(encoded.ids), len(CLASSES)))
    logits[encoded.words] = np.eye(len(CLASSES))[class_ids]
    return {"logits": np.split(logits.astype(np.float32), encoded.starts[1:-1])}


def test_labels_stand_at_first_tokens(tokenizer):
    family = Tagging(CLASSES)
    examples = [
        sentence("ab c", "B-PER O"),
        sentence("def", "B-LOC"),
        sentence("g", "O", document=2),
    ]
    encoded = family.encode(examples, tokenizer, 20, labelled=True)
    assert tokens(tokenizer, encoded) == ["[CLS] a ##b c d ##e ##f [SEP]", "[CLS] g [SEP]"]
    assert encoded.labels["label_ids"].tolist() == [-1, 2, -1, 0, 1, -1, -1, -1, -1, 0, -1]
    assert encoded.token_types.tolist() == [0] * 11
    assert encoded.words.tolist() == [1, 3, 4, 9]
    assert len(encoded) == 2

    batch = encoded.batch(
        TASK_LOSSES["token_classification"].fields, np.array([1, 0]), 3, 9, tokenizer.pad_id
    )
    assert batch["label_ids"].tolist() == [
        [-1, 0, -1, *[-1] * 6],
        [-1, 2, -1, 0, 1, -1, -1, -1, -1],
        [-1] * 9,
    ]
    assert not batch["token_type_ids"].any()


def test_without_document_context_a_sentence_is_a_sequence(tokenizer):
    examples = [sentence("ab c"), sentence("def"), sentence("g")]
    encoded = Tagging(CLASSES, document_context=False).encode(
        examples, tokenizer, 20, labelled=False
    )
    assert tokens(tokenizer, encoded) == [
        "[CLS] a ##b c [SEP]",
        "[CLS] d ##e ##f [SEP]",
        "[CLS] g [SEP]",
    ]
    alone = [sentence("ab c", document=NO_DOCUMENT), sentence("def", document=NO_DOCUMENT)]
    encoded = Tagging(CLASSES).encode(alone, tokenizer, 20, labelled=False)
    assert len(encoded) == 2
    assert encoded.labels == {}


def test_odd_words(tokenizer):
    """Quotes, marks, control characters and empty words: each has a first token and a tag."""
    words = (
        "\x00",
        '"',
        "",
        "é",
        "a",
        "\u200b",
        "東京",
        "x" * 101,
        "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    )
    example = Sentence(words, ("O",) * len(words), 1, "here")
    family = Tagging(CLASSES)
    encoded = family.encode([example], tokenizer, 64, labelled=True)
    assert tokens(tokenizer, encoded) == [
        '[CLS] [UNK] " [UNK] é a [UNK] 東 [UNK] [UNK] [UNK] [SEP]'
    ]
    assert (encoded.labels["label_ids"] == 0).sum() == len(words)
    gold = np.arange(len(words)) % len(CLASSES)
    (prediction,) = family.decode([example], encoded, outputs_of(encoded, gold))
    assert family.tags(prediction) == tuple(CLASSES[number] for number in gold)


def test_a_sentence_longer_than_the_window_loses_no_word(tokenizer):
    words = tuple(LETTERS)
    family = Tagging(CLASSES)
    examples = [sentence("zz"), Sentence(words, ("O",) * 26, 1, "here"), sentence("yy")]
    encoded = family.encode(examples, tokenizer, 10, labelled=False)
    first = [tokenizer.tokens[i] for i in encoded.ids[encoded.words]]
    assert first == ["z", *words, "y"]
    assert encoded.lengths.max() == 10
    # The context includes the neighbouring sentences.
    assert tokens(tokenizer, encoded)[0] == "[CLS] z ##z a b c d e f [SEP]"
    assert tokens(tokenizer, encoded)[-1] == "[CLS] u v w x y z y ##y [SEP]"


def test_a_word_longer_than_the_window_is_cut(tokenizer):
    encoded = Tagging(CLASSES).encode([sentence("abcdefgh i")], tokenizer, 6, labelled=False)
    assert tokens(tokenizer, encoded) == ["[CLS] a ##b ##c ##d [SEP]", "[CLS] i [SEP]"]
    assert encoded.cut == {4: 1}


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("seed", range(15))
def test_any_documents_go_in_and_come_out(tokenizer, seed, context, labelled):
    rng = np.random.default_rng(seed)
    family, examples = Tagging(CLASSES, context), []
    for document in range(5):
        for _ in range(rng.integers(1, 8)):
            # Each document has words of one letter, which shows the origin of context.
            words = [LETTERS[document] * rng.integers(1, 4) for _ in range(rng.integers(0, 9))]
            tags = rng.choice(CLASSES, len(words)).tolist()
            examples.append(Sentence(tuple(words), tuple(tags), document, "here"))
    max_length = int(rng.integers(5, 30))
    encoded = family.encode(examples, tokenizer, max_length, labelled=labelled)
    words = [word for each in examples for word in each.words]
    assert len(set(encoded.words)) == len(words)
    assert [tokenizer.tokens[i] for i in encoded.ids[encoded.words]] == [word[0] for word in words]
    assert encoded.lengths.max() <= max_length
    for text in tokens(tokenizer, encoded):
        assert text.startswith("[CLS] ") and text.endswith(" [SEP]")
        assert len(set(text[6:-6].replace("##", "").split())) == 1  # of one document
    gold = family.class_ids(examples)
    if labelled:
        assert encoded.labels["label_ids"][encoded.words].tolist() == gold.tolist()
        assert (encoded.labels["label_ids"] != IGNORED).sum() == len(words)
    predictions = family.decode(examples, encoded, outputs_of(encoded, gold))
    assert list(map(family.tags, predictions)) == [each.tags for each in examples]


def test_nothing_to_tag(tokenizer):
    family = Tagging(CLASSES)
    for examples in ([], [sentence("")]):
        encoded = family.encode(examples, tokenizer, 10, labelled=False)
        assert len(encoded) == 0
        predictions = family.decode(examples, encoded, {"logits": []})
        assert list(map(family.tags, predictions)) == [()] * len(examples)
        assert family.degenerate(predictions, {}) == ""


def test_bad_examples(tokenizer):
    with pytest.raises(InputError, match="a.txt line 1: 2 words, but 1 tags"):
        sentence("a b", "O")
    family = Tagging(CLASSES)
    with pytest.raises(InputError, match=r"a.txt line 1: the tag 'B-ORG' of word 2 \('b'\)"):
        family.encode([sentence("a b", "O B-ORG")], tokenizer, 10, labelled=True)
    with pytest.raises(InputError, match="a.txt line 1: no tags"):
        family.encode([sentence("a b")], tokenizer, 10, labelled=True)


def test_degenerate():
    family = Tagging(CLASSES)
    certain = np.eye(len(CLASSES))
    assert family.degenerate([certain[[0, 0]], certain[[]], certain[[0]]], {}) == "all tags are 'O'"
    assert family.degenerate([certain[[0, 2]]], {}) == ""


def test_new_text():
    family = Tagging(CLASSES)
    line = family.parse("Emil  Nolde in\tSeebüll", "stdin line 1")
    assert line == Sentence(("Emil", "Nolde", "in", "Seebüll"), None, 0, "stdin line 1")
    assert family.parse('{"words": ["Emil", "von B"]}', "x").words == ("Emil", "von B")
    assert family.parse('{"words": "Emil  von B"}', "x").words == ("Emil", "von", "B")
    assert family.parse("", "x").words == ()
    for bad in ('{"words": ["Emil"]', '{"tokens": []}', '{"words": 7}', '{"words": [1]}'):
        with pytest.raises(InputError, match="here: "):
            family.parse(bad, "here")

    assert family.show(line, np.eye(len(CLASSES))[[2, 4, 0, 1]], {}) == {
        "words": ["Emil", "Nolde", "in", "Seebüll"],
        "tags": ["B-PER", "I-PER", "O", "B-LOC"],
        "entities": [
            {"type": "PER", "start": 0, "stop": 2, "text": "Emil Nolde"},
            {"type": "LOC", "start": 3, "stop": 4, "text": "Seebüll"},
        ],
    }
    assert "entities" not in Tagging(("NN", "O")).show(line, np.eye(2)[[0] * 4], {})
