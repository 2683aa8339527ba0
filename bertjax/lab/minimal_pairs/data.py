"""The files of minimal pairs that a user names.

  .jsonl, .csv, .tsv, .parquet   the columns of BLiMP (`pairs.blimp_pair`, `bertjax.tasks.rows`)
  .tab                           agreement items (`agreement.agreement_pairs`)

Files may be compressed (.gz .xz .bz2 .zst).
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bertjax.base.errors import InputError
from bertjax.data.corpus.line_files import COMPRESSED
from bertjax.lab.minimal_pairs.agreement import agreement_pairs
from bertjax.lab.minimal_pairs.pairs import Pair, blimp_pair
from bertjax.tasks import official_files
from bertjax.tasks.rows import FORMATS, read_csv_rows, read_rows

_AGREEMENT = ".tab"
_ENDINGS = (*FORMATS, _AGREEMENT)
_ANY_ENDING = ", ".join(_ENDINGS)


def read_pairs(data: str, most: int | None = None) -> list[Pair]:
    """Reads all pairs, in order, and of each paradigm the first `most`.

    Args:
      data: files, or folders of such files, with commas between. In a folder, files with other
        endings are left out, and the others are read in alphabetical order.

    Raises:
      InputError: a file is missing or damaged, has no pair, or lacks a column; a sentence is
        empty. The message names the file, the line and the column.
    """
    names = [name.strip() for name in data.split(",") if name.strip()]
    if not names:
        raise InputError(f"--data={data}: names no file")
    pairs, kept = [], Counter[str]()
    for path in (path for name in names for path in _files(Path(name))):
        pair = None
        for pair in _read(path):
            if most is None or kept[pair.uid] < most:
                kept[pair.uid] += 1
                pairs.append(pair)
        if pair is None:
            raise InputError(f"{path}: no pair in it: name a file with one on each line")
    return pairs


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        if not official_files.exists(path.parent, path.name):
            raise InputError(f"--data: no file or folder {path}: check the name")
        if official_files.ending(path) not in _ENDINGS:
            raise InputError(f"{path}: must end in {_ANY_ENDING} (before {' '.join(COMPRESSED)})")
        return [path]
    files = [each for each in path.iterdir() if official_files.ending(each) in _ENDINGS]
    if not files:
        raise InputError(f"{path}: no file of pairs in it: their names end in {_ANY_ENDING}")
    return sorted(files)


def _read(path: Path) -> Iterator[Pair]:
    if official_files.ending(path) == _AGREEMENT:
        yield from agreement_pairs(read_csv_rows(path.parent, path.name))
        return
    file = path.name.rpartition(official_files.ending(path))[0]
    for row in read_rows(path.parent, path.name):
        yield blimp_pair(row, file)
