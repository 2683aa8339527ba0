"""Column files of tagged words: CoNLL-2003's, and one's own in the same form.

A line is a word and what is known of it, in columns between spaces or tabs; an empty line ends a
sentence; a line -DOCSTART- begins a document.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from bertjax.errors import InputError
from bertjax.files import atomic_write
from bertjax.tasks import official_files
from bertjax.tasks.entity_scores import OUTSIDE, accuracy, entity_scores, iob2, is_entity_tag
from bertjax.tasks.tagging import NO_DOCUMENT, Sentence, Tagging
from bertjax.tasks.task import TRAIN

_DOCUMENT = "-DOCSTART-"
_OFFICIAL = {
    TRAIN: ("eng.train", "train.txt"),
    "dev": ("eng.testa", "valid.txt", "dev.txt"),
    "test": ("eng.testb", "test.txt"),
}
_SEPARATOR = re.compile("[ \t]+")


@dataclasses.dataclass(frozen=True)
class Conll:
    """Named entities in CoNLL-2003, or tags of one's own in column files.

    Attributes:
      data: the folder; files in it may be compressed (.gz .xz).
      train, dev, test: names of the files, if not the official ones (eng.train, eng.testa,
        eng.testb; train.txt, valid.txt or dev.txt, test.txt). There need not be a test file, and
        it need not have tags.
      word_column, tag_column: from 0; negative ones count from the last.
      entities: tags are of entities, in any scheme (IOB1, IOB2, IOE, IOBES, BILOU): they are read
        as IOB2, and scored as entities. If not, each tag is a class, and accuracy is scored.
      document_context: see `Tagging`.
    """

    data: str
    train: str = ""
    dev: str = ""
    test: str = ""
    word_column: int = 0
    tag_column: int = -1
    entities: bool = True
    document_context: bool = True

    name = "NER"

    @property
    def metric(self) -> str:
        return "f1" if self.entities else "accuracy"

    @cached_property
    def dev_splits(self) -> tuple[str, ...]:
        """The test file too, if it has tags: it is scored, but chooses nothing."""
        return ("dev", *(split for split in self._test if self.read(split)[0].tags is not None))

    @cached_property
    def test_splits(self) -> tuple[str, ...]:
        return tuple(split for split in self._test if split not in self.dev_splits)

    @property
    def _test(self) -> tuple[str, ...]:
        there = self.test or official_files.exists(Path(self.data), *_OFFICIAL["test"])
        return ("test",) if there else ()

    @cached_property
    def family(self) -> Tagging:
        """Its classes are the tags of the training file.

        Raises:
          InputError: no such file, or what is wrong in it.
        """
        tags = {tag for sentence in self._training for tag in sentence.tags}
        if self.entities:
            types = {tag[2:] for tag in tags if tag != OUTSIDE}
            tags = {f"{prefix}-{kind}" for kind in types for prefix in "BI"}
            return Tagging((OUTSIDE, *sorted(tags)), self.document_context)
        return Tagging(tuple(sorted(tags)), self.document_context)

    @cached_property
    def _training(self) -> list[Sentence]:
        return list(self._sentences(TRAIN, known=None))

    def read(self, split: str) -> list[Sentence]:
        """The sentences of a split.

        Raises:
          InputError: no such file; a line with too few or too many columns; a tag that is none,
            or is not in the training file; no tags where they are needed.
        """
        if split == TRAIN:
            return self._training
        return list(self._sentences(split, known=frozenset(self.family.classes)))

    def _sentences(self, split: str, known: frozenset[str] | None) -> Iterator[Sentence]:
        folder, given = Path(self.data), getattr(self, split)
        names = (given,) if given else _OFFICIAL[split]
        path = official_files.find(folder, *names)
        width = 0
        for begin, document, rows in _blocks(
            official_files.lines(folder, *names, encoding="utf-8-sig")
        ):
            if not width:
                width = len(rows[0])
                tagged = self._has_tags(f"{path} line {begin}", width, split)
            for number, row in enumerate(rows, start=begin):
                if len(row) != width:
                    raise InputError(
                        f"{path} line {number}: {len(row)} columns, but {width} above: "
                        f"{' '.join(row)!r}"
                    )
            words = tuple(row[self.word_column] for row in rows)
            tags = self._tags(rows, path, begin, known) if tagged else None
            yield Sentence(words, tags, document, f"{path} line {begin}")
        if not width:
            raise InputError(f"{path}: no sentence in it")

    def _has_tags(self, where: str, width: int, split: str) -> bool:
        """Whether a file of `width` columns has tags; a test file need not.

        Raises:
          InputError: it lacks a column that it needs.
        """

        def lacks(column: int) -> bool:
            return not -width <= column < width

        if lacks(self.word_column):
            raise InputError(f"{where}: {width} columns, but word_column={self.word_column}")
        if not lacks(self.tag_column) and self.tag_column % width != self.word_column % width:
            return True
        if split == "test":
            return False
        raise InputError(
            f"{where}: no tags: {width} columns, with word_column={self.word_column} and "
            f"tag_column={self.tag_column} (from 0; negative ones count from the last)"
        )

    def _tags(
        self, rows: list[list[str]], path: Path, begin: int, known: frozenset[str] | None
    ) -> tuple[str, ...]:
        """The tags of a sentence; its first line is number `begin`."""
        tags = [row[self.tag_column] for row in rows]
        for number, tag in enumerate(tags, start=begin):
            if self.entities and not is_entity_tag(tag):
                raise InputError(
                    f"{path} line {number}: {tag!r} is no tag of an entity (O, B-TYPE, I-TYPE): "
                    "correct it, or give entities=False if words have classes of their own"
                )
        tags = iob2(tags) if self.entities else tags
        for number, tag in enumerate(tags, start=begin):
            if known is not None and tag not in known:
                raise InputError(
                    f"{path} line {number}: the tag {tag!r} is not in the training file, which "
                    f"has {' '.join(sorted(known))}"
                )
        return tuple(tags)

    def tune(self, examples: Sequence[Sentence], predictions: Sequence[Any]) -> dict[str, Any]:
        """Nothing."""
        return {}

    def score(
        self,
        examples: Sequence[Sentence],
        predictions: Sequence[tuple[str, ...]],
        settings: Mapping[str, Any],
    ) -> dict[str, float]:
        """`entity_scores` for entities, else "accuracy"."""
        gold = [sentence.tags for sentence in examples]
        if self.entities:
            return entity_scores(gold, predictions)
        return {"accuracy": accuracy(gold, predictions)}

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Sentence],
        predictions: Sequence[tuple[str, ...]],
        settings: Mapping[str, Any],
    ) -> None:
        """ner-SPLIT.txt as `conlleval` takes it: word, tag (where there are any), prediction."""
        document = NO_DOCUMENT
        with atomic_write(folder / f"ner-{split}.txt", "w") as file:
            for sentence, predicted in zip(examples, predictions, strict=True):
                if sentence.document != document:
                    document = sentence.document
                    file.write(f"{_DOCUMENT} {OUTSIDE} {OUTSIDE}\n\n")
                columns = [sentence.words, sentence.tags, predicted]
                rows = zip(*(column for column in columns if column is not None), strict=True)
                file.writelines(" ".join(row) + "\n" for row in rows)
                file.write("\n")


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, int, list[list[str]]]]:
    """(number of the first line, of the document, columns of each line) for each sentence."""
    document, rows = NO_DOCUMENT, []
    for number, line in enumerate(chain(lines, [""]), start=1):
        columns = _SEPARATOR.split(line.strip(" \t"))
        if columns != [""] and columns[0] != _DOCUMENT:
            rows.append(columns)
            continue
        if rows:
            yield number - len(rows), document, rows
            rows = []
        document += columns[0] == _DOCUMENT
