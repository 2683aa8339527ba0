"""Data sets of tensorflow-datasets, read at random without TensorFlow."""

from collections.abc import Collection, Iterator
from typing import Any, Protocol

from bertjax.base.errors import InputError

PREFIX = "tfds:"  # begins the name of a data set, where a folder may be named instead


class Records(Protocol):
    """The examples of one split: texts are bytes, classes are numbers."""

    dataset_info: Any

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> dict[str, Any]: ...

    def __iter__(self) -> Iterator[dict[str, Any]]: ...


def prepare(name: str, split: str, features: Collection[str] = ()) -> Any:
    """Returns the builder of a data set, such as "glue/mrpc"; downloads what this machine lacks."""
    builder = _downloaded(name)
    splits = builder.info.splits
    if split not in splits:
        raise InputError(f"tfds:{name}/{split}: no such split; it has {', '.join(splits)}.")
    present = builder.info.features
    if absent := sorted(set(features) - set(present)):
        raise InputError(
            f"tfds:{name}/{split}: no feature {', '.join(absent)}; it has {', '.join(present)}."
        )
    return builder


def has_split(name: str, split: str) -> bool:
    """Whether a data set has the split; downloads the data set if this machine lacks it."""
    return split in _downloaded(name).info.splits


def _downloaded(name: str) -> Any:
    import tensorflow_datasets as tfds
    import tensorflow_datasets.text  # noqa: F401 (registers the text data sets)

    try:
        # The only format with random access without TensorFlow.
        builder = tfds.builder(name, file_format="array_record")
    except ValueError as error:  # DatasetNotFoundError is one of these
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"tfds:{name}: {reason}") from error
    builder.download_and_prepare()
    return builder


def open_split(name: str, split: str, features: Collection[str] = ()) -> Records:
    """The examples of one split, with random access."""
    return prepare(name, split, features).as_data_source(split)
