"""All texts of files of tasks."""

import gzip
import json
import lzma

import pyarrow
import pytest
from pyarrow import parquet

from bertjax.base.errors import InputError
from bertjax.tasks.texts import texts


def test_every_kind_of_file(tmp_path):
    def wrote(name, data):
        (tmp_path / name).write_bytes(data)
        return list(texts(str(tmp_path / name)))

    cola = 'gj04\t1\t\tThey "drank the pub.\r\ngj04\t0\t*\té\n'.encode()
    expected = ["gj04", "1", "", 'They "drank the pub.', "gj04", "0", "*", "é"]
    assert wrote("dev.tsv", cola) == wrote("a.tsv.xz", lzma.compress(cola)) == expected
    squad = {"data": [{"title": "T", "paragraphs": [{"context": "C", "qas": [{"id": 7}]}]}]}
    assert wrote("dev.json.gz", gzip.compress(json.dumps(squad).encode())) == ["T", "C"]
    rows = b'{"a": "x", "b": ["y", {"c": "z"}], "n": 3}\n\n{"a": null, "d": "w"}\n'
    assert wrote("dev.jsonl", rows) == ["x", "y", "z", "w"]
    assert wrote("dev.csv", b'text,label\n"One, two",1\n') == ["One, two", "1"]
    parquet.write_table(pyarrow.table({"n": [1, 2], "t": ["x", "y"]}), tmp_path / "a.parquet")
    assert list(texts(str(tmp_path / "a.parquet"))) == ["x", "y"]
    assert wrote("questions.txt", b"One.\nTwo.\n") == ["One.", "Two."]


def test_damaged_files(tmp_path):
    for name, data, message in (
        ("a.tsv", b"ab\tc\n\xff\n", r"a\.tsv line 2: not UTF-8 at byte 0 .*: convert it"),
        ("a.json", b"{", r"a\.json: not JSON"),
        ("a.jsonl", b"{}\n{\n", r"a\.jsonl line 2: not JSON"),
        ("a.tsv.gz", b"no", r"a\.tsv\.gz: damaged or not a \.gz file"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=message):
            list(texts(str(tmp_path / name)))
