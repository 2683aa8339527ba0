"""Makes text for launch/prepare_corpus.py of slices of BabyLM's corpus that have no lines.

  python tests/benchmarks/babylm_text.py --input=FOLDER --output=babylm.txt

FOLDER has childes.train.xz, gutenberg.train.xz and simple_wiki.train.xz. The output has a sentence
on each line. An article is a document; of talk and of books, 200 sentences are one. What CHILDES
notes in brackets or marks by signs is left out, and so are headings.
"""

import argparse
import lzma
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

SENTENCES = 200  # of a document that has no heading
_NOTE = re.compile(r"\[[^\]]*\]|[<>+/&=@%]\S*")
_SPEAKER = re.compile(r"\*[A-Z]{3}\s*:\s*")
_BEFORE_SIGN = re.compile(r"\s+([.?!,])")
_SECTION = re.compile(r"= = = [^=]{1,80} = = =|_")
_HEADING = re.compile(r"= = = [^=]{1,120} = = =|= [^=]{1,120} =")
_END = re.compile(r"(?<=[.?!])[\"”’']?\s+(?=[\"“‘A-Z(])")  # of a sentence


def childes(text: str) -> Iterator[list[str]]:
    """Yields documents: talk, one utterance a sentence."""
    said = _SPEAKER.split(_NOTE.sub(" ", text))
    yield from _sections(_BEFORE_SIGN.sub(r"\1", each) for each in said)


def gutenberg(text: str) -> Iterator[list[str]]:
    """Yields documents: sections of books."""
    yield from _sections(_END.split(_SECTION.sub("", text)))


def simple_wiki(text: str) -> Iterator[list[str]]:
    """Yields documents: what stands between two headings."""
    for article in _HEADING.split(text):
        yield _plain(_END.split(article.replace("=", " ").replace("\ufffd", "")))


def _sections(sentences: Iterable[str]) -> Iterator[list[str]]:
    kept = _plain(sentences)
    for start in range(0, len(kept), SENTENCES):
        yield kept[start : start + SENTENCES]


def _plain(sentences: Iterable[str]) -> list[str]:
    """The sentences that have text, with single spaces."""
    return [text for each in sentences if (text := " ".join(each.split()))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--input", type=Path, required=True, help="the folder of the slices")
    parser.add_argument("--output", type=Path, required=True, help="a text file")
    arguments = parser.parse_args()
    words = 0
    with arguments.output.open("w") as file:
        for documents in (childes, gutenberg, simple_wiki):
            path = arguments.input / f"{documents.__name__}.train.xz"
            for sentences in filter(None, documents(lzma.open(path, "rt").read())):
                file.write("\n".join(sentences) + "\n\n")
                words += sum(len(sentence.split()) for sentence in sentences)
    print(f"{arguments.output}: {words:,} words")


if __name__ == "__main__":
    main()
