"""The files of a table's splits: in a folder of this machine, or in a data set of the hub.

A split is one file, such as train.csv; or shards, as the hub has them:

  data/train-00000-of-00002.parquet, data/train-00001-of-00002.parquet

Of a data set of the hub, only the files that the config names are downloaded, and for the other
splits the Parquet files with their names.
"""

import re
from collections.abc import Mapping
from glob import glob
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


def folder_of(data: str, names: Mapping[str, str]) -> Path:
    """The folder of `data`; a data set of the hub is downloaded if necessary.

    Args:
      names: split -> the name of its file as of `split_files`, of all that will be read.
    """
    if not data.startswith(HUB):
        return Path(data)
    match = _ADDRESS.fullmatch(data)
    form = f"write {HUB}USER/NAME, or {HUB}USER/NAME/FOLDER for one of its configurations"
    if match is None:
        raise InputError(f"{data}: not a data set of the hub: {form}")
    folder = match["folder"].rstrip("/")
    patterns = [each for split, name in names.items() for each in _patterns(split, name)]
    root = hub.download(
        data,
        match["name"],
        [f"{folder}/{each}" if folder else each for each in patterns],
        no_name="not the name of a data set of the hub",
        absent=f"the hub has no data set of that name (or it is private: set HF_TOKEN): {form}",
        unreached="the hub cannot be reached: on a machine with network, download the files "
        "into a folder, and give that",
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
    names = (name,) if name else _official(data, split)
    if not official_files.exists(folder, *names):
        if found := _shards(folder, split, name):
            return found
        if data.startswith(HUB):
            no = name or f"Parquet files of {split}, such as data/{split}-00000-of-00001.parquet"
            raise InputError(
                f"{data}: no {no}: if its configurations are in folders, give {HUB}USER/NAME/FOLDER"
                f"; configs/finetune_table.py reads other files by config.task.{split}=FILE"
            )
    return [official_files.find(folder, *names)]


def has_split(folder: Path, data: str, split: str) -> bool:
    """Whether a split has files under its own name."""
    is_one = official_files.exists(folder, *_official(data, split))
    return is_one or bool(_shards(folder, split, ""))


def _official(data: str, split: str) -> tuple[str, ...]:
    """The names of a split in one file; of the hub, others are here only if a run named them."""
    return tuple(split + ending for ending in ((".parquet",) if data.startswith(HUB) else FORMATS))


def _patterns(split: str, name: str) -> list[str]:
    return [name] if name else [form.format(own) for own in _NAMES[split] for form in _SHARDS]


def _shards(folder: Path, split: str, name: str) -> list[Path]:
    """The files of a pattern, or of a split that has no file of its official name."""
    matches = (sorted(glob(pattern, root_dir=folder)) for pattern in _patterns(split, name))
    found = [folder / match for match in next(filter(None, matches), [])]
    count = _COUNT.search(found[0].stem) if found else None
    if count and int(count[1]) != len(found):
        raise InputError(
            f"{found[0]}: {len(found)} of {count[1]} shards are here: download the others, too"
        )
    return found
