"""Sources that name their language, as in "sw=text:swahili/*.txt", and the shares of languages."""

import re
from collections.abc import Sequence

import numpy as np

from bertjax.base.errors import InputError

PARALLEL = "parallel"  # the kind of the sources of `bertjax.data.corpus.parallel`
_NAMED = re.compile(r"(?P<language>[a-z]{2,3}(?:-[A-Za-z0-9]+)*)=(?P<spec>.+)", re.DOTALL)
# A subtag that is no language has a capital or a digit at its beginning, as in zh-Hant.
_CODE = r"[a-z]{2,3}(?:-[A-Z0-9][A-Za-z0-9]*)*"
_PAIR = re.compile(rf"({_CODE})-({_CODE})")


def split_language(source: str) -> tuple[str, str]:
    """("sw", "text:...") of "sw=text:..."; ("", source) of a source without a language."""
    match = _NAMED.fullmatch(source)
    return (match["language"], match["spec"]) if match else ("", source)


def is_parallel(source: str) -> bool:
    """Whether the documents of a source are pairs of a text and its translation."""
    return split_language(source)[1].startswith(f"{PARALLEL}:")


def languages_of(source: str) -> tuple[str, ...]:
    """("en", "sw") of "en-sw=parallel:...", ("sw",) of "sw=text:..."; () if it names none."""
    language, _ = split_language(source)
    if not language or not is_parallel(source):
        return (language,) if language else ()
    pair = _PAIR.fullmatch(language)
    if not pair:
        raise InputError(
            f"--source={source}: {language!r} is not a pair of languages: write the codes of both "
            "texts, as in en-sw=parallel:..."
        )
    return pair.groups()


def check_languages(sources: Sequence[str]) -> None:
    """Raises InputError if some sources name their language, or their pair, and others do not."""
    for source in sources:
        languages_of(source)
    missing = [source for source in sources if not split_language(source)[0]]
    if missing and len(missing) < len(sources):
        raise InputError(
            f"--source={missing[0]} names no language but another does: write its code before all "
            "sources, as in sw=text:..., or before none."
        )


def language_shares(languages: Sequence[str], sizes: Sequence[float], alpha: float) -> list[float]:
    """The share of each source: its language's size to the power alpha, divided by size in it.

    With alpha below 1, languages with little text come more often (arXiv 1901.07291, section 3.1).
    """
    names = sorted(set(languages))
    of = np.array([names.index(language) for language in languages])
    sizes_by_language = np.bincount(of, weights=sizes)
    tempered = (sizes_by_language / sizes_by_language.sum()) ** alpha
    return (tempered[of] / tempered.sum() * np.asarray(sizes) / sizes_by_language[of]).tolist()


def table(languages: Sequence[str], sizes: Sequence[float], shares: Sequence[float]) -> str:
    """Lines with each language's share of the text and of what is drawn."""
    names = list(dict.fromkeys(languages))
    lines = ["language  share of the text  share of what is drawn"]
    for name in names:
        text, drawn = (
            sum(
                number
                for language, number in zip(languages, numbers, strict=True)
                if language == name
            )
            for numbers in (sizes, shares)
        )
        lines.append(f"{name:8}  {text / sum(sizes):17.1%}  {drawn:22.1%}")
    return "\n".join(lines)
