"""Paragraphs to sentences; the library `sentencex` knows the abbreviations of many languages."""

import re

from bertjax.errors import InputError

# ISO 639 codes, perhaps with a script or region. The library takes a language it does not know
# for a related one or for English, so only a mistyped code can be refused.
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]+)*")


def check_language(language: str) -> None:
    """Raises InputError unless `language` looks like a language code, such as "en"."""
    if not _LANGUAGE.fullmatch(language):
        raise InputError(f"--language={language}: not a language code such as en, de or pt-br.")


def split_sentences(paragraph: str, language: str = "en") -> list[str]:
    """The sentences of a paragraph in order, without the white space around them."""
    from sentencex import segment

    sentences = (sentence.strip() for sentence in segment(language, paragraph))
    return [sentence for sentence in sentences if sentence]
