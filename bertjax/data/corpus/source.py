"""The contract of a source of text: everything that other files ask of one."""

import abc
import dataclasses
import enum
from collections.abc import Iterator

Document = list[str]  # paragraphs; or the two texts of a pair, one of which may be empty


def paragraphs(text: str) -> Document:
    """The lines of a text that are not blank."""
    return [line for line in map(str.strip, text.split("\n")) if line]


@dataclasses.dataclass(frozen=True)
class Range:
    """A range of one file (or data set): bytes, row groups or examples start..stop-1.

    Attributes:
      path: the file or its address; for tfds, NAME/SPLIT.
      start, stop: in the source's unit; a compressed file is always one range.
      size: the approximate number of raw bytes.
      version: of a remote file, what tells its content from another; else "".
    """

    path: str
    start: int
    stop: int
    size: int
    version: str = ""


@dataclasses.dataclass(frozen=True)
class Extent:
    """One whole file (or data set), before it is cut; fields as those of `Range`.

    Attributes:
      units: the number of its bytes, row groups or examples.
      divisible: whether reading can start in the middle, as it cannot in a compressed file.
    """

    path: str
    units: int
    size: int
    divisible: bool = True
    version: str = ""

    def cut(self, target: int) -> Iterator[Range]:
        """Cuts it into ranges of nearly equal length, of about `target` raw bytes each."""
        pieces = min(self.units, max(1, round(self.size / target))) if self.divisible else 1
        for piece in range(pieces):
            start, stop = self.units * piece // pieces, self.units * (piece + 1) // pieces
            size = self.size * (stop - start) // max(1, self.units)
            yield Range(self.path, start, stop, size, self.version)


class Skip(enum.Flag):
    """Documents that are left out, as None, instead of raising an error."""

    NOTHING = 0
    UNDECODABLE = enum.auto()  # text that is not UTF-8
    NULLS = enum.auto()  # fields and rows that say null


class Source(abc.ABC):
    """One source of documents."""

    @abc.abstractmethod
    def extents(self) -> list[Extent]:
        """The files (or data set) of the source, in order; tfds may download it first."""

    @abc.abstractmethod
    def documents(self, range_: Range, skip: Skip = Skip.NOTHING) -> Iterator[Document | None]:
        """The documents of one range, in order; None stands for a skipped document.

        Raises:
          InputError: bytes that are not UTF-8 or a null (unless they are to be skipped), a damaged
            file, or a record without the field. The message names the file, and the line or offset.
        """

    def all_documents(
        self, skip: Skip = Skip.NOTHING
    ) -> Iterator[tuple[str, int, Document | None]]:
        """All documents, in order, each with its file and its number in it, from 1."""
        for extent in self.extents():
            whole_file = Range(extent.path, 0, extent.units, extent.size, extent.version)
            for number, document in enumerate(self.documents(whole_file, skip), start=1):
                yield extent.path, number, document
