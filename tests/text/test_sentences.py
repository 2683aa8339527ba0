"""Splitting paragraphs into sentences."""

import pytest

from bertjax.base.errors import InputError
from bertjax.text.sentences import check_language, split_sentences


def test_abbreviations_do_not_end_a_sentence():
    paragraph = "Dr. Smith went to Washington D.C. on Jan. 5.  He came back, i.e. soon. Why?"
    assert split_sentences(paragraph) == [
        "Dr. Smith went to Washington D.C. on Jan. 5.",
        "He came back, i.e. soon.",
        "Why?",
    ]


def test_nothing_is_lost_but_white_space():
    paragraph = "  One. Two!  Three?\tNo end  "
    sentences = split_sentences(paragraph)
    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)
    assert split_sentences("   ") == split_sentences("") == []


def test_another_language():
    assert split_sentences("今日は晴れです。明日は雨です。", "ja") == [
        "今日は晴れです。",
        "明日は雨です。",
    ]


def test_language_codes():
    for language in ("en", "de", "zh", "pt-br"):
        check_language(language)
    for language in ("", "English", "e", "en_US", "xx", "yo", "qqq-Latn"):
        with pytest.raises(InputError, match=f"--language={language}: there are no rules for it"):
            check_language(language)
