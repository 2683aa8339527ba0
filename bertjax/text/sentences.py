"""Splits paragraphs into sentences with `sentencex`, which knows many languages' abbreviations."""

import re

from bertjax.base.errors import InputError

# An ISO 639 code, which a script or region may follow. For an unknown language the library uses a
# related one or English, so only the form of the code can be checked.
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")


def check_language(language: str) -> None:
    """Raises InputError unless `language` looks like a language code, such as "en"."""
    if not _LANGUAGE.fullmatch(language):
        raise InputError(f"--language={language}: not a language code such as en, de or pt-br.")


def split_sentences(paragraph: str, language: str = "en") -> list[str]:
    """The sentences of a paragraph in order, without surrounding white space."""
    from sentencex import segment

    sentences = (sentence.strip() for sentence in segment(language, paragraph))
    return [sentence for sentence in sentences if sentence]
