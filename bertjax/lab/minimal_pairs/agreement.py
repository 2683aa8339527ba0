"""Items of subject-verb agreement, in the form of Gulordava et al. (arXiv 1803.11138)."""

from collections.abc import Iterator

from bertjax.base.errors import InputError
from bertjax.lab.minimal_pairs.pairs import Pair
from bertjax.tasks.rows import FileRow

_CLASSES = ("correct", "wrong")
_END = "<eos>"


def agreement_pairs(rows: Iterator[FileRow]) -> Iterator[Pair]:
    """Yields the pair of each item of `generated.tab`, in order.

    An item is two lines, of the class "correct" and then "wrong". They have the same sentence in
    `sent`, whose word number `len_prefix`, counted from 0, is replaced by `form`. The paradigm is
    the `type`, "original" or "generated" (nonsense, with the same parts of speech); the
    phenomenon is `n_attr`, the number of nouns between subject and verb that have the other
    number.
    """
    for right in rows:
        wrong = next(rows, None)
        if wrong is None:
            raise InputError(f"{right.where}: the last item has no second line: add it")
        for row, name in zip((right, wrong), _CLASSES, strict=True):
            if row.text("class") != name:
                raise InputError(
                    f"{row.where}: 'class' is {row.text('class')!r}, not {name!r}: an item is a "
                    "line 'correct' and then a line 'wrong'"
                )
        for column in ("sent", "len_prefix"):
            if right.text(column) != wrong.text(column):
                raise InputError(
                    f"{wrong.where}: {column!r} is not that of the line before, but both lines of "
                    "an item have the same sentence"
                )
        words = right.text("sent").split()
        if words[-1] == _END:
            words.pop()
        place = right.integer("len_prefix", len(words))
        good, bad = (
            " ".join([*words[:place], row.text("form"), *words[place + 1 :]])
            for row in (right, wrong)
        )
        uid, term = f"agreement_{right.text('type')}", f"attractors_{right.text('n_attr')}"
        yield Pair(good, bad, uid, term, "", right.where)
