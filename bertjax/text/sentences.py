"""Splits paragraphs into sentences with `sentencex`, which knows many languages' abbreviations."""

from bertjax.base.errors import InputError

# The languages whose rules `sentencex` 1.0 has, and Chinese, whose marks are among those of all
# languages. For any other code it silently takes the rules of a related language, or English ones.
LANGUAGES = (
    *("am", "ar", "bg", "bn", "ca", "da", "de", "el", "en", "es", "fi", "fr", "gu", "hi", "hy"),
    *("it", "ja", "kk", "kn", "ml", "mr", "my", "nl", "pa", "pl", "pt", "ru", "sk", "ta", "te"),
    "zh",
)


def check_language(language: str) -> None:
    """Raises InputError unless there are rules for a language; "pt-br" has those of "pt"."""
    if language.partition("-")[0] not in LANGUAGES:
        raise InputError(
            f"--language={language}: there are no rules for it, only for {', '.join(LANGUAGES)}: "
            "choose a language that writes the ends of sentences and abbreviations alike, or en"
        )


def split_sentences(paragraph: str, language: str = "en") -> list[str]:
    """The sentences of a paragraph in order, without surrounding white space."""
    from sentencex import segment

    sentences = (sentence.strip() for sentence in segment(language, paragraph))
    return [sentence for sentence in sentences if sentence]
