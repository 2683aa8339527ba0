"""The token store: it reads what was written, and finds damage."""

import hashlib
import json
import random
import tracemalloc

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus import frequencies
from bertjax.data.corpus.manifest import write_manifest
from bertjax.data.corpus.shards import HELDOUT, SPLITS, TRAIN, ShardWriter, store_directory
from bertjax.data.corpus.staging import staged
from bertjax.data.corpus.store import TokenStore

SIZE = 1000


def made_up_documents(count, seed, most=SIZE):
    """Makes documents, which are lists of sentences, which are lists of ids."""
    numbers = random.Random(seed)
    return [
        [
            [numbers.randrange(5, most) for _ in range(numbers.randint(1, 30))]
            for _ in range(numbers.randint(2, 9))
        ]
        for _ in range(count)
    ]


def write_store(directory, sources, *, identity="t", size=SIZE, shards_each=3, heldout_each=4):
    """Writes a store of (name, weight, documents); each shard's first documents are held out."""
    metas = []
    for number, (_, _, documents) in enumerate(sources):
        for shard in range(shards_each):
            own = documents[shard::shards_each]
            with ShardWriter(directory, len(metas), vocabulary_size=size, unknown_id=7) as writer:
                for place, document in enumerate(own):
                    split = HELDOUT if place < heldout_each else TRAIN
                    lengths = np.array([len(sentence) for sentence in document])
                    writer.add(split, np.concatenate(document), lengths, words=len(document))
                metas.append(writer.finish(source=number))
    write_manifest(
        directory,
        sources=[(name, weight) for name, weight, _ in sources],
        tokenizer_identity=identity,
        vocabulary_size=size,
        held_out=0.1,
        shards=metas,
    )
    return metas


def expected_documents(sources, split, shards_each=3, heldout_each=4):
    """The documents of `write_store` in the order of the store."""
    return [
        document
        for _, _, documents in sources
        for shard in range(shards_each)
        for place, document in enumerate(documents[shard::shards_each])
        if (place < heldout_each) == (split == HELDOUT)
    ]


@pytest.fixture
def sources():
    return [("a", None, made_up_documents(100, 1)), ("b", None, made_up_documents(37, 2))]


@pytest.fixture
def directory(tmp_path, sources):
    write_store(tmp_path / "corpus", sources)
    return tmp_path / "corpus"


@pytest.mark.parametrize("split", SPLITS)
def test_what_is_written_is_read(directory, sources, split):
    store = TokenStore.open(directory, split)
    documents = expected_documents(sources, split)
    flat = [token for document in documents for sentence in document for token in sentence]
    lengths = [sum(map(len, document)) for document in documents]
    sentences = [len(sentence) for document in documents for sentence in document]
    assert store.token_count == len(flat)
    assert store.document_starts.dtype == store.sentence_starts.dtype == np.int64
    np.testing.assert_array_equal(store.document_starts, np.cumsum([0, *lengths]))
    np.testing.assert_array_equal(store.sentence_starts, np.cumsum([0, *sentences]))
    got = store.read_spans(store.document_starts[:-1], np.diff(store.document_starts))
    assert got.dtype == store.dtype == np.uint16
    np.testing.assert_array_equal(got, flat)


def test_opening_holds_one_shard_at_a_time_beside_the_store(tmp_path):
    documents = [[[9], [8]]] * 40_000
    write_store(tmp_path, [("a", None, documents)], shards_each=20)
    tracemalloc.start()
    try:
        store = TokenStore.open(tmp_path)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    arrays = store.document_starts.nbytes + store.sentence_starts.nbytes
    assert arrays == 8 * (3 * (40_000 - 20 * 4) + 2)
    assert held < 1.2 * arrays + 100_000
    assert peak < 1.6 * arrays + 100_000


def test_spans_within_documents_in_any_order(directory, sources):
    store = TokenStore.open(directory)
    flat = np.array([t for d in expected_documents(sources, TRAIN) for s in d for t in s])
    numbers = np.random.default_rng(0)
    documents = numbers.integers(0, len(store.document_starts) - 1, 500)
    longest = np.diff(store.document_starts)[documents]
    lengths = numbers.integers(0, longest + 1)
    starts = store.document_starts[documents] + numbers.integers(0, longest - lengths + 1)
    expected = [flat[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    np.testing.assert_array_equal(store.read_spans(starts, lengths), np.concatenate(expected))


def test_sources_share_by_tokens_or_by_weight(tmp_path, sources, directory):
    store = TokenStore.open(directory)
    tokens = [sum(len(s) for d in expected_documents([src], TRAIN) for s in d) for src in sources]
    counts = [len(expected_documents([source], TRAIN)) for source in sources]
    assert [source.name for source in store.sources] == ["a", "b"]
    assert [source.share for source in store.sources] == [each / sum(tokens) for each in tokens]
    assert store.sources[0][2:] == (tokens[0], 0, counts[0])
    assert store.sources[1][2:] == (tokens[1], counts[0], sum(counts))

    weighted = [(name, weight, d) for (name, _, d), weight in zip(sources, [1.0, 3.0], strict=True)]
    write_store(tmp_path / "weighted", weighted)
    assert [source.share for source in TokenStore.open(tmp_path / "weighted").sources] == [
        0.25,
        0.75,
    ]


def test_mixed_corpora(tmp_path, directory):
    weighted = [("c", 1.0, made_up_documents(40, 3)), ("d", 4.0, made_up_documents(20, 4))]
    write_store(tmp_path / "other", weighted)
    store = TokenStore.open([f"{directory}@0.25", f"{tmp_path / 'other'}@0.75"])
    assert [source.name for source in store.sources] == ["a", "b", "c", "d"]
    assert sum(source.share for source in store.sources[:2]) == pytest.approx(0.25)
    assert [source.share for source in store.sources[2:]] == pytest.approx([0.15, 0.6])
    assert store.sources[-1].last_document_exclusive == len(store.document_starts) - 1

    unweighted = TokenStore.open([directory, tmp_path / "other"])
    first = TokenStore.open(directory).token_count
    share = sum(source.share for source in unweighted.sources[:2])
    assert share == pytest.approx(first / unweighted.token_count)
    assert unweighted.identity != store.identity
    assert TokenStore.open(directory).identity != TokenStore.open(directory, HELDOUT).identity
    with pytest.raises(InputError, match="has no weight but another has"):
        TokenStore.open([f"{directory}@0.25", tmp_path / "other"])


def test_a_source_without_documents_in_a_split_is_left_out(tmp_path):
    sources = [("a", 1.0, made_up_documents(12, 1)), ("b", 3.0, made_up_documents(30, 2))]
    write_store(tmp_path, sources)  # all of "a" is held out
    train = TokenStore.open(tmp_path)
    assert [(source.name, source.share) for source in train.sources] == [("b", 1.0)]
    assert len(TokenStore.open(tmp_path, HELDOUT).sources) == 2


def test_large_vocabularies_take_four_bytes(tmp_path):
    documents = made_up_documents(30, 5, most=100_000)
    write_store(tmp_path, [("a", None, documents)], size=100_000)
    store = TokenStore.open(tmp_path)
    expected = expected_documents([("a", None, documents)], TRAIN)
    assert store.dtype == np.uint32
    np.testing.assert_array_equal(
        store.read_spans(store.document_starts[:1], np.diff(store.document_starts[:2])),
        np.concatenate(expected[0]),
    )


def test_counts(tmp_path):
    with ShardWriter(tmp_path, 0, vocabulary_size=10, unknown_id=7) as writer:
        writer.add(TRAIN, np.array([1, 7, 7, 9]), np.array([1, 3]), words=3)
        writer.add(TRAIN, np.array([7, 2]), np.array([2]), words=2)
        counts = writer.finish(source=0)["splits"][TRAIN]
    del counts["files"]
    assert counts == dict(documents=2, sentences=3, tokens=6, words=5, unknown=3, max_id=9)


def test_a_shard_that_fails_leaves_nothing(tmp_path):
    with (
        pytest.raises(RuntimeError),
        ShardWriter(tmp_path, 0, vocabulary_size=10, unknown_id=7) as writer,
    ):
        writer.add(TRAIN, np.array([1, 7]), np.array([2]), words=2)
        raise RuntimeError
    assert list(store_directory(tmp_path).iterdir()) == []


def files(directory, pattern):
    return sorted(store_directory(directory).glob(pattern))


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_no_store(tmp_path):
    with pytest.raises(InputError, match="no token store: run launch/prepare_corpus.py"):
        TokenStore.open(tmp_path)
    store_directory(tmp_path).mkdir()
    with pytest.raises(InputError, match="an unfinished token store"):
        TokenStore.open(tmp_path)


def test_a_missing_or_truncated_file_is_named(directory):
    path = files(directory, "train-00002.tokens.bin")[0]
    data = path.read_bytes()
    path.write_bytes(data[:-2])
    with pytest.raises(
        InputError, match=rf"train-00002\.tokens\.bin: {len(data) - 2:,} bytes where"
    ):
        TokenStore.open(directory)
    path.unlink()
    with pytest.raises(InputError, match=r"train-00002\.tokens\.bin: missing"):
        TokenStore.open(directory)


@pytest.mark.parametrize("pattern", ["train-*.bin", "heldout-*.bin"])
def test_verify_finds_every_flipped_byte(directory, pattern):
    for path in files(directory, pattern):
        TokenStore.open(directory, verify=True)
        flip(path, path.stat().st_size // 2)
        with pytest.raises(InputError, match=rf"{path.name}: damaged"):
            TokenStore.open(directory, verify=True)
        flip(path, path.stat().st_size // 2)


def test_offsets_that_do_not_fit_are_found_without_verify(directory):
    for name in ("train-00001.documents.bin", "train-00001.sentences.bin"):
        path = store_directory(directory) / name
        for offset in (0, 3, path.stat().st_size - 1):
            flip(path, offset)
            with pytest.raises(InputError, match=r"train-00001.*their offsets do not agree"):
                TokenStore.open(directory)
            flip(path, offset)


def test_a_damaged_manifest_is_found(directory):
    path = store_directory(directory) / "manifest.json"
    manifest = json.loads(path.read_bytes())
    path.write_text(json.dumps({**manifest, "vocabulary_size": SIZE + 1}))
    with pytest.raises(InputError, match=r"manifest\.json: damaged"):
        TokenStore.open(directory)
    path.write_text(json.dumps({**manifest, "format_version": 99}))
    with pytest.raises(InputError, match="store format 99, this program reads 1"):
        TokenStore.open(directory)
    for content in (json.dumps(manifest)[:-50], "null", "[]", "[" * 100_000):
        path.write_text(content)
        with pytest.raises(InputError, match=r"manifest\.json: damaged \(.*\): delete"):
            TokenStore.open(directory)


@pytest.mark.parametrize("name", ["../../../.bash_profile", "/etc/passwd", ".."])
def test_a_manifest_that_leads_out_of_its_folder(directory, name):
    """The manifest's checksum is right: somebody made the file on purpose."""
    path = store_directory(directory) / "manifest.json"
    manifest = json.loads(path.read_bytes())
    del manifest["identity"]
    files = manifest["shards"][0]["splits"][TRAIN]["files"]
    files[name] = files.pop("train-00000.tokens.bin")
    identity = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({**manifest, "identity": identity}))
    with pytest.raises(InputError, match=rf"manifest\.json: names the file '{name}', but may name"):
        TokenStore.open(directory)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A folder that `staged` can copy, in place of one in a bucket, and the cache for the copy."""
    monkeypatch.setenv("BERTJAX_CACHE", str(tmp_path / "home" / "cache"))
    folder = tmp_path / "bucket" / "store"
    folder.mkdir(parents=True)
    (folder / "list.json").write_text("{}")
    return folder, tmp_path / "home" / "cache"


@pytest.mark.parametrize(
    "identity, name", [("copy", "../../.bash_profile"), ("copy", "/etc/x"), ("../..", "a")]
)
def test_copies_stay_in_the_cache(source, identity, name):
    folder, cache = source
    with pytest.raises(InputError, match=r"list\.json: names the file "):
        staged(folder, identity, {name: {"bytes": 0, "sha256": ""}}, "list.json")
    assert not cache.parent.exists()


def test_a_copy_says_where_it_is_how_large_and_how_to_delete_it(source, capsys):
    folder, cache = source
    (cache / "other").mkdir(parents=True)
    (cache / "other" / "a").write_bytes(bytes(3_000_000))
    data = bytes(2_000_000)
    (folder / "a").write_bytes(data)
    about = {"a": {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}}
    for again in (False, True):
        copy = staged(folder, "copy", about, "list.json")
        assert copy == cache / "copy" and (copy / "a").read_bytes() == data
        message = (
            f"{folder}: copied to {copy}, 1.91 MiB, which stays there until you delete it: "
            f"rm -r {copy} (all of {cache}: 4.77 MiB)\n"
        )
        assert capsys.readouterr().out == ("" if again else message)


def test_ids_outside_the_vocabulary(tmp_path):
    write_store(tmp_path, [("a", None, made_up_documents(30, 6, most=SIZE + 500))])
    with pytest.raises(InputError, match=rf"token id 1\d\d\d is outside the vocabulary of {SIZE}"):
        TokenStore.open(tmp_path)


def test_another_tokenizer(tmp_path, directory, sources):
    assert TokenStore.open(directory, tokenizer_identity="t").tokenizer_identity == "t"
    with pytest.raises(
        InputError, match="built with another tokenizer .* than the tokenizer in use"
    ):
        TokenStore.open(directory, tokenizer_identity="u")
    write_store(tmp_path / "other", sources, identity="u")
    with pytest.raises(InputError, match=r"other: built with another tokenizer \(u\) than that of"):
        TokenStore.open([directory, tmp_path / "other"])


def test_an_empty_split(tmp_path, sources):
    write_store(tmp_path, sources, heldout_each=0)
    assert TokenStore.open(tmp_path).token_count
    with pytest.raises(InputError, match=r"no document in the split 'heldout': .* --held_out=0.05"):
        TokenStore.open(tmp_path, HELDOUT)


# ----------------------------------------------------------------------- frequencies of the pieces


@pytest.mark.parametrize("weights", [(None, None), (0.25, 0.75)])
def test_each_source_counts_by_its_share(tmp_path, weights):
    """The shares are those of the examples; special pieces do not count."""
    documents = made_up_documents(40, 3, most=40), made_up_documents(25, 4, most=70)
    sources = [(name, w, d) for name, w, d in zip("ab", weights, documents, strict=True)]
    write_store(tmp_path, sources, size=83)
    texts = [expected_documents([source], TRAIN) for source in sources]
    counts = [
        np.bincount([token for document in text for s in document for token in s], minlength=83)
        for text in texts
    ]
    if weights[0] is None:  # all tokens count alike, special ones for the shares as well
        shares = [each.sum() for each in counts]
    else:
        shares = weights
    special = [5, 11]
    for each in counts:
        each[special] = 0
    expected = sum(share * each / each.sum() for share, each in zip(shares, counts, strict=True))
    found = frequencies.word_frequencies(TokenStore.open(tmp_path), special)
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-12)
    assert found[special].sum() == 0 and found.sum() == pytest.approx(1)


def test_of_a_large_corpus_some_documents_are_counted(tmp_path, monkeypatch):
    """They stand at equal distances, so that no stretch of the corpus is left out."""
    documents = [[[1 + number // 100] * 5] * 2 for number in range(400)]
    write_store(tmp_path, [("a", None, documents)], shards_each=1, heldout_each=1)
    monkeypatch.setattr(frequencies, "_MOST", 400)
    found = frequencies.word_frequencies(TokenStore.open(tmp_path), [])
    np.testing.assert_allclose(found[1:5], 0.25, atol=0.03)
