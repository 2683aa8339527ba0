"""The manifest of a token store, which is written when every shard is complete.

DIR/store/manifest.json says what the store was made of, and the counts and checksums of its files.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertjax.base.cloud_storage import checked_path, in_bucket, path_of
from bertjax.base.errors import InputError
from bertjax.base.files import inside, read_json, sha256_of_file, write_json
from bertjax.base.validation import record
from bertjax.data.corpus.shards import store_directory, token_dtype
from bertjax.data.corpus.staging import staged

FORMAT_VERSION = 1
PLAN_FILE = "plan.json"  # in the corpus folder: what was asked for
_MANIFEST = "manifest.json"
REBUILD = "Delete the folder and prepare the corpus again, or restore it from a copy."


def canonical_hash(value: Any) -> str:
    """A hash of a value of JSON, which is independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


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

    `sources` are (name, weight), and a shard's "source" is an index into them. `shards` are the
    results of `ShardWriter.finish(source=...)`, shard 0 first.
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
        {**manifest, "identity": canonical_hash(manifest)},
    )


def is_corpus(directory: str | os.PathLike) -> bool:
    """Whether a folder holds a corpus, or an unfinished one."""
    return (path_of(directory) / PLAN_FILE).exists() or store_directory(directory).exists()


def is_finished(directory: str | os.PathLike) -> bool:
    """Whether a corpus folder has a complete token store."""
    return (store_directory(directory) / _MANIFEST).exists()


def read_manifest(directory: str | os.PathLike, *, verify: bool = False) -> dict[str, Any]:
    """Reads a store's manifest and checks it against the files.

    It checks the format, the manifest's own checksum, that every file exists with its exact
    size, and that every token id is below the vocabulary size; with `verify`, every checksum. If
    the corpus is in a bucket, it reads this machine's copy, which it makes if necessary.

    Raises:
      InputError: the store is missing, unfinished, newer than this program, truncated or damaged.
    """
    return checked_manifest(local_store(directory), directory, verify)


def local_store(directory: str | os.PathLike) -> Path:
    """The folder of a corpus's token store; if that is in a bucket, this machine's copy of it."""
    store = store_directory(directory)
    if not in_bucket(store):
        return store
    checked_path(directory)
    manifest = _manifest_in(store, directory)
    files = {
        name: about
        for shard in manifest["shards"]
        for counts in shard["splits"].values()
        for name, about in counts["files"].items()
    }
    return staged(store, manifest["identity"], files, _MANIFEST)


def checked_manifest(
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
        hint = f"run launch/prepare_corpus.py --output={directory}"
        if in_bucket(directory):
            hint = f"prepare the corpus and copy it: gcloud storage rsync -r DIR {directory}"
        raise InputError(f"{directory}: {state}: {hint}")
    manifest = read_json(
        path,
        record(format_version=int, identity=str),
        hint="delete the folder and prepare the corpus again, or restore it from a copy",
    )
    version, identity = manifest["format_version"], manifest.pop("identity")
    if version != FORMAT_VERSION:
        raise InputError(
            f"{path}: store format {version}, this program reads {FORMAT_VERSION}: prepare the "
            "corpus again with this version."
        )
    if canonical_hash(manifest) != identity:
        raise InputError(f"{path}: damaged (its checksum does not match). {REBUILD}")
    for shard in manifest["shards"]:
        for counts in shard["splits"].values():
            for name in counts["files"]:
                inside(store, name, path)
    return manifest | {"identity": identity}


def _check_files(store: Path, counts: dict[str, Any], vocabulary_size: int, verify: bool) -> None:
    for name, expected in counts["files"].items():
        path = store / name
        if not path.exists():
            raise InputError(f"{path}: missing. {REBUILD}")
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise InputError(
                f"{path}: {size:,} bytes where the manifest says {expected['bytes']:,}. {REBUILD}"
            )
        if verify and sha256_of_file(path) != expected["sha256"]:
            raise InputError(f"{path}: damaged (its checksum does not match). {REBUILD}")
    if counts["max_id"] >= vocabulary_size:
        raise InputError(
            f"{store}: token id {counts['max_id']} is outside the vocabulary of "
            f"{vocabulary_size}. {REBUILD}"
        )
