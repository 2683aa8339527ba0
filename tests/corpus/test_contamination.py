"""Texts of tasks in documents."""

import random

import pytest

from bertjax.corpus.contamination import TaskTexts
from bertjax.corpus.ngrams import word_hashes, words

QUESTION = "Which of the two rivers, the Tana or the Athi, runs through the town of Garissa?"


def find(tasks, text):
    its_words = words(text)
    match = tasks.find(its_words, word_hashes(its_words))
    return match and (match.file, " ".join(match.words))


def test_a_planted_question_is_found_however_it_is_written():
    tasks = TaskTexts.of([(0, "a b c d e f g"), (1, QUESTION), (2, QUESTION)])
    assert (tasks.long, tasks.short) == (2, 1)
    first_13 = "which of the two rivers the tana or the athi runs through the"
    assert find(tasks, f"Before it. {QUESTION} After it.") == (1, first_13)
    assert find(tasks, QUESTION.upper().replace(",", " -")) == (1, first_13)
    last_13 = "two rivers the tana or the athi runs through the town of garissa"
    assert find(tasks, "x " + last_13) == (1, last_13)
    assert find(tasks, "x " + last_13.partition(" ")[2]) is None  # 12 words of a longer text
    assert find(tasks, "a b c d e f g") is None and find(tasks, "") is None


@pytest.mark.parametrize("length, found", [(7, False), (8, True), (12, True)])
def test_a_short_text_is_found_as_a_whole(length, found):
    text = " ".join(f"w{n}" for n in range(length))
    tasks = TaskTexts.of([(3, text), (5, QUESTION)])
    assert find(tasks, f"one two {text} three") == ((3, text) if found else None)
    assert find(tasks, text.rpartition(" ")[0]) is None


@pytest.mark.parametrize("seed", range(3))
def test_the_same_as_a_brute_force(tmp_path, seed):
    """Texts of two words, so that many n-grams are nearly found."""
    numbers = random.Random(seed)

    def some(count, longest):
        return [
            numbers.choices(["red", "blue"], k=numbers.randint(1, longest)) for _ in range(count)
        ]

    texts, documents = some(120, 31), some(331, 67)
    grams = {
        tuple(text[place : place + (n := min(13, len(text)))])
        for text in texts
        if len(text) >= 8
        for place in range(len(text) - min(13, len(text)) + 1)
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
        expected = any(
            tuple(document[place : place + n]) in grams
            for n in range(8, 14)
            for place in range(len(document) - n + 1)
        )
        match = tasks.find(document, word_hashes(document))
        assert (match is not None) == expected
        if match:
            assert tuple(match.words) in grams
            n = len(match.words)
            text = texts[match.file]
            assert match.words in [text[i : i + n] for i in range(len(text) - n + 1)]
            found += 1
    assert 0 < found < len(documents)
