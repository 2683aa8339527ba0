"""The files of a table's splits: in a folder of this machine, or in a data set of the hub.

A split is one file, such as train.csv; or shards, as the hub has them:

  data/train-00000-of-00002.parquet, data/train-00001-of-00002.parquet

Of a data set of the hub, only the Parquet files with names of splits are downloaded.
"""

import re
from pathlib import Path

from bertjax.base import hub
from bertjax.base.errors import InputError
from bertjax.tasks import official_files
from bertjax.tasks.rows import FORMATS

HUB = "hf://datasets/"
_ADDRESS = re.compile(
    HUB + r"(?P<name>[^/@]+(?:/[^/@]+)?)(?:@(?P<revision>refs/[^/]+/[^/]+|[^/]+))?/?(?P<folder>.*)"
)
_SHARDS = ("{}.parquet", "{}-*.parquet", "data/{}-*.parquet", "{}/*.parquet")
_NAMES = {"train": ("train",), "dev": ("dev", "validation"), "test": ("test",)}
_COUNT = re.compile(r"-of-0*(\d+)$")  # at the end of a shard's name


def folder_of(data: str) -> Path:
    """The folder of `config.data`; a data set of the hub is downloaded if necessary."""
    if not data.startswith(HUB):
        return Path(data)
    match = _ADDRESS.fullmatch(data)
    form = f"write {HUB}USER/NAME, or {HUB}USER/NAME/FOLDER for one of its configurations"
    if match is None:
        raise InputError(f"config.data={data}: not a data set of the hub: {form}")
    folder = match["folder"].rstrip("/")
    shards = [each.format(name) for names in _NAMES.values() for name in names for each in _SHARDS]
    root = hub.download(
        f"config.data={data}",
        match["name"],
        [f"{folder}/{shard}" if folder else shard for shard in shards],
        no_name="not the name of a data set of the hub",
        absent=f"the hub has no data set of that name (or it is private: set HF_TOKEN): {form}",
        unreached="the hub cannot be reached: on a machine with network, download the Parquet "
        "files into a folder, and give that as config.data",
        repo_type="dataset",
        revision=match["revision"],
    )
    return root / folder


def split_files(folder: Path, data: str, split: str, name: str) -> list[Path]:
    """The files of a split, in order.

    Args:
      folder: that of `data`.
      name: the name of the file in the config, a pattern (*) of names, or "".
    """
    if found := _shards(folder, split, name):
        return found
    if data.startswith(HUB) and not name:
        raise InputError(
            f"config.data={data}: no Parquet files of {split}, such as data/{split}-00000-of-00001"
            f".parquet: if its configurations are in folders, give {HUB}USER/NAME/FOLDER; other "
            f"files are named as config.task.{split}"
        )
    return [official_files.find(folder, *((name,) if name else _official(split)))]


def has_split(folder: Path, split: str) -> bool:
    """Whether a split has files under its own name."""
    return official_files.exists(folder, *_official(split)) or bool(_shards(folder, split, ""))


def _official(split: str) -> tuple[str, ...]:
    return tuple(split + suffix for suffix in FORMATS)


def _shards(folder: Path, split: str, name: str) -> list[Path]:
    """The files of a pattern, or the shards of a split that has no file of its official name."""
    if name:
        patterns = [name] if "*" in name else []
    elif official_files.exists(folder, *_official(split)):
        patterns = []
    else:
        patterns = [shards.format(each) for each in _NAMES[split] for shards in _SHARDS]
    found = next(filter(None, (sorted(folder.glob(pattern)) for pattern in patterns)), [])
    count = _COUNT.search(found[0].stem) if found else None
    if count and int(count[1]) != len(found):
        raise InputError(
            f"{found[0]}: {len(found)} of {count[1]} shards are here: download the others, too"
        )
    return found
