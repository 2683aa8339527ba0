"""Every kind of source: documents, ranges, compressed files, bad input."""

import bz2
import functools
import gzip
import json
import lzma
import os
import random

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from bertjax.base.errors import InputError
from bertjax.data.corpus import line_files, sources
from bertjax.data.corpus.source import Range, Skip
from bertjax.data.corpus.sources import open_source, parse_sources


def cut(source, target):
    return [range_ for extent in source.extents() for range_ in extent.cut(target)]


def read(spec, target=1 << 30, *, skip=Skip.NOTHING):
    source = open_source(spec, "unused")
    ranges = cut(source, target)
    return [d for range_ in ranges for d in source.documents(range_, skip)]


def made_up_documents(count, seed=0):
    numbers = random.Random(seed)
    return [
        [
            "é" * numbers.randint(0, 3) + f"document {n} line {i}"
            for i in range(numbers.randint(1, 6))
        ]
        for n in range(count)
    ]


def as_text(documents, seed=0):
    """Writes paragraphs as lines, and one to three lines of white space between documents."""
    numbers = random.Random(seed)
    blanks = ["\n", "\n\n", " \n", "\t\n\n\n", "\u00a0\n", "\n\u3000 \n"]
    texts = ["\n".join(document) + "\n" + numbers.choice(blanks) for document in documents]
    return "".join(texts)


# ------------------------------------------------------------------------------ specs


def test_parse_sources():
    assert parse_sources(["text:a@0.7", "installed-docs@2"]) == [
        ("text:a", 0.7),
        ("installed-docs", 2.0),
    ]
    assert parse_sources(["text:a", "installed-docs"])[1] == ("installed-docs", None)
    with pytest.raises(InputError, match="--source is missing"):
        parse_sources([])
    with pytest.raises(InputError, match="has no weight but another has"):
        parse_sources(["text:a@1", "text:b"])
    with pytest.raises(InputError, match="text:a is given twice"):
        parse_sources(["text:a@1", "text:a@2"])


@pytest.mark.parametrize(
    "spec, message",
    [
        ("csv:a", "not one of text:GLOB"),
        ("wiki.txt", "not one of text:GLOB"),
        ("text:", "not one of text:GLOB"),
        ("jsonl:a.jsonl", "write jsonl:...#NAME"),
        ("parquet:a.parquet#", "write parquet:...#NAME"),
        ("tfds:imdb#text", "write tfds:NAME/SPLIT#feature"),
    ],
)
def test_bad_specs(spec, message):
    with pytest.raises(InputError, match=message):
        open_source(spec, "unused")


@pytest.mark.parametrize("spec", ["text:{}/*.txt", "jsonl:{}/*.txt#text", "parquet:{}/*.txt#text"])
def test_missing_and_empty_files(tmp_path, spec):
    source = open_source(spec.format(tmp_path), "unused")
    with pytest.raises(InputError, match=r"\*\.txt: no such file"):
        source.extents()
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(InputError, match=r"a\.txt: a folder, where a file is needed: name a file"):
        source.extents()
    (tmp_path / "a.txt").rmdir()
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(InputError, match=r"a\.txt: a pipe or a device, which cannot be read twice"):
        source.extents()
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt").touch()
    with pytest.raises(InputError, match=r"\*\.txt: empty: 1 files without a byte"):
        source.extents()


# ------------------------------------------------------------------------------ text


@pytest.mark.parametrize("target", [1, 7, 50, 333, 1 << 20])
@pytest.mark.parametrize("ending", ["", "last document has no end of line"])
def test_text_ranges_hold_every_document_once(tmp_path, target, ending):
    documents = made_up_documents(60)
    text = as_text(documents) + ending
    (tmp_path / "a.txt").write_bytes(text.encode())
    expected = documents + ([[ending]] if ending else [])
    assert read(f"text:{tmp_path}/a.txt", target) == expected


def test_every_cut_of_a_small_file(tmp_path):
    """The file has blank lines at both ends and lines of white space; it is cut at each byte.

    U+3000 is white space, too.
    """
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n \n one\r\ntwo\n\xe3\x80\x80\n\n\t\nthree\n\nfour")
    source = open_source(f"text:{path}", "unused")
    size = path.stat().st_size
    for first in range(1, size):
        for second in range(first, size):
            cuts = [0, first, second, size]
            ranges = [Range(str(path), a, b, b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
            ranges = [range_ for range_ in ranges if range_.size]
            got = [d for range_ in ranges for d in source.documents(range_)]
            assert got == [["one", "two"], ["three"], ["four"]], cuts


def test_ranges_are_near_the_target_and_cover_the_file(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x" * 1003)
    ranges = cut(open_source(f"text:{tmp_path}/a.txt", "unused"), 100)
    assert [range_.start for range_ in ranges[1:]] == [range_.stop for range_ in ranges[:-1]]
    assert (ranges[0].start, ranges[-1].stop, len(ranges)) == (0, 1003, 10)
    assert {range_.size for range_ in ranges} <= {100, 101}


def test_a_compressed_file_is_one_range(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(random.Random(0).randbytes(2000)))
    (tmp_path / "b.txt.gz").touch()
    size = (tmp_path / "a.txt.gz").stat().st_size
    assert [(r.start, r.stop, r.size) for r in cut(open_source(f"text:{tmp_path}/*", ""), 100)] == [
        (0, size, size),
        (0, 0, 0),
    ]


COMPRESS = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": functools.partial(pyarrow.compress, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_text_and_json(tmp_path, suffix):
    compress = COMPRESS[suffix]
    documents = made_up_documents(50)
    text = tmp_path / f"a.txt.{suffix}"
    text.write_bytes(compress(as_text(documents).encode()))
    assert read(f"text:{text}", target=10) == documents
    lines = "".join(json.dumps({"text": "\n".join(d)}) + "\n" for d in documents)
    jsonl = tmp_path / f"a.jsonl.{suffix}"
    jsonl.write_bytes(compress(lines.encode()))
    assert read(f"jsonl:{jsonl}#text", target=10) == documents

    jsonl.write_bytes(compress(lines.encode() + b"{}\n"))
    with pytest.raises(InputError, match=rf"a\.jsonl\.{suffix} line 51: no field 'text'"):
        read(f"jsonl:{jsonl}#text")
    text.write_bytes(text.read_bytes()[:-20])
    with pytest.raises(InputError, match=rf"a\.txt\.{suffix}: damaged or not a \.{suffix} file"):
        read(f"text:{text}")
    text.write_bytes(b"no such format")
    with pytest.raises(InputError, match="damaged or not"):
        read(f"text:{text}")


# Of the first bytes of a stream: the time at which a .gz was written.
_NOT_CHECKED = {("gz", place) for place in (4, 5, 6, 7)}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_every_stream_of_a_compressed_file_is_read_and_checked(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(line_files, "_BLOCK", 101)
    compress, path = COMPRESS[suffix], tmp_path / f"a.txt.{suffix}"
    words = random.Random(0)
    documents = [[f"{words.getrandbits(99):x}"] for _ in range(61)]
    first, second = (compress(as_text(some).encode()) for some in (documents[:29], documents[29:]))
    path.write_bytes(first + second)
    assert read(f"text:{path}") == documents
    if suffix != "zst":  # other programs pad the streams
        path.write_bytes(first + bytes(204) + second + bytes(8))
        assert read(f"text:{path}") == documents
    for place in range(len(first), len(first) + 8):
        if (suffix, place - len(first)) not in _NOT_CHECKED:
            damaged = bytearray(first + second)
            damaged[place] ^= 0xFF
            path.write_bytes(damaged)
            with pytest.raises(InputError, match=rf"a\.txt\.{suffix}: damaged or not a"):
                read(f"text:{path}")
    (tmp_path / f"b.txt.{suffix}").touch()  # a download that did not begin
    path.write_bytes(first)
    with pytest.raises(InputError, match=rf"b\.txt\.{suffix}: damaged or not a .*it has no byte"):
        read(f"text:{tmp_path}/*")
    for rest in (b"x", b"\n", b"not of this format", second[:1], second[:5], second[:-1]):
        path.write_bytes(first + rest)
        with pytest.raises(InputError, match=rf"a\.txt\.{suffix}: damaged or not a"):
            read(f"text:{path}")


def test_files_are_read_in_sorted_order_and_marks_are_dropped(tmp_path):
    (tmp_path / "b.txt").write_bytes("\ufeffsecond\n".encode())
    (tmp_path / "a.txt").write_bytes(b"first\n")
    (tmp_path / "c.txt").touch()
    assert read(f"text:{tmp_path}/*.txt") == [["first"], ["second"]]


@pytest.mark.parametrize("target", [5, 1 << 20])
def test_undecodable_text(tmp_path, target):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\ntwo\nbad \xff here\nmore\n\nthree\n\n\xfe")
    with pytest.raises(InputError, match="a.txt line 4: not UTF-8 at byte 13 .*--undecodable=skip"):
        read(f"text:{path}", target)
    assert read(f"text:{path}", target, skip=Skip.UNDECODABLE) == [["one"], None, ["three"], None]


def test_documents_and_lines_without_end(tmp_path, monkeypatch):
    for module in (sources, line_files):
        monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 1 << 20)
    path = tmp_path / "a.txt"
    path.write_bytes(b"line\n" * 300_000)
    with pytest.raises(InputError, match="more than 1 MiB .*put a blank line between documents"):
        read(f"text:{path}")
    path.write_bytes(b"x" * (2 << 20))
    with pytest.raises(InputError, match="a line of more than 1 MiB at byte 0"):
        read(f"text:{path}")


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("target", [1, 7, 1 << 20])
def test_each_line_is_a_document(tmp_path, target, suffix):
    data = b"\xef\xbb\xbfOne. Two.\r\n\n\xc2\xa0\n\xc3\xa9 three\nfour"
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(gzip.compress(data) if suffix else data)
    assert read(f"lines:{path}", target) == [["One. Two."], ["é three"], ["four"]]
    data = data.replace(b"three", b"\xff")
    path.write_bytes(gzip.compress(data) if suffix else data)
    with pytest.raises(InputError, match="a.txt.* line 4: not UTF-8 at byte 21 "):
        read(f"lines:{path}", target)
    assert read(f"lines:{path}", target, skip=Skip.UNDECODABLE) == [["One. Two."], None, ["four"]]


def test_installed_docs_is_a_text_file(tmp_path):
    path = tmp_path / "docs [1].txt"
    path.write_text("One.\nTwo.\n\nThree.\n")
    source = open_source("installed-docs", path)
    documents = source.documents(cut(source, 1 << 20)[0])
    assert list(documents) == [["One.", "Two."], ["Three."]]


# ------------------------------------------------------------------------------ jsonl


@pytest.mark.parametrize("target", [1, 40, 1 << 20])
def test_json_lines(tmp_path, target):
    documents = made_up_documents(40)
    path = tmp_path / "a.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        for n, document in enumerate(documents):
            file.write(json.dumps({"n": n, "body": "\n\n".join(document)}, ensure_ascii=n % 2 == 0))
            file.write("\n" if n % 5 else "\n\n")
    assert read(f"jsonl:{path}#body", target) == documents


@pytest.mark.parametrize(
    "line, message",
    [
        (b'{"text": "cut of', "line 3: not JSON"),
        (b'{"body": "a", "n": 1}', "line 3: no field 'text'; its fields are 'body', 'n'"),
        (b"[" * 100_000, "line 3: not JSON"),
        (b"[1]", "line 3: not a JSON object"),
        (b'{"text": 5}', "line 3: field 'text' is int, not text"),
        (b'{"text": null}', "line 3: field 'text' is null, not text.*--nulls=skip"),
    ],
)
def test_bad_json_lines(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    good = b'{"text": "fine"}\n'
    path.write_bytes(good + b"\n" + line + b"\n" + good)
    for target in (10, 1 << 20):
        with pytest.raises(InputError, match=rf"a\.jsonl {message}"):
            read(f"jsonl:{path}#text", target, skip=Skip.UNDECODABLE)


def test_nulls_in_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": null, "b": "x"}\n\n{"a": "y", "b": "z"}\n')
    assert read(f"jsonl:{path}#a", skip=Skip.NULLS) == [None, ["y"]]
    assert read(f"parallel:{path}#b,a", skip=Skip.NULLS) == [None, ["z", "y"]]
    with pytest.raises(InputError, match=r"a\.jsonl line 1: field 'a' is null, not text"):
        read(f"parallel:{path}#b,a", skip=Skip.UNDECODABLE)
    with pytest.raises(InputError, match=r"a\.jsonl line 1: no field 'c'; its fields"):
        read(f"jsonl:{path}#c", skip=Skip.NULLS)


@pytest.mark.parametrize(
    "line, message",
    [
        (b'{"text": "\xff"}', r"line 2: not UTF-8 at byte 27 "),
        (b'{"text": "\\ud800"}', "line 2: field 'text' holds half a surrogate pair"),
    ],
)
def test_undecodable_json_lines(tmp_path, line, message):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "fine"}\n' + line + b'\n{"text": "\\ud83d\\ude00"}\n')
    with pytest.raises(InputError, match=message):
        read(f"jsonl:{path}#text")
    assert read(f"jsonl:{path}#text", skip=Skip.UNDECODABLE) == [["fine"], None, ["\U0001f600"]]


# ---------------------------------------------------------------------------- parquet


@pytest.mark.parametrize("target", [1, 500, 1 << 20])
def test_parquet(tmp_path, target):
    documents = made_up_documents(100)
    table = pyarrow.table(
        {"n": range(100), "text": ["\n".join(document) for document in documents]}
    )
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    spec = f"parquet:{tmp_path}/*.parquet#text"
    assert read(spec, target) == documents
    ranges = cut(open_source(spec, "unused"), target)
    assert len(ranges) == {1: 15, 1 << 20: 1}.get(target, len(ranges))


def test_every_kind_of_texts_in_parquet(tmp_path):
    texts = ["a", "é\n\nb", "a", "", None]
    expected = [["a"], ["é", "b"], ["a"], [], None]
    kinds = (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view())
    for kind in (*kinds, pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary_view()):
        column = pyarrow.array([text and text.encode() for text in texts], pyarrow.binary())
        column = column.cast(kind)
        columns = [column, column.dictionary_encode()] if "view" not in str(kind) else [column]
        for each in columns:
            parquet.write_table(pyarrow.table({"x": each}), tmp_path / "a.parquet")
            found = read(f"parquet:{tmp_path}/a.parquet#x", skip=Skip.NULLS)
            assert found == expected, each.type
    numbers = pyarrow.array([7, 7]).dictionary_encode()
    parquet.write_table(pyarrow.table({"x": numbers}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="column 'x' is int64, not text"):
        read(f"parquet:{tmp_path}/a.parquet#x")


def test_damaged_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": [f"the text of row {row}" for row in range(211)]})
    parquet.write_table(table, path, row_group_size=97)
    whole = path.read_bytes()
    for place in (4, 22, 1631, 2200, -1):  # each makes another exception of the library
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"a\.parquet: not a Parquet file, or damaged"):
            read(f"parquet:{path}#text")


def test_bad_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"n": [1, 2], "text": ["a", None], "raw": [b"a", b"b\xff"]})
    parquet.write_table(table, path)
    with pytest.raises(InputError, match=r"no column 'body'; it has n, text, raw"):
        read(f"parquet:{path}#body")
    with pytest.raises(InputError, match="column 'n' is int64, not text"):
        read(f"parquet:{path}#n")
    with pytest.raises(InputError, match=r"a\.parquet row 1 column 'text': null, not text"):
        read(f"parquet:{path}#text")
    with pytest.raises(InputError, match=r"a\.parquet row 1 column 'raw': not UTF-8 at its byte 1"):
        read(f"parquet:{path}#raw")
    assert read(f"parquet:{path}#raw", skip=Skip.UNDECODABLE) == [["a"], None]
    assert read(f"parquet:{path}#text", skip=Skip.NULLS) == [["a"], None]
    parquet.write_table(table.slice(0, 0), path)
    with pytest.raises(InputError, match="no rows in any of its files"):
        read(f"parquet:{path}#text")
    path.write_bytes(b"no parquet at all")
    with pytest.raises(InputError, match=r"a\.parquet: not a Parquet file, or damaged"):
        read(f"parquet:{path}#text")


# ------------------------------------------------------------------------------- tfds


@pytest.fixture(scope="module")
def tfds_name(tmp_path_factory):
    """A data set of short documents, made by this fixture."""
    tfds = pytest.importorskip("tensorflow_datasets")

    class ShortDocuments(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        name = "short_documents"

        def _info(self):
            features = tfds.features.FeaturesDict({"text": tfds.features.Text(), "n": np.int64})
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for n in range(30):
                yield n, {"text": f"Document {n} é.\n\nSecond.", "n": n}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path_factory.mktemp("tfds")))
        yield "short_documents"


def test_tfds(tfds_name):
    spec = f"tfds:{tfds_name}/train#text"
    documents = read(spec)
    assert sorted(documents) == sorted([f"Document {n} é.", "Second."] for n in range(30))
    assert read(spec, target=100) == documents
    assert len(cut(open_source(spec, "unused"), 100)) > 3


def test_bad_tfds(tfds_name):
    with pytest.raises(InputError, match="no such split; it has train"):
        read(f"tfds:{tfds_name}/test#text")
    with pytest.raises(InputError, match="/train: no feature body; it has "):
        read(f"tfds:{tfds_name}/train#body")
    with pytest.raises(InputError, match="example 0 feature 'n': int, not text"):
        read(f"tfds:{tfds_name}/train#n")
    with pytest.raises(InputError, match="tfds:no_such_data_set: "):
        read("tfds:no_such_data_set/train#text")
