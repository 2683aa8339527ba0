"""The shards of a token store: their files, and how they are written.

DIR/store/ holds, for each shard and each split ("train", "heldout"):

  train-00003.tokens.bin     uint16 (uint32 above 65,536 pieces): all documents, end to end
  train-00003.sentences.bin  uint32: for each sentence, its first token's offset in its document
  train-00003.documents.bin  uint32 pairs: for each document, its tokens and its sentences
  shard-00003.json           counts and checksums, written last: it marks the shard as complete

Numbers are little-endian.
"""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from bertjax.base.cloud_storage import path_of
from bertjax.base.files import temporary_name, to_disk, write_json

TRAIN, HELDOUT = SPLITS = ("train", "heldout")
_CONTENTS = ("tokens", "sentences", "documents")


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
    return {content: f"{split}-{shard:05d}.{content}.bin" for content in _CONTENTS}


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
        # On a full disk the flush in close() fails again, after the failure that was raised.
        with contextlib.suppress(OSError):
            self._file.close()
        self.temporary.unlink(missing_ok=True)


class _SplitWriter:
    """The three files of one split of one shard, and their counts."""

    def __init__(self, store: Path, shard: int, split: str, dtype: np.dtype, unknown_id: int):
        self._dtype, self._unknown_id = dtype, unknown_id
        self._counts = dict(documents=0, sentences=0, tokens=0, words=0, unknown=0, max_id=0)
        self._files: dict[str, _File] = {}
        for content, name in split_files(split, shard).items():
            self._files[content] = _File(store / name)

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

    It is a context manager: if `finish` was not called, it deletes the files of the shard. The
    dtype of the tokens depends on `vocabulary_size`; `unknown_id` is -1 if there is no such token.
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
        """Renames the files, then writes the shard's JSON: `more`, the counts and the checksums."""
        splits = {split: writer.finish() for split, writer in self._splits.items()}
        shard = {"shard": self._shard, **more, "splits": splits}
        write_json(shard_file(self._directory, self._shard), shard)
        return shard

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._splits.values():
            writer.discard()
