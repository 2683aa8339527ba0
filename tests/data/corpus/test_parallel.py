"""Parallel sources: their three forms, bad input, and pairs in a store."""

import gzip
import json
import lzma

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.build import build_store, read_shards
from bertjax.data.corpus.languages import is_parallel, languages_of
from bertjax.data.corpus.plan import make_plan
from bertjax.data.corpus.source import Skip
from bertjax.data.corpus.sources import open_source, parse_sources
from bertjax.data.corpus.store import TokenStore
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer

PAIRS = [[f"a cat sat. {i} dogs!", f"paka {i * i} aliketi"] for i in range(57)]


def read(spec, target=1 << 30, *, skip=Skip.NOTHING):
    source = open_source(spec, "unused")
    ranges = [range_ for extent in source.extents() for range_ in extent.cut(target)]
    return [d for range_ in ranges for d in source.documents(range_, skip)]


def aligned(folder, pairs, opener=open, ending=""):
    """Writes two files, the second of which has no end of its last line."""
    paths = [folder / f"train.{name}{ending}" for name in ("en", "sw")]
    for path, side in zip(paths, zip(*pairs, strict=True), strict=True):
        with opener(path, "wb") as file:
            file.write("\n".join(side).encode() + b"\n" * (path == paths[0]))
    return "parallel:{}|{}".format(*paths)


@pytest.mark.parametrize("target", [1, 97, 1 << 20])
@pytest.mark.parametrize(
    "opener, ending",
    [(open, ""), (gzip.open, ".gz"), (lzma.open, ".xz")],
    ids=["plain", "gz", "xz"],
)
def test_aligned_files(tmp_path, target, opener, ending):
    assert read(aligned(tmp_path, PAIRS, opener, ending), target) == PAIRS


@pytest.mark.parametrize("target", [1, 97, 1 << 20])
def test_columns_and_fields(tmp_path, target):
    lines = ["\t".join(pair) for pair in PAIRS]
    (tmp_path / "a.tsv").write_bytes("\r\n".join(lines).encode())
    assert read(f"parallel:{tmp_path}/*.tsv", target) == PAIRS
    records = [json.dumps({"sw": f" {b}", "x": 0, "en": a}) for a, b in PAIRS]
    (tmp_path / "a.jsonl").write_text("\n".join(records))
    assert read(f"parallel:{tmp_path}/*.jsonl#en,sw", target) == PAIRS


def test_bad_parallel_sources(tmp_path):
    for spec in ("parallel:a|b|c", "parallel:a|", "parallel:a.jsonl#en", "parallel:#en,sw"):
        with pytest.raises(InputError, match=r"write parallel:A\|B, parallel:GLOB.tsv or"):
            open_source(spec, "unused")
    with pytest.raises(InputError, match="no such file"):
        open_source(f"parallel:{tmp_path}/a|{tmp_path}/b", "unused").extents()
    spec = aligned(tmp_path, PAIRS)
    (tmp_path / "train.sw").write_text("moja\nmbili\n")
    with pytest.raises(InputError, match=r"train\.en has 57 lines and .*train\.sw 2: line n of"):
        open_source(spec, "unused").extents()
    (tmp_path / "a.tsv").write_text("one\tmoja\ntwo\tmbili\t0.7\n")
    with pytest.raises(InputError, match=r"a\.tsv line 2: 3 columns, where a text, a tab and"):
        read(f"parallel:{tmp_path}/a.tsv")
    (tmp_path / "a.jsonl").write_text('{"en": "one", "sw": "moja"}\n{"en": "two"}\n')
    with pytest.raises(InputError, match=r"a\.jsonl line 2: no field 'sw'; its fields are 'en'"):
        read(f"parallel:{tmp_path}/a.jsonl#en,sw")


def test_text_that_is_not_utf_8(tmp_path):
    spec = aligned(tmp_path, [["one", "moja"], ["two", "mbili"], ["three", "tatu"]])
    (tmp_path / "train.sw").write_bytes(b"moja\n\xff\ntatu\n")
    with pytest.raises(InputError, match=r"train\.sw line 2: not UTF-8 at byte 5 "):
        read(spec)
    assert read(spec, skip=Skip.UNDECODABLE) == [["one", "moja"], None, ["three", "tatu"]]


def test_the_languages_of_a_source():
    assert languages_of("en-sw=parallel:a|b") == ("en", "sw")
    assert languages_of("en-zh-Hant=parallel:a|b") == ("en", "zh-Hant")
    assert languages_of("pt-BR-es-419=parallel:a|b") == ("pt-BR", "es-419")
    assert languages_of("zh-Hant=text:a") == ("zh-Hant",)
    assert languages_of("parallel:a|b") == languages_of("text:a") == ()
    assert is_parallel("parallel:a|b") and is_parallel("en-sw=parallel:a|b")
    assert not is_parallel("en-sw=text:parallel:a")
    with pytest.raises(InputError, match="'en' is not a pair of languages"):
        parse_sources(["sw=text:a", "en=parallel:a|b"])


def test_a_pair_is_a_document_of_two_sentences(tmp_path):
    """Neither text is split, and a pair with an empty text, or one without tokens, is dropped."""
    vocabulary = [*SPECIAL_TOKENS, *"a cat sat dogs paka aliketi . !".split(), *map(str, range(9))]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    Tokenizer.open(tmp_path / "vocab.txt").save(tmp_path)
    pairs = [*PAIRS[:7], ["", "paka"], ["a cat", "\u200b"], ["a cat", "paka"]]
    sources = [(aligned(tmp_path, pairs), None)]
    plan = make_plan(sources, installed_docs="unused", held_out=0.0)
    build_store(tmp_path, plan, workers=1)
    store, tokenizer = TokenStore.open(tmp_path), Tokenizer.open(tmp_path)
    assert store.sources[0].is_parallel
    edges = store.sentence_starts
    np.testing.assert_array_equal(edges[::2], store.document_starts)
    texts = [
        tokenizer.decode(store.read_spans(edges[i : i + 1], np.diff(edges)[i : i + 1]))
        for i in range(len(edges) - 1)
    ]
    assert texts[:2] == ["a cat sat. 0 dogs!", "paka 0 aliketi"] and texts[-2:] == ["a cat", "paka"]
    assert len(texts) == 16
    (shard,) = read_shards(tmp_path, plan)
    assert (shard["splits"]["train"]["documents"], shard["dropped_documents"]) == (8, 2)
