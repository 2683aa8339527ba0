"""Domain words in the [unusedN] places: their choice, their places, and the saved pieces."""

import json
from collections import Counter

import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.sampling import document_hash, is_held_out
from bertjax.programs import prepare
from bertjax.text.domain_words import choose_words
from bertjax.text.extension import extends
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = [
    *["[PAD]", "[unused0]", "[unused1]", *SPECIAL_TOKENS[1:], "[unused2]", "[unused10]"],
    *["the", "cell", "gene", "##s", "##tic", ".", ",", "7", "##7"],
    *LETTERS,
    *[f"##{letter}" for letter in LETTERS if letter != "s"],
]
# The pieces of each word, by longest match, and the pieces that it saves over all documents:
#   genetic = gene ##tic: 1 x 12    cells = cell ##s: 1 x 12    kinase = k ##i ... ##e: 5 x 6
#   genes = gene ##s: 1 x 9         oxid = o ##x ##i ##d: 3 x 3 ("Oxíd" is the same word)
#   zygote, 5 x 2: too few;         77, 1 x 12: no letters;     "\u03b2": [UNK], one piece
PARAGRAPHS = (
    ["The genetic, cells. Cells genetic 77 77 \u03b2"] * 6
    + ["kinase the genes"] * 6
    + ["genes, oxid", "genes Oxíd", "genes oxid."]
    + ["the zygote"] * 2
)
BEST = ["kinase", "cells", "genetic", "genes"]


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\r\n".join(PIECES).encode() + b"\n")
    return path


@pytest.fixture
def source(tmp_path):
    # Additional words make the documents different, because equal documents have equal hashes.
    documents = [f"{p}\n{'the ' * (1 + i)}" for i, p in enumerate(PARAGRAPHS)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents) + "\n")
    return f"text:{tmp_path / 'text.txt'}"


def run(source, output, vocabulary, **more):
    return prepare.run(
        [source], output, vocabulary=vocabulary, **dict(held_out=0.0, workers=1) | more
    )


def test_a_word_counts_by_the_pieces_that_it_saves(vocabulary):
    """A word that saves 3 x 4 pieces comes before a word that saves 1 x 9."""
    counts = Counter({"genes": 9, "oxid": 4})
    assert choose_words(counts, Tokenizer.open(vocabulary), 2) == ["oxid", "genes"]


@pytest.mark.parametrize("number", [1, 3, 4])
def test_best_words_take_the_lowest_places(source, vocabulary, tmp_path, capsys, number):
    report = run(source, tmp_path / "corpus", vocabulary, domain_words=number)
    places = [1, 2, 7, 8][:number]
    lines = vocabulary.read_bytes().split(b"\n")
    for place, word in zip(places, BEST, strict=False):
        lines[place] = word.encode() + b"\r"
    assert (tmp_path / "corpus" / "vocab.txt").read_bytes() == b"\n".join(lines)

    before, after = Tokenizer.open(vocabulary), Tokenizer.open(tmp_path / "corpus")
    assert [after.tokens[place] for place in places] == BEST[:number]
    texts = (tmp_path / "text.txt").read_text().split("\n\n")
    direct = [sum(map(len, each.encode(texts))) for each in (before, after)]
    domain = report["new_pieces"]
    assert domain["pieces"] == BEST[:number]
    assert [domain["sample_pieces_before"], domain["sample_pieces_after"]] == direct
    assert direct[0] - direct[1] == sum([30, 12, 12, 9][:number])
    assert domain["saved_percent"] == pytest.approx(100 * (direct[0] - direct[1]) / direct[0])
    assert report["train"]["tokens"] == direct[1]
    line = f"{number} new pieces save {direct[0] - direct[1]} ({domain['saved_percent']:.2f}%)"
    assert line in capsys.readouterr().out
    plan = json.loads((tmp_path / "corpus" / "plan.json").read_bytes())
    assert plan["vocabulary"]["domain_words"] == number


def test_held_out_text_is_not_read(source, vocabulary, tmp_path):
    report = run(source, tmp_path / "corpus", vocabulary, domain_words=1, held_out=0.3)
    texts = (tmp_path / "text.txt").read_text().strip("\n").split("\n\n")
    paragraphs = [[p.strip() for p in text.split("\n")] for text in texts]
    assert any(is_held_out(document_hash(each), 0.3) for each in paragraphs)
    assert report["new_pieces"]["sample_pieces_after"] == report["train"]["tokens"]


def test_again_is_the_same_and_otherwise_is_refused(source, vocabulary, tmp_path):
    output = tmp_path / "corpus"
    report = run(source, output, vocabulary, domain_words=2)
    files = {p: p.read_bytes() for p in sorted(output.rglob("*")) if p.is_file()}
    assert run(source, output, vocabulary, domain_words=2) == report
    assert files == {p: p.read_bytes() for p in sorted(output.rglob("*")) if p.is_file()}
    (output / "report.json").unlink()
    assert run(source, output, vocabulary, domain_words=2)["new_pieces"] == report["new_pieces"]
    for number in (0, 3):
        with pytest.raises(InputError, match="holds a corpus with other settings"):
            run(source, output, vocabulary, domain_words=number)


def test_fewer_words_than_places(tmp_path, vocabulary, capsys):
    (tmp_path / "text.txt").write_text("the genes genes\nkinase genes\n")
    source = f"text:{tmp_path / 'text.txt'}"
    report = run(source, tmp_path / "corpus", vocabulary, domain_words=4)
    assert report["new_pieces"]["pieces"] == ["genes"]
    assert "only 1 pieces to add, not 4" in capsys.readouterr().out
    assert Tokenizer.open(tmp_path / "corpus").tokens[2] == "[unused1]"


@pytest.mark.parametrize(
    "more, message",
    [
        (dict(domain_words=5), "domain_words=5: .* has only 4 .unusedN. pieces"),
        (dict(domain_words=-1), "domain_words=-1: a number of words"),
        (dict(domain_words=1, vocabulary=None, learn_vocabulary=99), "give --vocabulary=vocab.txt"),
    ],
)
def test_bad_requests(source, vocabulary, tmp_path, more, message):
    with pytest.raises(InputError, match=message):
        run(source, tmp_path / "corpus", **dict(vocabulary=vocabulary) | more)
    assert not (tmp_path / "corpus").exists()


def test_sentencepiece_has_no_places(source, tmp_path):
    options = dict(learn_vocabulary=30, tokenizer="sentencepiece", held_out=0.0, workers=1)
    prepare.run([source], tmp_path / "first", **options)
    model = tmp_path / "first" / "sentencepiece.model"
    with pytest.raises(InputError, match="is a sentencepiece one, and only a wordpiece one"):
        run(source, tmp_path / "corpus", model, domain_words=1)
    assert not (tmp_path / "corpus").exists()


def test_weights_go_on_with_domain_words(source, vocabulary, tmp_path):
    run(source, tmp_path / "corpus", vocabulary, domain_words=3)
    old = Tokenizer.open(vocabulary)
    assert extends(Tokenizer.open(tmp_path / "corpus"), old)
    for pieces in (
        [piece if piece != "cell" else "cells" for piece in PIECES],  # a piece in use
        [piece for piece in PIECES if piece != "[unused10]"],
    ):
        vocabulary.write_text("\n".join(pieces))
        assert not extends(Tokenizer.open(vocabulary), old)
