"""Minimal pairs: two sentences that differ in one thing, and of which one is ungrammatical."""

from typing import NamedTuple

from bertjax.tasks.rows import FileRow

# Names of one thing in the files of BLiMP -> the name in its paper, which counts s-selection as
# argument structure. (BabyLM's evaluation unites the two spellings of the field, too.)
_PAPERS_NAMES = {"s-selection": "argument_structure", "syntax_semantics": "syntax/semantics"}


class Pair(NamedTuple):
    """A minimal pair.

    Attributes:
      good, bad: the grammatical sentence, and the other one.
      uid: the paradigm, a set of pairs that show the same phenomenon in the same way.
      term: the phenomenon; "" if the file does not say it.
      field: the field of grammar, such as "morphology"; "" if the file does not say it.
    """

    good: str
    bad: str
    uid: str
    term: str
    field: str
    where: str


def blimp_pair(row: FileRow, file: str) -> Pair:
    """The pair of a row of BLiMP (arXiv 1912.00582), or of BabyLM's subset or supplement of it.

    The row has `sentence_good` and `sentence_bad`, and perhaps `UID`, `linguistics_term` and
    `field`. The paradigm of rows without UID is `file`, a name without its ending.
    """
    uid, term, field = (_name(row, column) for column in ("UID", "linguistics_term", "field"))
    good, bad = row.text("sentence_good"), row.text("sentence_bad")
    return Pair(good, bad, uid or file, term, field, row.where)


def _name(row: FileRow, column: str) -> str:
    name = row.string(column) if column in row.fields else ""
    return _PAPERS_NAMES.get(name, name)
