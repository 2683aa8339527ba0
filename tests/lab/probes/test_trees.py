"""Dependency trees of CoNLL-U files: what is read, and the errors."""

import lzma

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.lab.probes.trees import read_trees
from tests.helpers.conllu import conllu

# "The dog , it barked": it <- barked, dog <- barked, the <- dog, the comma <- it.
HEADS = [2, 5, 4, 5, 0]
WORDS = ["The", "dog", ",", "it", "barked"]


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "some.conllu"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_tree(file):
    (tree,) = read_trees(file(conllu(WORDS, HEADS, punctuation=[2])))
    assert tree.words == WORDS and tree.where.endswith("some.conllu line 2")
    assert tree.heads.tolist() == [1, 4, 3, 4, -1]
    assert tree.punctuation.tolist() == [False, False, True, False, False]
    assert tree.depths.tolist() == [2, 1, 2, 1, 0]
    assert tree.distances.tolist() == [
        [0, 1, 4, 3, 2],
        [1, 0, 3, 2, 1],
        [4, 3, 0, 1, 2],
        [3, 2, 1, 0, 1],
        [2, 1, 2, 1, 0],
    ]


def test_distances_are_those_of_the_shortest_paths(file):
    """Of a random tree of 23 words, by Floyd and Warshall's algorithm."""
    random = np.random.default_rng(3)
    heads = [0, *(int(random.integers(1, n + 1)) for n in range(1, 23))]
    (tree,) = read_trees(file(conllu([f"w{n}" for n in range(23)], heads)))
    steps = np.full((23, 23), 99)
    np.fill_diagonal(steps, 0)
    for word, head in enumerate(heads):
        if head:
            steps[word, head - 1] = steps[head - 1, word] = 1
    for middle in range(23):
        steps = np.minimum(steps, steps[:, middle, None] + steps[middle])
    np.testing.assert_array_equal(tree.distances, steps)
    np.testing.assert_array_equal(tree.depths, steps[0])


def test_parts_of_words_and_words_that_are_not_there(tmp_path):
    lines = conllu(["do", "n't", "go"], [3, 3, 0]).split("\n")
    lines.insert(1, "\t".join(["1-2", "don't", *"_" * 8]))
    lines.insert(4, "\t".join(["2.1", "ever", *"_" * 8]))
    path = tmp_path / "some.conllu.xz"
    path.write_bytes(lzma.compress("\n".join(lines).encode()))
    (tree,) = read_trees(path)
    assert tree.words == ["do", "n't", "go"]


@pytest.mark.parametrize(
    "text, message",
    [
        (conllu(WORDS, [2, 0, 4, 5, 0]), "line 2: 2 words have the head 0: a tree has one root"),
        (conllu(WORDS, [2, 1, 4, 5, 3]), "line 2: 0 words have the head 0"),
        (conllu(WORDS, [2, 1, 4, 5, 0]), "line 2: the heads above word 1 run in a circle"),
        (conllu(WORDS, [2, 9, 4, 5, 0]), "line 3: its head is '9'"),
        (conllu(WORDS, ["_"] * 5), "line 2: its head is '_'.*a file with dependencies"),
        (conllu(WORDS, ["9" * 5000, *HEADS[1:]]), "line 2: its head is '9{79}: it must be"),
        (conllu(WORDS, ["２", *HEADS[1:]]), "line 2: its head is '２'"),
        (conllu(WORDS, HEADS).replace("3\t", "3" * 5000 + "\t", 1), "has the number 3{80}, and"),
        (conllu(WORDS, HEADS).replace("3\t", "4\t", 1), "line 4: the word has the number 4"),
        ("one\ttwo\n\n", "line 1: 2 columns between tabs, where CoNLL-U has 10"),
        ("# nothing\n\n", "no sentence in it"),
    ],
)
def test_the_errors(file, text, message):
    with pytest.raises(InputError, match=message):
        read_trees(file(text))
