"""Files of a data set: names, compression, line ends, encodings."""

import bz2
import gzip
import lzma

import pytest

from bertjax.base.errors import InputError
from bertjax.tasks.official_files import exists, find, lines, text

CONTENT = "\ufeffone\u2028two\r\nthree\x0bfour\rfive\n\nlast"
LINES = ["one\u2028two", "three\x0bfour\rfive", "", "last"]


@pytest.mark.parametrize(
    "suffix, write",
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_lines_and_text(tmp_path, suffix, write):
    (tmp_path / f"a.txt{suffix}").write_bytes(write(CONTENT.encode()))
    assert list(lines(tmp_path, "a.txt")) == LINES  # only a line feed ends a line
    path, whole = text(tmp_path, "a.txt")
    assert (path.name, whole) == (f"a.txt{suffix}", CONTENT[1:])


def test_the_only_existing_file_is_found(tmp_path):
    (tmp_path / "second").touch()
    assert find(tmp_path, "first", "second", "third").name == "second"
    assert exists(tmp_path, "first", "second") and not exists(tmp_path, "first")
    for other in ("third", "second.gz"):
        (tmp_path / other).touch()
        with pytest.raises(InputError, match=f"has second and {other}, but only one may exist: k"):
            find(tmp_path, "first", "second", "third")
        (tmp_path / other).unlink()


def test_errors_name_the_place(tmp_path):
    with pytest.raises(InputError, match="no a.txt or b.txt in it"):
        find(tmp_path, "a.txt", "b.txt")
    (tmp_path / "b.txt.gz").mkdir()
    with pytest.raises(InputError, match=r"b\.txt\.gz: a folder, where a file is needed"):
        find(tmp_path, "a.txt", "b.txt")
    (tmp_path / "b.txt.gz").rmdir()
    with pytest.raises(InputError, match="nowhere: no such folder"):
        list(lines(tmp_path / "nowhere", "a.txt"))
    (tmp_path / "a.txt").write_bytes(b"fine\nb\xe9\n")
    with pytest.raises(InputError, match=r"a.txt line 2: not UTF-8 at byte 1"):
        list(lines(tmp_path, "a.txt"))
    with pytest.raises(InputError, match=r"a.txt: not UTF-8 at byte 6"):
        text(tmp_path, "a.txt")
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(b"text\n" * 1000)[:-20])
    with pytest.raises(InputError, match=r"b.txt.xz: damaged"):
        text(tmp_path, "b.txt")
