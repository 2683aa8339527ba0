"""Splits paragraphs into sentences with `sentencex`, which knows many languages' abbreviations."""

import re

from bertjax.base.errors import InputError

# The languages whose rules `sentencex` 1.0 has, and Chinese, whose marks are among those of all
# languages. For any other code it silently takes the rules of a related language, or English ones.
# The last four are split here as well.
LANGUAGES = (
    *("am", "ar", "bg", "bn", "ca", "da", "de", "el", "en", "es", "fi", "fr", "gu", "hi", "hy"),
    *("it", "ja", "kk", "kn", "ml", "mr", "my", "nl", "pa", "pl", "pt", "ru", "sk", "ta", "te"),
    *("zh", "th", "lo", "km", "bo"),
)
# Marks that `sentencex` does not know: in Khmer and Tibetan those at the end of a sentence; in Thai
# and Lao, which have no such mark and no spaces between words, the space.
_MORE_ENDS = re.compile(
    "(?<=[\u17d4\u17d5\u0f0d\u0f0e])(?![\u17d4\u17d5\u0f0d\u0f0e])|"
    "(?<=[\u0e00-\u0eff])[ \u200b]+(?=[\u0e00-\u0eff])"
)


def has_rules(language: str) -> bool:
    """Whether there are rules for a language; "pt-br" has those of "pt"."""
    return language.partition("-")[0] in LANGUAGES


def check_language(language: str) -> None:
    """Raises InputError unless there are rules for a language."""
    if not has_rules(language):
        raise InputError(
            f"--language={language}: there are no rules for it, only for {', '.join(LANGUAGES)}: "
            "choose a language that writes the ends of sentences and abbreviations alike, or en"
        )


def split_sentences(paragraph: str, language: str = "en") -> list[str]:
    """The sentences of a paragraph in order, without surrounding white space."""
    from sentencex import segment

    found = segment(language, paragraph)
    if not paragraph.isascii():
        found = [piece for sentence in found for piece in _MORE_ENDS.split(sentence)]
    return [sentence for sentence in map(str.strip, found) if sentence]
