"""Sources under addresses: a server in this process, and fsspec's file system in memory."""

import functools
import gzip
import http.server
import io
import json
import re
import sys
import threading
import urllib.parse
import zipfile
from types import SimpleNamespace

import fsspec
import pyarrow
import pytest
from pyarrow import parquet

from bertjax.base.errors import InputError
from bertjax.data.corpus import remote_files
from bertjax.data.corpus.build import build_store
from bertjax.data.corpus.line_files import decompressor, files
from bertjax.data.corpus.manifest import read_manifest
from bertjax.data.corpus.remote_files import RemoteFile, find_remote, open_remote
from bertjax.data.corpus.sources import open_source
from tests.data.corpus.test_build import made_up_documents, make_corpus, plan_for, write_text

HTTP = pytest.mark.needs("aiohttp")


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder with ranges. `failures` are the numbers of the answers that break off."""

    def __init__(self, folder):
        self.folder, self.ranges, self.answers, self.failures = folder, [], 0, ()
        self.sends_ranges = self.sends_sizes = True
        self.status, self.goes_on = None, threading.Event()
        self.goes_on.set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, *_):
        """A reader that gives up is no error."""

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # noqa: N802 (the name is http.server's)
        server, path = self.server, self.server.folder / self.path.strip("/")
        if server.status or not path.exists():
            self.send_error(server.status or 404)
            return
        server.goes_on.wait()
        data = path.read_bytes() if path.is_file() else self._index(path)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        self.send_response(206 if asked and server.sends_ranges else 200)
        self.send_header("ETag", f'"{hash(data)}"')
        if asked and server.sends_ranges:
            start, stop = int(asked[1]), int(asked[2]) + 1
            server.ranges.append((start, stop))
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
            data = data[start:stop]
        if server.sends_sizes:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if asked:
            server.answers += 1
            if server.answers in server.failures:
                data = data[: len(data) // 2]
        self.wfile.write(data)
        self.close_connection = True

    do_HEAD = do_GET  # noqa: N815

    def _index(self, path):
        return "".join(f'<a href="{each.name}">x</a>' for each in path.iterdir()).encode()

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    (tmp_path / "served").mkdir()
    monkeypatch.setattr(remote_files, "_WAITS", (0.0, 0.0))
    monkeypatch.setattr("bertjax.data.corpus.plan._SMALLEST_SHARD", 2000)
    with Server(tmp_path / "served") as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


def read(spec, target=1 << 30):
    source = open_source(spec, "unused")
    ranges = [range_ for extent in source.extents() for range_ in extent.cut(target)]
    return [d for range_ in ranges for d in source.documents(range_)]


def test_an_address_with_a_query_is_compressed_as_its_path_says():
    assert decompressor("https://host/a.gz?download=true") and decompressor("a.gz")
    assert not decompressor("https://host/a.txt?name=b.gz") and decompressor("a.txt?b.gz")
    assert decompressor("zip://a.gz::b.zip") and not decompressor("zip://a.txt::https://host/b.gz")
    assert decompressor("simplecache::https://host/a.gz")


@pytest.mark.parametrize("target", [97, 1 << 20])
def test_every_kind_of_file_in_memory(tmp_path, target):
    documents = made_up_documents(61)
    texts = ["\n".join(document) for document in documents]
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/c/a.txt", "\n\n".join(texts[:20]).encode())
    memory.pipe_file("/c/b.txt.gz", gzip.compress("\n\n".join(texts[20:]).encode()))
    zstd = functools.partial(pyarrow.compress, codec="zstd", asbytes=True)
    memory.pipe_file("/c/a.jsonl.zst", zstd(b"".join(_json(text) for text in texts)))
    with memory.open("/c/a.parquet", "wb") as file:
        parquet.write_table(pyarrow.table({"x": range(61), "y": texts}), file, row_group_size=7)
    memory.pipe_file("/c/a.en", "\n".join(str(n) for n in range(37)).encode())
    memory.pipe_file("/c/a.sw", "\n".join(f"-{n}" for n in range(37)).encode())
    try:
        assert read("text:memory://c/*.txt*", target) == documents
        assert read("jsonl:memory://c/a.jsonl.zst#text", target) == documents
        assert read("parquet:memory://c/*.parquet#y", target) == documents
        pairs = read("parallel:memory://c/a.en|memory://c/a.sw", target)
        assert pairs == [[str(n), f"-{n}"] for n in range(37)]
        with pytest.raises(InputError, match=r"memory://c/\*.csv: no such file"):
            files("memory://c/*.csv")
    finally:
        memory.rm("/c", recursive=True)


def test_files_of_an_archive(tmp_path, monkeypatch):
    documents = made_up_documents(7)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number, document in enumerate(documents):
            archive.writestr(f"in/{number}.txt", "\n".join(document))
        archive.writestr(
            "in/all.gz", gzip.compress("\n\n".join("\n".join(d) for d in documents).encode())
        )
    assert read(f"text:zip://in/*.txt::{tmp_path}/a.zip") == documents
    assert read(f"text:zip://in/3.txt::{tmp_path}/a.zip") == documents[3:4]
    assert read(f"text:zip://in/all.gz::{tmp_path}/a.zip") == documents
    (tmp_path / "b.zip").write_bytes(b"no archive")
    for name, message in (
        ("in/9.txt::{}/a.zip", r"in/9\.txt::.*a\.zip: no such file"),
        ("in/3.txt::{}/nosuch.zip", r"in/3\.txt::.*nosuch\.zip: no such file"),
        ("in/3.txt::{}/b.zip", r"in/3\.txt::.*b\.zip: damaged: fetch it again"),
    ):
        with pytest.raises(InputError, match=message):
            read(f"text:zip://{name.format(tmp_path)}")


class _Stored:
    """A file system with one file, which gives at most `most` bytes at a time."""

    def __init__(self, data, most):
        self.data, self.most, self.about, self.opened = data, most, {}, 0

    def open(self, *_, **__):
        self.opened += 1
        file = io.BytesIO(self.data)
        read = file.read
        file = SimpleNamespace(seek=file.seek, close=file.close)
        file.read = lambda count: read(min(count, self.most))
        return file

    def info(self, path):
        return {"type": "file", "size": len(self.data), **self.about}

    def unstrip_protocol(self, path):
        return path


@pytest.fixture
def stored(monkeypatch):
    system = _Stored(bytes(range(251)) * 3, 100)
    monkeypatch.setattr(remote_files, "_system", lambda name: (system, name))
    monkeypatch.setattr(remote_files, "_WAITS", (0.0, 0.0))
    return system


def test_short_answers_are_put_together_and_none_is_the_end(stored, capsys):
    for buffering in (0, -1):  # the reader of Parquet files gets all bytes that it asks for
        with open_remote("x://a", buffering) as file:
            assert file.read(301) == stored.data[:301]
            assert file.read(1000) == stored.data[301:]
            assert file.read(1) == b""
    assert stored.opened == 2 and not capsys.readouterr().err
    with open_remote("x://a", 0) as file:
        file.read(23)
        stored.most = 0
        with pytest.raises(InputError, match="x://a at byte 23: cannot be read, after 3 tries"):
            file.read(1)
    last = "x://a at byte 23: EOFError: the file ends before its size of 753 bytes: try 3 of 3 in 0"
    assert last in capsys.readouterr().err
    stored.most = 100
    with open_remote("x://a", 0) as file:
        file.read(23)
        file._file.read, stored.data = None, stored.data[:700]  # the connection fails
        with pytest.raises(InputError, match="had 753 bytes, and now 700: it was replaced"):
            file.read(1)


def test_what_tells_one_content_from_another(stored):
    """Each file system has a word of its own for it."""
    for key in ("ETag", "etag", "md5Hash", "content_md5", "blob_id", "Last-Modified"):
        stored.about = {key: f"of {key}"}
        assert find_remote("x://a") == [RemoteFile("x://a", 753, f"of {key}")]
    stored.about = {}
    assert find_remote("x://a") == [RemoteFile("x://a", 753, "")]


def _json(text):
    return json.dumps({"text": text}).encode() + b"\n"


@HTTP
def test_workers_build_the_same_store_from_a_server(tmp_path, server):
    spec = write_text(server.folder / "a.txt", made_up_documents(97))
    plans = [plan_for(spec), plan_for(f"text:{server.address}/a.txt")]
    assert [shard.size for shard in plans[0].shards] == [shard.size for shard in plans[1].shards]
    assert len(plans[0].shards) > 3
    shards = []
    for number, plan in enumerate(plans):
        make_corpus(tmp_path / str(number))
        assert build_store(tmp_path / str(number), plan, workers=2)
        assert not build_store(tmp_path / str(number), plan, workers=2)
        shards.append(read_manifest(tmp_path / str(number), verify=True)["shards"])
    assert shards[0] == shards[1]
    before = plans[1].identity
    assert plan_for(f"text:{server.address}/a.txt").identity == before
    content = (server.folder / "a.txt").read_bytes()
    (server.folder / "a.txt").write_bytes(content.swapcase())  # the size is the same
    assert plan_for(f"text:{server.address}/a.txt").identity != before
    assert plan_for(spec).identity == plans[0].identity


@HTTP
def test_files_are_found_and_read_in_blocks(server, monkeypatch):
    monkeypatch.setattr(remote_files, "_BLOCK", 1000)
    data = bytes(range(256)) * 31
    for name in ("b.bin", "a.bin", "c.txt"):
        (server.folder / name).write_bytes(data)
    found = find_remote(f"{server.address}/*.bin")
    assert [(f.name, f.size) for f in found] == [
        (f"{server.address}/{name}", len(data)) for name in ("a.bin", "b.bin")
    ]
    assert all(file.version for file in found)
    with open_remote(found[1].name) as file:
        assert file.read(13) == data[:13]
        assert file.seek(-1111, 2) == len(data) - 1111
        assert file.read() == data[-1111:]
        file.seek(500)
        assert file.read(77) == data[500:577]
        file.seek(0)
        assert b"".join(file) == data
    assert server.ranges and max(stop - start for start, stop in server.ranges) <= 1111


@HTTP
def test_a_break_in_the_middle_is_tried_again_from_there(server, monkeypatch):
    monkeypatch.setattr(remote_files, "_BLOCK", 1000)
    documents = made_up_documents(60)
    write_text(server.folder / "a.txt", documents)
    spec = f"text:{server.address}/a.txt"
    server.failures = (3, 5, 6)
    assert read(spec) == documents
    starts = [start for start, _ in server.ranges]
    assert starts[:8] == [0, 1000, 2000, 2000, 3000, 3000, 3000, 4000]
    server.answers, server.failures = 0, (4, 5, 6)
    message = r"a\.txt at byte 3,000: cannot be read, after 3 tries: check the network"
    with pytest.raises(InputError, match=message):
        read(spec)


@HTTP
@pytest.mark.parametrize(
    "change, message",
    [
        ({"status": 403}, r"a\.txt: the access is refused: check its address"),
        ({"status": 404}, r"a\.txt: no such file: check"),
        ({"status": 503}, r"a\.txt: cannot be read, after 3 tries: check the network"),
        ({"sends_sizes": False}, "the server does not tell its size: download the file first"),
        ({"sends_ranges": False}, "the server sends whole files only: download the file first"),
    ],
)
def test_what_a_server_refuses_is_one_line(server, monkeypatch, change, message):
    monkeypatch.setattr(remote_files, "_BLOCK", 1000)
    write_text(server.folder / "a.txt", made_up_documents(60))
    for name, value in change.items():
        setattr(server, name, value)
    with pytest.raises(InputError, match=message) as caught:
        read(f"text:{server.address}/a.txt")
    assert "\n" not in str(caught.value)


@HTTP
def test_a_server_that_stalls(server, monkeypatch, capsys):
    monkeypatch.setattr(remote_files, "_SILENCE", 0.03)
    system = fsspec.get_filesystem_class("http")
    system.clear_instance_cache()  # of the files before, which are more patient
    write_text(server.folder / "a.txt", made_up_documents(9))
    server.goes_on.clear()
    try:
        with pytest.raises(InputError, match=r"a\.txt: cannot be read, after 3 tries.*Timeout"):
            read(f"text:{server.address}/a.txt")
    finally:
        server.goes_on.set()
        system.clear_instance_cache()
    assert re.findall(r"a\.txt: .*imeout.*: (try \d of 3)", capsys.readouterr().err) == [
        "try 2 of 3",
        "try 3 of 3",
    ]


@HTTP
def test_a_file_that_is_gone(server):
    write_text(server.folder / "a.txt", made_up_documents(9))
    source = open_source(f"text:{server.address}/a.txt", "unused")
    (range_,) = source.extents()[0].cut(1 << 30)
    (server.folder / "a.txt").unlink()
    with pytest.raises(InputError, match=r"a\.txt: no such file \(any more\)"):
        list(source.documents(range_))


class _Hub(http.server.BaseHTTPRequestHandler):
    """Answers like the hub for the branch refs/convert/parquet of the data set u/n."""

    def do_GET(self):  # noqa: N802
        path = urllib.parse.unquote(self.path.partition("?")[0])
        branch, files = "refs/convert/parquet", self.server.files
        if path == f"/api/datasets/u/n/revision/{branch}":
            self._answer(200, json.dumps({"id": "u/n", "sha": "a" * 40}).encode())
        elif path.startswith(f"/api/datasets/u/n/tree/{branch}"):
            folder = path.partition(branch)[2].strip("/")
            tree = {}
            for name, data in files.items():
                if name.startswith(folder):
                    own = name[len(folder) :].strip("/").partition("/")
                    child = f"{folder}/{own[0]}".strip("/")
                    kind = "directory" if own[1] else "file"
                    tree[child] = {"type": kind, "oid": "c" * 40, "size": len(data), "path": child}
            self._answer(200, json.dumps(list(tree.values())).encode())
        elif path.startswith(f"/datasets/u/n/resolve/{branch}/"):
            start, stop = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups()
            self.server.ranges.append((int(start), int(stop) + 1))
            data = files[path.partition(branch)[2].strip("/")]
            self._answer(206, data[int(start) : int(stop) + 1])
        else:
            self._answer(404, b"{}")

    def _answer(self, status, data):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def test_a_data_set_of_the_hub(monkeypatch):
    texts = [f"text {n} of the set" for n in range(1003)]
    files = {}
    for number, some in enumerate((texts[:501], texts[501:])):
        stream = io.BytesIO()
        table = pyarrow.table({"text": some, "other": ["x" * 999] * len(some)})
        parquet.write_table(table, stream, row_group_size=97, compression="none")
        files[f"plain/train/{number:04d}.parquet"] = stream.getvalue()
    files["plain/test/0000.parquet"] = b"not read"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # it is on this machine
    monkeypatch.setattr(remote_files, "_WAITS", ())
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as hub:
        hub.files, hub.ranges = files, []
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{hub.server_port}"
        monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": endpoint})
        spec = "parquet:hf://datasets/u/n@refs/convert/parquet/plain/train/*.parquet#text"
        assert read(spec, target=2000) == [[text] for text in texts]
        # Of a row group only the column is read, so the large column is never asked for.
        assert max(stop - start for start, stop in hub.ranges) < 1 << 17
        with pytest.raises(InputError, match="hf://datasets/u/nosuch/a.txt: no such file"):
            read("text:hf://datasets/u/nosuch/a.txt")
        hub.shutdown()


@pytest.mark.parametrize(
    "address, module, message",
    [
        (
            "s3://bucket/a.txt",
            "s3fs",
            r"s3://bucket/a\.txt: pip install -e '\.\[s3\]'",
        ),
        (
            "gs://bucket/a.txt",
            "gcsfs",
            r"gs://bucket/a\.txt: pip install -e '\.\[gcs\]'",
        ),
        (
            "https://host/a.txt",
            "aiohttp",
            r"https://host/a\.txt: pip install -e '\.\[http\]'",
        ),
        ("oss://bucket/a.txt", "ossfs", "Install ossfs"),
        ("nosuch://a.txt", "nosuch", "Protocol not known: nosuch: addresses begin with hf://"),
    ],
)
def test_what_is_missing_is_named(monkeypatch, address, module, message):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    monkeypatch.setattr(sys.modules["fsspec.registry"], "registry", {})  # what was opened before
    with pytest.raises(InputError, match=message):
        files(address)
