"""Column files of tagged words: CoNLL-2003's files, and the user's files in the same form.

Each line has a word and its tags, in columns that spaces or tabs separate. An empty line ends a
sentence, and a line -DOCSTART- begins a document.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.base.limits import Free
from bertjax.data.corpus import tfds
from bertjax.tasks import official_files
from bertjax.tasks.entity_scores import OUTSIDE, accuracy, entity_scores, iob2, is_entity_tag
from bertjax.tasks.tagging import NO_DOCUMENT, Sentence, Tagging, tagging, tags_of
from bertjax.tasks.task import TRAIN, Task

_DOCUMENT = "-DOCSTART-"
_OFFICIAL = {
    TRAIN: ("eng.train", "train.txt"),
    "dev": ("eng.testa", "valid.txt", "dev.txt"),
    "test": ("eng.testb", "test.txt"),
}
_SEPARATOR = re.compile("[ \t]+")
# The document's number, the words, their tags or None, and the place of each word for messages.
_Block = tuple[int, list[str], list[str] | None, list[str]]
_TFDS_SPLITS = {TRAIN: "train", "dev": "dev", "test": "test"}


@dataclasses.dataclass(frozen=True)
class Conll(Task):
    """Named entities in CoNLL-2003, or the user's own tags in column files.

    Attributes:
      data: the folder, whose files may be compressed (.gz .xz .bz2 .zst); or "tfds:", or
        "tfds:NAME" for a data set with the features tokens and ner, which has no document borders.
      train, dev, test: the names of the files, if they are not the official ones (eng.train,
        eng.testa, eng.testb; train.txt, valid.txt or dev.txt, test.txt). The test file may be
        missing, and it may lack tags.
      word_column, tag_column: column numbers from 0; negative numbers count from the last column of
        the training file.
      entities: whether tags mark entities, in any scheme (IOB1, IOB2, IOE, IOBES, BILOU). Then they
        are converted to IOB2 and scored as entities. Otherwise each tag is a class, and accuracy is
        scored.
      document_context: see `Tagging`.
      crf: whether the tags of a sentence depend on each other (`bertjax.models.heads.crf`).
    """

    data: Free[str]
    train: str = ""
    dev: str = ""
    test: str = ""
    word_column: int = 0
    tag_column: int = -1
    entities: bool = True
    document_context: bool = True
    crf: bool = False

    name = "NER"

    @property
    def metric(self) -> str:
        return "f1" if self.entities else "accuracy"

    @cached_property
    def dev_splits(self) -> tuple[str, ...]:
        """The splits with scores: also a test file with tags, which chooses no trial."""
        tagged = (split for split in self._test if next(self._sentences(split)).tags is not None)
        return ("dev", *tagged)

    @cached_property
    def test_splits(self) -> tuple[str, ...]:
        return tuple(split for split in self._test if split not in self.dev_splits)

    @property
    def _test(self) -> tuple[str, ...]:
        if self.data.startswith(tfds.PREFIX):
            has_test = self.test or tfds.has_split(self._tfds_name, _TFDS_SPLITS["test"])
        else:
            has_test = self.test or official_files.exists(Path(self.data), *_OFFICIAL["test"])
        return ("test",) if has_test else ()

    @cached_property
    def family(self) -> Tagging:
        """The family, whose classes are the tags of the training file."""
        tags = tags_of(self._training, self.data)
        if self.entities:
            types = {tag[2:] for tag in tags if tag != OUTSIDE}
            tags = {f"{prefix}-{entity_type}" for entity_type in types for prefix in "BI"}
            classes = (OUTSIDE, *sorted(tags))
        else:
            classes = tuple(sorted(tags))
        return tagging(classes, self.document_context, crf=self.crf)

    @cached_property
    def _training(self) -> list[Sentence]:
        return list(self._sentences(TRAIN))

    def read(self, split: str) -> list[Sentence]:
        """The sentences of a split; a tag must be valid, and in the training file."""
        return self._training if split == TRAIN else list(self._sentences(split))

    def _sentences(self, split: str) -> Iterator[Sentence]:
        known = None if split == TRAIN else frozenset(self.family.classes)
        read = self._tfds_blocks if self.data.startswith(tfds.PREFIX) else self._file_blocks
        for document, words, tags, places in read(split):
            checked = None if tags is None else self._checked(tags, places, known)
            yield Sentence(tuple(words), checked, document, places[0])

    def _checked(
        self, tags: Sequence[str], places: Sequence[str], known: frozenset[str] | None
    ) -> tuple[str, ...]:
        """Checks the tags of a sentence, and converts entity tags to IOB2."""
        for place, tag in zip(places, tags, strict=True):
            if self.entities and not is_entity_tag(tag):
                raise InputError(
                    f"{place}: {tag!r} is not an entity tag (O, B-TYPE, I-TYPE): correct it, or "
                    "set entities=False if each tag is a class of words"
                )
        tags = iob2(tags) if self.entities else tags
        for place, tag in zip(places, tags, strict=True):
            if known is not None and tag not in known:
                raise InputError(
                    f"{place}: the tag {tag!r} is not in the training file, which has "
                    f"{' '.join(sorted(known))}"
                )
        return tuple(tags)

    def _file_blocks(self, split: str) -> Iterator[_Block]:
        folder, names = Path(self.data), self._names(split)
        path = official_files.find(folder, *names)
        width = 0
        for begin, document, rows in _blocks(official_files.lines(folder, *names)):
            places = [f"{path} line {number}" for number in range(begin, begin + len(rows))]
            if not width:
                width = len(rows[0])
                word, tag = self._columns(places[0], width, split)
            for place, row in zip(places, rows, strict=True):
                official_files.check_width(place, row, width, "the line above")
            tags = None if tag is None else [row[tag] for row in rows]
            yield document, [row[word] for row in rows], tags, places
        if not width:
            raise InputError(f"{path}: no sentence in it")

    def _names(self, split: str) -> tuple[str, ...]:
        names = getattr(self, split)
        return (names,) if names else _OFFICIAL[split]

    @cached_property
    def _training_width(self) -> int:
        lines = official_files.lines(Path(self.data), *self._names(TRAIN))
        _, _, rows = next(_blocks(lines))
        return len(rows[0])

    def _columns(self, where: str, width: int, split: str) -> tuple[int, int | None]:
        """The columns of words and tags in a file of `width` columns; None: no tags."""
        of_training = width if split == TRAIN else self._training_width
        columns = self.word_column, self.tag_column
        word, tag = (column + of_training if column < 0 else column for column in columns)
        if not 0 <= word < width:
            raise InputError(f"{where}: {width} columns, but word_column={self.word_column}")
        # In a file of another width than the training file's, the last column has other content.
        if 0 <= tag < width and tag != word and (width == of_training or self.tag_column >= 0):
            return word, tag
        if split == "test" and width < of_training:
            return word, None
        differs = "" if width == of_training else f" ({of_training} in the training file)"
        raise InputError(
            f"{where}: no tags: {width} columns{differs}, with word_column={self.word_column} "
            f"and tag_column={self.tag_column} (from 0; negative ones count from the last)"
        )

    @property
    def _tfds_name(self) -> str:
        return self.data.removeprefix(tfds.PREFIX) or "conll2003"

    def _tfds_blocks(self, split: str) -> Iterator[_Block]:
        name, split = self._tfds_name, getattr(self, split) or _TFDS_SPLITS[split]
        place = f"{tfds.PREFIX}{name}/{split}"
        if self.document_context:
            raise InputError(
                f"{place} does not say which sentences belong to one document: set "
                "config.task.document_context=False, or use the official files"
            )
        records = tfds.open_split(name, split, ["tokens", "ner"])
        names = records.dataset_info.features["ner"].feature.names
        words = 0
        for number, record in enumerate(records):
            tokens = [word.decode("utf-8") for word in record["tokens"]]
            known = all(tag >= 0 for tag in record["ner"])  # -1 is a hidden tag
            tags = [names[tag] for tag in record["ner"]] if known else None
            if tokens:
                yield NO_DOCUMENT, tokens, tags, [f"{place} example {number}"] * len(tokens)
            words += len(tokens)
        if not words:
            raise InputError(f"{place}: no sentence in it")

    def tune(self, examples: Sequence[Sentence], predictions: Sequence[Any]) -> dict[str, Any]:
        """See `Task`: this task has no settings."""
        return {}

    def score(
        self,
        examples: Sequence[Sentence],
        predictions: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> dict[str, float]:
        """Returns `entity_scores` if tags mark entities, else "accuracy"."""
        gold = [sentence.gold for sentence in examples]
        predicted = list(map(self.family.tags, predictions))
        if self.entities:
            return entity_scores(gold, predicted)
        return {"accuracy": accuracy(gold, predicted)}

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Sentence],
        predictions: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> None:
        """Writes ner-SPLIT.txt for `conlleval`: word, tag (if the split has tags), prediction."""
        document = NO_DOCUMENT
        with atomic_write(folder / f"ner-{split}.txt", "w") as file:
            for sentence, prediction in zip(examples, predictions, strict=True):
                if sentence.document != document:
                    document = sentence.document
                    file.write(f"{_DOCUMENT} {OUTSIDE} {OUTSIDE}\n\n")
                columns = [sentence.words, sentence.tags, self.family.tags(prediction)]
                rows = zip(*(column for column in columns if column is not None), strict=True)
                file.writelines(" ".join(row) + "\n" for row in rows)
                file.write("\n")


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, int, list[list[str]]]]:
    """Yields (number of the first line, document, columns of each line) for each sentence."""
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
