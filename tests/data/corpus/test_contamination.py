"""Texts of tasks in documents."""

import random

import pytest

from bertjax.data.corpus.contamination import TaskTexts
from bertjax.data.corpus.ngrams import word_hashes, words

QUESTION = "Which of the two rivers, the Tana or the Athi, runs through the town of Garissa?"


def find(tasks, text):
    """The file and the words of each match."""
    found = words(text)
    return [
        (tasks.file(match.gram), " ".join(found[match.place : match.place + match.length]))
        for match in tasks.find(word_hashes(found))
    ]


def test_a_planted_question_is_found_however_it_is_written():
    tasks = TaskTexts.of([(0, "a b c d e f g"), (1, QUESTION), (2, QUESTION)])
    assert (tasks.long, tasks.short) == (2, 1)
    first_13 = "which of the two rivers the tana or the athi runs through the"
    whole = words(QUESTION)
    every_13 = [(1, " ".join(whole[n : n + 13])) for n in range(len(whole) - 12)]
    assert every_13[0] == (1, first_13) and len(every_13) == 4
    assert find(tasks, f"Before it. {QUESTION} After it.") == every_13
    assert find(tasks, QUESTION.upper().replace(",", " -")) == every_13
    last_13 = "two rivers the tana or the athi runs through the town of garissa"
    assert find(tasks, "x " + last_13) == [(1, last_13)] == every_13[-1:]
    assert find(tasks, "x " + last_13.partition(" ")[2]) == []  # 12 words of a longer text
    assert find(tasks, "a b c d e f g") == find(tasks, "") == []


@pytest.mark.parametrize("length, found", [(7, False), (8, True), (12, True)])
def test_a_short_text_is_found_as_a_whole(length, found):
    text = " ".join(f"w{n}" for n in range(length))
    tasks = TaskTexts.of([(3, text), (5, QUESTION)])
    assert find(tasks, f"one two {text} three") == ([(3, text)] if found else [])
    assert find(tasks, text.rpartition(" ")[0]) == []


@pytest.mark.parametrize("seed", range(3))
def test_the_same_as_a_brute_force(tmp_path, seed):
    """Texts of two words, so that many n-grams are nearly found."""
    numbers = random.Random(seed)

    def some(count, longest):
        return [
            numbers.choices(["red", "blue"], k=numbers.randint(1, longest)) for _ in range(count)
        ]

    texts, documents = some(120, 31), some(331, 67)
    lengths = [min(13, len(text)) for text in texts]
    grams = {
        tuple(text[place : place + n])
        for text, n in zip(texts, lengths, strict=True)
        if n >= 8
        for place in range(len(text) - n + 1)
    }
    tasks = TaskTexts.of((n, " ".join(text)) for n, text in enumerate(texts))
    tasks.save(tmp_path / "tasks.npz")
    tasks = TaskTexts.open(tmp_path / "tasks.npz")
    assert (tasks.long, tasks.short) == (
        sum(len(text) >= 8 for text in texts),
        sum(len(text) < 8 for text in texts),
    )
    found = 0
    for document in documents:
        expected = [
            document[place : place + n]
            for n in range(8, 14)
            for place in range(len(document) - n + 1)
            if tuple(document[place : place + n]) in grams
        ]
        got = find(tasks, " ".join(document))
        assert [each.split() for _, each in got] == expected
        assert all(each in " ".join(texts[file]) for file, each in got)
        found += bool(got)
    assert 0 < found < len(documents)
