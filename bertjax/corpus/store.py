"""The token store: a tokenized corpus on disk.

Tokens are read through memory maps. The positions where sentences and documents begin are held in
memory, 8 bytes for each (1.3 GB for 3.3 billion words).

DIR/store/ holds, for each shard and each split ("train", "heldout"):

  train-00003.tokens.bin     uint16 (uint32 above 65,536 pieces): all documents, end to end
  train-00003.sentences.bin  uint32: for each sentence, its first token's offset in its document
  train-00003.documents.bin  uint32 pairs: for each document, its tokens and its sentences
  shard-00003.json           counts and checksums, written last: it marks the shard as complete

and manifest.json, which is written when every shard is complete. Numbers are little-endian.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import numpy as np

from bertjax.base.cloud_storage import in_bucket, path_of, reach
from bertjax.base.errors import InputError
from bertjax.base.files import (
    inside,
    read_json,
    sha256_of_file,
    temporary_name,
    to_disk,
    write_json,
)
from bertjax.corpus.staging import staged
from bertjax.corpus.weights import check_weights, shares, split_weight
from bertjax.text.tokenizer import Tokenizer

FORMAT_VERSION = 1
TRAIN, HELDOUT = SPLITS = ("train", "heldout")
_PARTS = ("tokens", "sentences", "documents")
_MANIFEST = "manifest.json"


def token_dtype(vocabulary_size: int) -> np.dtype:
    """The dtype of stored token ids: uint16 if every id fits, else uint32."""
    return np.dtype("<u2" if vocabulary_size <= 1 << 16 else "<u4")


def store_directory(directory: str | os.PathLike) -> Path:
    """The folder of the token store inside a corpus folder."""
    return path_of(directory) / "store"


def shard_file(directory: str | os.PathLike, shard: int) -> Path:
    """The file with counts and checksums of one shard of a corpus."""
    return store_directory(directory) / f"shard-{shard:05d}.json"


def split_files(split: str, shard: int) -> dict[str, str]:
    """The content of each file of one split of a shard -> the file's name."""
    return {part: f"{split}-{shard:05d}.{part}.bin" for part in _PARTS}


def _canonical_hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


# ------------------------------------------------------------------------------ writing


class _File:
    """One file of a shard under its temporary name; it is hashed while it is written."""

    def __init__(self, path: Path):
        self.path = path
        self.temporary = temporary_name(path)
        self.size = 0
        self._hash = hashlib.sha256()
        self._file: IO = open(self.temporary, "wb")

    def write(self, array: np.ndarray) -> None:
        data = array.tobytes()
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)

    def finish(self) -> dict[str, Any]:
        to_disk(self._file)
        self._file.close()
        os.replace(self.temporary, self.path)
        return {"bytes": self.size, "sha256": self._hash.hexdigest()}

    def discard(self) -> None:
        # On a full disk the flush in close() fails again; the first failure was raised before.
        with contextlib.suppress(OSError):
            self._file.close()
        self.temporary.unlink(missing_ok=True)


class _SplitWriter:
    """The three files of one split of one shard, and their counts."""

    def __init__(self, store: Path, shard: int, split: str, dtype: np.dtype, unknown_id: int):
        self._dtype, self._unknown_id = dtype, unknown_id
        self._counts = dict(documents=0, sentences=0, tokens=0, words=0, unknown=0, max_id=0)
        self._files: dict[str, _File] = {}
        for part, name in split_files(split, shard).items():
            self._files[part] = _File(store / name)

    def add(self, tokens: np.ndarray, lengths: np.ndarray, words: int) -> None:
        self._files["tokens"].write(tokens.astype(self._dtype))
        self._files["sentences"].write((np.cumsum(lengths) - lengths).astype("<u4"))
        self._files["documents"].write(np.array([len(tokens), len(lengths)], "<u4"))
        counts = self._counts
        counts["documents"] += 1
        counts["sentences"] += len(lengths)
        counts["tokens"] += len(tokens)
        counts["words"] += words
        counts["unknown"] += int(np.count_nonzero(tokens == self._unknown_id))
        counts["max_id"] = max(counts["max_id"], int(tokens.max()))

    def finish(self) -> dict[str, Any]:
        files = {file.path.name: file.finish() for file in self._files.values()}
        return {**self._counts, "files": files}

    def discard(self) -> None:
        for file in self._files.values():
            file.discard()


class ShardWriter:
    """Writes one shard, document after document, in constant memory.

    It is a context manager: if `finish` was not called, it deletes the files of the shard.

    Args:
      directory: the corpus folder, in which the store is made.
      shard: the number of this shard, from 0.
      vocabulary_size: decides the dtype of the tokens.
      unknown_id: the id that counts as an unknown token.
    """

    def __init__(
        self, directory: str | os.PathLike, shard: int, *, vocabulary_size: int, unknown_id: int
    ):
        store = store_directory(directory)
        store.mkdir(parents=True, exist_ok=True)
        self._directory, self._shard = directory, shard
        dtype = token_dtype(vocabulary_size)
        self._splits = {
            split: _SplitWriter(store, shard, split, dtype, unknown_id) for split in SPLITS
        }

    def add(self, split: str, tokens: np.ndarray, lengths: np.ndarray, words: int) -> None:
        """Adds a document to `split`.

        Args:
          tokens: [tokens] ids of all its sentences in order, at least 2.
          lengths: [sentences] the number of tokens of each sentence, at least 1.
          words: the number of words of the document's text, for the report.
        """
        self._splits[split].add(tokens, lengths, words)

    def finish(self, **more: Any) -> dict[str, Any]:
        """Renames the files to their final names, then writes the shard's JSON.

        The JSON holds `more`, the counts and the checksums.
        """
        splits = {split: writer.finish() for split, writer in self._splits.items()}
        shard = {"shard": self._shard, **more, "splits": splits}
        write_json(shard_file(self._directory, self._shard), shard)
        return shard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._splits.values():
            writer.discard()


def write_manifest(
    directory: str | os.PathLike,
    *,
    sources: Sequence[tuple[str, float | None]],
    tokenizer_identity: str,
    vocabulary_size: int,
    held_out: float,
    shards: Sequence[dict[str, Any]],
) -> None:
    """Declares a store complete.

    Args:
      directory: the corpus folder.
      sources: (name, weight) of each source; a shard's "source" is an index into this list.
      tokenizer_identity: `Tokenizer.identity` of the tokenizer that made the tokens.
      vocabulary_size: the number of that tokenizer's pieces.
      held_out: the fraction of documents in the split "heldout".
      shards: the results of `ShardWriter.finish(source=...)`, shard 0 first.
    """
    manifest = {
        "format_version": FORMAT_VERSION,
        "sources": [{"name": name, "weight": weight} for name, weight in sources],
        "tokenizer_identity": tokenizer_identity,
        "vocabulary_size": vocabulary_size,
        "dtype": token_dtype(vocabulary_size).name,
        "held_out": held_out,
        "shards": [{key: shard[key] for key in ("shard", "source", "splits")} for shard in shards],
    }
    write_json(
        store_directory(directory) / _MANIFEST,
        {**manifest, "identity": _canonical_hash(manifest)},
    )


# ------------------------------------------------------------------------------ reading


def open_tokenizer(corpus: str) -> Tokenizer:
    """Opens the tokenizer that a corpus was prepared with; `corpus` is DIR or DIR@WEIGHT.

    Raises:
      InputError: the folder is missing, or has no tokenizer in it.
    """
    name, _ = split_weight(corpus)
    if not reach(name).is_dir():
        raise InputError(
            f"{name}: no such corpus: name a folder that launch/prepare_corpus.py wrote"
        )
    return Tokenizer.open(name)


def read_manifest(directory: str | os.PathLike, *, verify: bool = False) -> dict[str, Any]:
    """Reads a store's manifest and checks it against the files.

    It checks the format, the manifest's own checksum, that every file exists with its exact
    size, and that every token id is below the vocabulary size; with `verify`, every checksum. If
    the corpus is in a bucket, it reads this machine's copy, which it makes if necessary.

    Raises:
      InputError: the store is missing, unfinished, newer than this program, truncated or damaged.
    """
    return _checked_manifest(_local_store(directory), directory, verify)


def _local_store(directory: str | os.PathLike) -> Path:
    """The folder of a corpus's token store; if that is in a bucket, this machine's copy of it."""
    store = store_directory(directory)
    if not in_bucket(store):
        return store
    reach(directory)
    manifest = _manifest_in(store, directory)
    files = {
        name: about
        for shard in manifest["shards"]
        for counts in shard["splits"].values()
        for name, about in counts["files"].items()
    }
    return staged(store, manifest["identity"], files, _MANIFEST)


def _checked_manifest(
    store: Path, directory: str | os.PathLike, verify: bool = False
) -> dict[str, Any]:
    """The manifest of a store, checked against its files; see `read_manifest`."""
    manifest = _manifest_in(store, directory)
    for shard in manifest["shards"]:
        for counts in shard["splits"].values():
            _check_files(store, counts, manifest["vocabulary_size"], verify)
    return manifest


def _manifest_in(store: Path, directory: str | os.PathLike) -> dict[str, Any]:
    path = store / _MANIFEST
    if not path.exists():
        state = "an unfinished token store" if store.exists() else "no token store"
        cure = f"run launch/prepare_corpus.py --output={directory}"
        if in_bucket(directory):
            cure = f"prepare the corpus and copy it: gcloud storage rsync -r DIR {directory}"
        raise InputError(f"{directory}: {state}: {cure}")
    manifest = read_json(
        path,
        {"format_version": int, "identity": str},
        cure="delete the folder and prepare the corpus again, or restore it from a copy",
    )
    version, identity = manifest["format_version"], manifest.pop("identity")
    if version != FORMAT_VERSION:
        raise InputError(
            f"{path}: store format {version}, this program reads {FORMAT_VERSION}: prepare the "
            "corpus again with this version."
        )
    if _canonical_hash(manifest) != identity:
        raise InputError(f"{path}: damaged (its checksum does not match). {_REBUILD}")
    for shard in manifest["shards"]:
        for counts in shard["splits"].values():
            for name in counts["files"]:
                inside(store, name, path)
    return manifest | {"identity": identity}


_REBUILD = "Delete the folder and prepare the corpus again, or restore it from a copy."


def _check_files(store: Path, counts: dict[str, Any], vocabulary_size: int, verify: bool) -> None:
    for name, expected in counts["files"].items():
        path = store / name
        if not path.exists():
            raise InputError(f"{path}: missing. {_REBUILD}")
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise InputError(
                f"{path}: {size:,} bytes where the manifest says {expected['bytes']:,}. {_REBUILD}"
            )
        if verify and sha256_of_file(path) != expected["sha256"]:
            raise InputError(f"{path}: damaged (its checksum does not match). {_REBUILD}")
    if counts["max_id"] >= vocabulary_size:
        raise InputError(
            f"{store}: token id {counts['max_id']} is outside the vocabulary of "
            f"{vocabulary_size}. {_REBUILD}"
        )


class SourceSpan(NamedTuple):
    """The documents of one source: first_document <= document < last_document_exclusive."""

    name: str
    share: float  # of the training examples; all shares of a store sum to 1
    first_document: int
    last_document_exclusive: int


class _Shard(NamedTuple):
    tokens: np.ndarray  # [tokens] memory map
    document_starts: np.ndarray  # [documents] token position within the shard
    sentence_starts: np.ndarray  # [sentences] token position within the shard


def _read_shard(store: Path, counts: dict[str, Any], dtype: np.dtype) -> _Shard:
    """Maps the files of one split of one shard, and checks that their offsets agree."""
    tokens, sentences, documents = (store / name for name in counts["files"])
    lengths, sentence_counts = np.fromfile(documents, "<u4").reshape(-1, 2).astype(np.int64).T
    first_tokens = np.cumsum(lengths) - lengths
    first_sentences = np.cumsum(sentence_counts) - sentence_counts
    starts = np.fromfile(sentences, "<u4").astype(np.int64)
    agree = (
        len(lengths) == counts["documents"]
        and len(starts) == counts["sentences"] == sentence_counts.sum()
        and tokens.stat().st_size == counts["tokens"] * dtype.itemsize
        and counts["tokens"] == lengths.sum()
        and (lengths >= 2).all()
        and (sentence_counts >= 1).all()
    )
    if agree:
        starts += np.repeat(first_tokens, sentence_counts)
        agree = (
            (starts[first_sentences] == first_tokens).all()
            and (starts[1:] > starts[:-1]).all()
            and (len(starts) == 0 or starts[-1] < counts["tokens"])
        )
    if not agree:
        raise InputError(
            f"{documents} and {sentences.name}: their offsets do not agree. {_REBUILD}"
        )
    # An empty file cannot be mapped.
    mapped = np.memmap(tokens, dtype, "r") if counts["tokens"] else np.empty(0, dtype)
    return _Shard(np.asarray(mapped), first_tokens, starts)


class TokenStore:
    """One split of one or several corpora, as one long sequence of tokens.

    Open it with `TokenStore.open`. The tokens of a document are contiguous, and so are the
    documents of a source. A position is an index into the sequence of all tokens.

    Tokens stay on disk until they are read; the two arrays of starts are in memory.

    Attributes:
      document_starts: int64 [documents + 1]; the last element is `token_count`.
      sentence_starts: int64 [sentences + 1]; the last element is `token_count`. A document's first
        sentence starts where the document starts.
      sources: a `SourceSpan` for every source that has documents in this split.
      token_count: the number of all tokens.
      dtype: the dtype of the tokens.
      vocabulary_size: the size of the vocabulary; every token id is below it.
      tokenizer_identity: `Tokenizer.identity` of the tokenizer that made the tokens.
      identity: a hash of the data, the mixing weights and the split.
    """

    def __init__(
        self,
        shards: Iterable[_Shard],
        sources: Sequence[SourceSpan],
        *,
        sentence_count: int,
        vocabulary_size: int,
        tokenizer_identity: str,
        identity: str,
    ):
        self.document_starts = np.empty(sources[-1].last_document_exclusive + 1, np.int64)
        self.sentence_starts = np.empty(sentence_count + 1, np.int64)
        self._shards: list[np.ndarray] = []
        token = document = sentence = 0
        shard_starts = [0]
        for shard in shards:  # an iterator may give them one by one, to save memory
            next_document = document + len(shard.document_starts)
            next_sentence = sentence + len(shard.sentence_starts)
            np.add(shard.document_starts, token, out=self.document_starts[document:next_document])
            np.add(shard.sentence_starts, token, out=self.sentence_starts[sentence:next_sentence])
            document, sentence = next_document, next_sentence
            token += len(shard.tokens)
            shard_starts.append(token)
            self._shards.append(shard.tokens)
        self.document_starts[-1] = self.sentence_starts[-1] = self.token_count = token
        self._shard_starts = np.array(shard_starts)  # [shards + 1]
        self.dtype = self._shards[0].dtype
        self.sources = tuple(sources)
        self.vocabulary_size = vocabulary_size
        self.tokenizer_identity = tokenizer_identity
        self.identity = identity

    @classmethod
    def open(
        cls,
        directories: str | os.PathLike | Sequence[str | os.PathLike],
        split: str = TRAIN,
        *,
        tokenizer_identity: str | None = None,
        verify: bool = False,
    ) -> Self:
        """Opens one split of one corpus folder, or of several mixed.

        Args:
          directories: corpus folders, on this machine or in buckets. "DIR@0.7" gives a corpus its
            share of the examples. Either all corpora have a weight or none has; then their shares
            are in proportion to their tokens. Sources keep their shares within their corpus.
          split: "train" or "heldout".
          tokenizer_identity: the identity of the caller's tokenizer, which is compared.
          verify: whether to read all files and compare their checksums.

        Raises:
          InputError: a store is missing, unfinished, truncated, damaged or built with another
            tokenizer; or the split is empty.
        """
        if isinstance(directories, str | os.PathLike):
            directories = [directories]
        names, weights = zip(*(split_weight(os.fspath(name)) for name in directories), strict=True)
        check_weights(names, weights)
        stores = [_local_store(name) for name in names]
        manifests = [
            _checked_manifest(store, name, verify)
            for store, name in zip(stores, names, strict=True)
        ]
        first = manifests[0]
        expected = tokenizer_identity or first["tokenizer_identity"]
        for name, manifest in zip(names, manifests, strict=True):
            if manifest["tokenizer_identity"] != expected:
                other = "the tokenizer in use" if tokenizer_identity else f"that of {names[0]}"
                raise InputError(
                    f"{name}: built with another tokenizer ({manifest['tokenizer_identity'][:12]}) "
                    f"than {other} ({expected[:12]}): prepare it again with that vocabulary."
                )
        sources = _nonempty_sources(stores, weights, manifests, split)
        if not sources:
            cure = "--held_out=0.05" if split == HELDOUT else "more text or a smaller --held_out"
            raise InputError(
                f"{', '.join(names)}: no document in the split {split!r}: prepare the corpus "
                f"again with {cure}."
            )
        dtype = token_dtype(first["vocabulary_size"])
        parts = [(source.store, counts) for source in sources for counts in source.shards]
        spans: list[SourceSpan] = []
        document = 0
        for source in sources:
            count = sum(counts["documents"] for counts in source.shards)
            spans.append(SourceSpan(source.name, source.share, document, document + count))
            document += count
        return cls(
            (_read_shard(store, counts, dtype) for store, counts in parts),
            spans,
            sentence_count=sum(counts["sentences"] for _, counts in parts),
            vocabulary_size=first["vocabulary_size"],
            tokenizer_identity=expected,
            identity=_canonical_hash([split, weights, [each["identity"] for each in manifests]]),
        )

    def read_spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Reads runs of tokens, each within one document.

        Args:
          starts: [R] the position of each run's first token.
          lengths: [R] the number of tokens of each run.

        Returns:
          [sum(lengths)] the tokens of all runs in order, in the store's dtype.
        """
        shard = np.searchsorted(self._shard_starts, starts, side="right") - 1
        starts = starts - self._shard_starts[shard]
        # For runs of about 30 tokens and more, slices are faster than one ragged gather, and they
        # need no index array.
        runs = zip(shard.tolist(), starts.tolist(), (starts + lengths).tolist(), strict=True)
        return np.concatenate([self._shards[shard][start:stop] for shard, start, stop in runs])


class _Source(NamedTuple):
    name: str
    share: float
    store: Path
    shards: list[dict[str, Any]]  # the counts of this split, without shards that have no document


def _nonempty_sources(
    stores: Sequence[Path],
    weights: Sequence[float | None],
    manifests: Sequence[dict[str, Any]],
    split: str,
) -> list[_Source]:
    """All sources with documents in `split`, in order, each with its share of the examples."""
    corpora: list[tuple[float | None, int, list[_Source]]] = []
    for store, weight, manifest in zip(stores, weights, manifests, strict=True):
        found = []
        for number, source in enumerate(manifest["sources"]):
            counts = [
                shard["splits"][split] for shard in manifest["shards"] if shard["source"] == number
            ]
            counts = [each for each in counts if each["documents"]]
            if counts:
                found.append((source, counts, sum(each["tokens"] for each in counts)))
        if not found:
            continue
        sizes = [size for _, _, size in found]
        parts = shares([source["weight"] for source, _, _ in found], sizes)
        corpora.append(
            (
                weight,
                sum(sizes),
                [
                    _Source(source["name"], share, store, counts)
                    for (source, counts, _), share in zip(found, parts, strict=True)
                ],
            )
        )
    if not corpora:
        return []
    corpus_shares = shares([each[0] for each in corpora], [each[1] for each in corpora])
    return [
        source._replace(share=source.share * corpus_share)
        for corpus_share, (_, _, sources) in zip(corpus_shares, corpora, strict=True)
        for source in sources
    ]
