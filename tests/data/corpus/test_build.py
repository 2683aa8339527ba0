"""Building a store from sources: local processes, restarts, errors, Beam."""

import dataclasses
import errno
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bertjax.base import progress
from bertjax.base.errors import InputError
from bertjax.data.corpus import build as module
from bertjax.data.corpus import plan as plans
from bertjax.data.corpus.build import build_shard, build_store, build_store_with_beam
from bertjax.data.corpus.manifest import read_manifest
from bertjax.data.corpus.plan import make_plan
from bertjax.data.corpus.sampling import document_hash, is_held_out
from bertjax.data.corpus.shards import HELDOUT, SPLITS, TRAIN, store_directory
from bertjax.data.corpus.source import Skip
from bertjax.data.corpus.store import TokenStore
from bertjax.text.sentences import split_sentences
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn
from tests.helpers.patience import PATIENCE

WORDS = "the cat sat on a mat and saw one more dog near it all day long".split()


@pytest.fixture(scope="module", autouse=True)
def small_shards():
    """Makes shards of 2 kB, so that a small corpus has many; it does not affect spawned workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertjax.data.corpus.plan._SMALLEST_SHARD", 2000)
        yield


def made_up_documents(count, seed=0):
    numbers = random.Random(seed)

    def sentence():
        return " ".join(numbers.choices(WORDS, k=numbers.randint(2, 9))).capitalize() + "."

    return [
        [
            " ".join(sentence() for _ in range(numbers.randint(1, 4)))
            for _ in range(numbers.randint(1, 3))
        ]
        for _ in range(count)
    ]


def write_text(path, documents):
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n")
    return f"text:{path}"


def make_corpus(path):
    """Makes an empty corpus folder with a tokenizer."""
    path.mkdir()
    vocabulary = path / "vocab.txt"
    vocabulary.write_text("\n".join([*SPECIAL_TOKENS, *WORDS, ".", "unused"]) + "\n")
    tokenizer = Tokenizer.open(vocabulary)
    tokenizer.save(path)
    return tokenizer


@pytest.fixture
def corpus(tmp_path):
    make_corpus(tmp_path / "corpus")
    return tmp_path / "corpus"


def plan_for(*specs, held_out=0.1, **more):
    sources = [(spec, None) for spec in specs]
    return make_plan(sources, installed_docs="unused", held_out=held_out, **more)


def read_documents(store, tokenizer):
    """Reads the sentences of every document, as text."""
    sentences = []
    for start, stop in zip(store.document_starts[:-1], store.document_starts[1:], strict=True):
        edges = store.sentence_starts
        edges = edges[(edges >= start) & (edges <= stop)]
        tokens = [
            store.read_spans(edges[i : i + 1], np.diff(edges)[i : i + 1])
            for i in range(len(edges) - 1)
        ]
        sentences.append([tokenizer.decode(each) for each in tokens])
    return sentences


def test_the_store_holds_the_text(tmp_path, corpus):
    tokenizer = Tokenizer.open(corpus)
    one, two = made_up_documents(150, 1), made_up_documents(80, 2)
    plan = plan_for(write_text(tmp_path / "1.txt", one), write_text(tmp_path / "2.txt", two))
    assert len(plan.shards) > 6
    assert build_store(corpus, plan, workers=2)
    for split in SPLITS:
        store = TokenStore.open(corpus, split, verify=True, tokenizer_identity=tokenizer.identity)
        expected = [
            [s.lower() for paragraph in document for s in split_sentences(paragraph)]
            for document in [*one, *two]
            if is_held_out(document_hash(document), 0.1) == (split == HELDOUT)
        ]
        assert read_documents(store, tokenizer) == expected
    assert [source.name for source in store.sources] == [spec for spec, _ in plan.sources]
    counts = [shard["splits"][TRAIN] for shard in read_manifest(corpus)["shards"]]
    words = sum(len(paragraph.split()) for d in [*one, *two] for paragraph in d)
    held_out = [shard["splits"][HELDOUT]["words"] for shard in read_manifest(corpus)["shards"]]
    assert sum(each["words"] for each in counts) + sum(held_out) == words
    assert sum(each["unknown"] for each in counts) == 0


def test_sentences_have_the_space_before_them(tmp_path):
    """Where a tokenizer keeps spaces, the sentences of a document in a row are its text.

    As in EuroBERT's vocabulary, no token means unknown text.
    """
    documents = [["The cat. Two dogs.", "A hen"], ["Four d!  Five e?", "Six f.", "Seven \u4e2d."]]
    spec = write_text(tmp_path / "1.txt", documents)
    learn("bpe", [str(documents)], tmp_path / "a.json", size=270, cased=True)
    content = json.loads((tmp_path / "a.json").read_bytes())
    content["added_tokens"][1]["special"] = False
    names = {"pad": "[PAD]", "eos": "[PAD]", "mask": "[MASK]"}
    data = json.dumps(content).encode()
    Tokenizer("bpe", data, "a.json", special_tokens=names).save(tmp_path)
    tokenizer = Tokenizer.open(tmp_path)
    plan = plan_for(spec, held_out=0.0)
    build_store(tmp_path, plan, workers=1)
    assert sum(each["splits"][TRAIN]["unknown"] for each in module.read_shards(tmp_path, plan)) == 0
    assert read_documents(TokenStore.open(tmp_path), tokenizer) == [
        ["The cat.", " Two dogs.", "\nA hen"],
        ["Four d!", " Five e?", "\nSix f.", "\nSeven \u4e2d."],
    ]


def test_the_store_does_not_depend_on_who_builds_it(tmp_path):
    spec = write_text(tmp_path / "a.txt", made_up_documents(100))
    identities = []
    for workers in (1, 3):
        corpus = tmp_path / f"corpus{workers}"
        make_corpus(corpus)
        build_store(corpus, plan_for(spec), workers=workers)
        identities.append(read_manifest(corpus, verify=True)["identity"])
    assert identities[0] == identities[1]


def test_short_and_undecodable_documents_are_counted(tmp_path, corpus):
    path = tmp_path / "a.txt"
    documents = [d.encode() for d in ["\n".join(d) for d in made_up_documents(40)]]
    path.write_bytes(b"\n\n".join([b"cat", b"bad \xff", b"the cat", *documents, b"\x01"]))
    plan = plan_for(f"text:{path}", skip=Skip.UNDECODABLE)
    assert plan.identity != dataclasses.replace(plan, skip=plan.skip | Skip.NULLS).identity
    build_store(corpus, plan, workers=1)
    shards = module.read_shards(corpus, plan)
    assert sum(shard["dropped_documents"] for shard in shards) == 2
    assert sum(shard["skipped_documents"] for shard in shards) == 1
    total = [shard["splits"][split]["documents"] for shard in shards for split in SPLITS]
    assert sum(total) == 41  # one of them has two tokens


def test_whole_shards_are_kept(tmp_path, corpus):
    plan = plan_for(write_text(tmp_path / "a.txt", made_up_documents(100)))
    build_store(corpus, plan, workers=1)
    before = read_manifest(corpus)
    assert not build_store(corpus, plan, workers=1)

    store = store_directory(corpus)
    (store / "manifest.json").unlink()
    (store / "shard-00001.json").unlink()  # simulates an interruption
    truncated = store / "train-00002.tokens.bin"
    truncated.write_bytes(truncated.read_bytes()[:-2])
    (store / ".train-00001.tokens.bin.99.tmp").write_bytes(b"half")
    times = {path: path.stat().st_mtime_ns for path in store.glob("train-*")}
    assert build_store(corpus, plan, workers=1)
    again = {path for path in times if path.stat().st_mtime_ns != times[path]}
    assert {path.name.split(".")[0] for path in again} == {"train-00001", "train-00002"}
    assert read_manifest(corpus, verify=True) == before
    assert not list(store.glob(".*"))

    other = plan_for(plan.sources[0][0], language="de")
    assert build_store(corpus, other, workers=1)  # shards of another plan are not reused


def test_weights_may_change_without_building_again(tmp_path, corpus):
    specs = [write_text(tmp_path / f"{n}.txt", made_up_documents(60, n)) for n in (1, 2)]
    for weights, expected in [((None, None), None), ((1.0, 3.0), [0.25, 0.75])]:
        sources = list(zip(specs, weights, strict=True))
        plan = make_plan(sources, installed_docs="unused", held_out=0.1)
        assert build_store(corpus, plan, workers=1) == (expected is None)
    assert [source.share for source in TokenStore.open(corpus).sources] == expected


def test_bad_text_is_named_by_the_worker_that_meets_it(tmp_path, corpus):
    text = "\n\n".join("\n".join(document) for document in made_up_documents(60)).encode()
    path = tmp_path / "a.txt"
    path.write_bytes(text + b"\n\nhere \xff\n\n" + text)
    plan = plan_for(f"text:{path}")
    with pytest.raises(InputError, match=rf"a\.txt line .*: not UTF-8 at byte {len(text) + 7} "):
        build_store(corpus, plan, workers=2)
    assert not list(store_directory(corpus).glob(".*"))
    with pytest.raises(InputError, match="an unfinished token store"):
        TokenStore.open(corpus)


def test_sources_and_splits_without_documents(tmp_path, corpus):
    blank = tmp_path / "blank.txt"
    text = write_text(tmp_path / "a.txt", made_up_documents(30))
    for content, fewer in ("\n \n", 0), ("a\n\n" * 1_201, 1_201):
        blank.write_text(content)
        message = (
            f"--source=text:{blank}: no document with two tokens or more in it; {fewer:,} have"
        )
        with pytest.raises(InputError, match=message):
            build_store(corpus, plan_for(text, f"text:{blank}"), workers=1)
    with pytest.raises(InputError, match="no held-out document: .* of 30 documents leaves none"):
        build_store(corpus, plan_for(text, held_out=1e-9), workers=1)
    with pytest.raises(InputError, match="no training document: .*give more text"):
        build_store(corpus, plan_for(text, held_out=1 - 1e-9), workers=1)
    assert build_store(corpus, plan_for(text, held_out=0.0), workers=1)


def test_progress_is_shown_while_no_shard_ends(tmp_path, corpus, monkeypatch, capfd):
    looks = "bertjax.data.corpus.workers._SECONDS_BETWEEN_LOOKS"
    monkeypatch.setattr(looks, 0.1)  # a worker takes longer to start
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0)
    path = tmp_path / "text.txt.gz"
    path.write_bytes(gzip.compress(b"the cat\n\n" * 60))
    assert build_store(corpus, plan_for(f"text:{path}", held_out=0.0), workers=1)
    lines = [each for each in capfd.readouterr().err.splitlines() if " shards]" in each]
    assert len(lines) > 2 and lines[0].startswith("building the token store:   0%")
    assert "0 of 1 shards" in lines[0] and "1 of 1 shards" in lines[-1]


def test_a_full_disk(tmp_path, corpus, monkeypatch):
    plan = plan_for(write_text(tmp_path / "a.txt", made_up_documents(60)))
    (job, *_), _ = module._jobs(corpus, plan)

    for number, kind, message in (
        (errno.ENOSPC, InputError, "no space left .* shard 0"),
        (errno.EFBIG, OSError, rf"{os.strerror(errno.EFBIG)}: '{store_directory(corpus)}'"),
    ):

        def full(_, number=number):
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch, pytest.raises(kind, match=message):
            patch.setattr(os, "fsync", full)
            build_shard(job)
    assert list(store_directory(corpus).iterdir()) == []

    usage = module.shutil.disk_usage(corpus)._replace(free=1000)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(InputError, match=r"1000 bytes free .* needs at least .* KiB: free"):
        build_store(corpus, plan, workers=1)


def test_plans(tmp_path):
    """Small files share a shard, large ones are cut, and a shard never has two sources."""
    for n in range(20):
        write_text(tmp_path / f"small-{n:02d}.txt", made_up_documents(3, n))
    write_text(tmp_path / "large.txt", made_up_documents(300))
    plan = plan_for(f"text:{tmp_path}/small-*.txt", f"text:{tmp_path}/large.txt")
    small = [shard for shard in plan.shards if shard.source == 0]
    large = [shard for shard in plan.shards if shard.source == 1]
    assert sum(len(shard.ranges) for shard in small) == 20 and 1 < len(small) < 10
    assert len(large) >= 10 and all(len(shard.ranges) == 1 for shard in large)
    target = max(plan.size // 16, 2000)
    assert all(shard.size <= 1.5 * target for shard in plan.shards)
    documents = [d for shard in plan.shards for d in plan.documents(shard)]
    assert len(documents) == 360

    same = plan_for(*(spec for spec, _ in plan.sources))
    assert same.identity == plan.identity
    for other in (
        plan_for(*(spec for spec, _ in plan.sources), held_out=0.2),
        plan_for(*(spec for spec, _ in plan.sources), language="de"),
        plan_for(*(spec for spec, _ in plan.sources), skip=Skip.UNDECODABLE),
        plan_for(*(spec for spec, _ in plan.sources[::-1])),
    ):
        assert other.identity != plan.identity


def test_sources_are_measured_once(tmp_path, monkeypatch):
    spec = write_text(tmp_path / "a.txt", made_up_documents(100))
    source_type = type(plans.open_source(spec, tmp_path))
    calls, extents = [], source_type.extents
    monkeypatch.setattr(source_type, "extents", lambda self: calls.append(1) or extents(self))
    assert len(plan_for(spec).shards) > 2
    assert calls == [1]


def test_a_hint_where_a_compressed_file_keeps_processes_idle(tmp_path, capsys):
    text = "\n\n".join("\n".join(document) for document in made_up_documents(300))
    (tmp_path / "a.txt").write_text(text)
    with gzip.open(tmp_path / "a.txt.gz", "wt") as file:
        file.write(text)
    compressed, plain = (plan_for(f"text:{tmp_path}/{name}") for name in ("a.txt.gz", "a.txt"))
    make_corpus(tmp_path / "compressed")
    build_store(tmp_path / "compressed", compressed, workers=2)
    hint = capsys.readouterr().out
    assert "1 shards for 2 workers" in hint and "a.txt.gz cannot be cut" in hint
    for plan, workers in ((compressed, 1), (plain, 2), (plain, 100)):
        module._hint_at_splitting(plan, workers)
    assert capsys.readouterr().out == ""


SLOW_BUILD = """
import sys
from bertjax.data.corpus import build
from bertjax.data.corpus.plan import make_plan

if __name__ == "__main__":
    plan = make_plan([(sys.argv[1], None)], installed_docs="unused", held_out=0.1)
    build.build_store(sys.argv[2], plan, workers=2)
"""


def children_of(pid):
    path = f"/proc/{pid}/task/{pid}/children"
    with open(path) as file:
        return [int(child) for child in file.read().split()]


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs Linux's /proc")
def test_workers_end_with_a_killed_parent(tmp_path, corpus):
    script = tmp_path / "build.py"
    script.write_text(SLOW_BUILD)
    text = tmp_path / "big.txt"  # half a minute of work
    block = "\n\n".join("\n".join(document) for document in made_up_documents(3000))
    text.write_text("\n\n".join([block] * 80))
    process = subprocess.Popen(
        [sys.executable, script, f"text:{text}", corpus], stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + PATIENCE
    while not list(store_directory(corpus).glob(".*.tmp")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    workers = children_of(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert workers
    while any(os.path.exists(f"/proc/{worker}") for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not (store_directory(corpus) / "manifest.json").exists()


def test_beam_is_named_where_it_is_missing(tmp_path, corpus, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    plan = plan_for(write_text(tmp_path / "a.txt", made_up_documents(30)))
    with pytest.raises(InputError, match=r"pip install -e '\.\[beam\]'"):
        build_store_with_beam(corpus, plan)


@pytest.mark.needs("apache_beam")
def test_beam_builds_the_same_store(tmp_path, corpus):
    plan = plan_for(write_text(tmp_path / "a.txt", made_up_documents(100)))
    assert build_store_with_beam(corpus, plan, options=["--runner=DirectRunner"])
    other = tmp_path / "other"
    make_corpus(other)
    build_store(other, plan, workers=1)
    assert read_manifest(corpus, verify=True) == read_manifest(other)
    assert not build_store_with_beam(corpus, plan)
    assert json.loads((store_directory(corpus) / "shard-00000.json").read_bytes())["source"] == 0
