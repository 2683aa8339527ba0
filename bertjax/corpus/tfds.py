"""Data sets of tensorflow-datasets, read at random without TensorFlow."""

from collections.abc import Collection, Sequence
from typing import Any

from bertjax.errors import InputError

PREFIX = "tfds:"  # of a data set's name, where files may be named as well


def prepare(name: str, split: str, features: Collection[str] = ()) -> Any:
    """The builder of a data set, which is downloaded if it is not on this machine.

    Args:
      name: with its config, as in "glue/mrpc".
      split: one that is needed.
      features: those that are needed of each example.

    Raises:
      InputError: no such data set, or no such split or feature in it.
    """
    builder = _downloaded(name)
    splits = builder.info.splits
    if split not in splits:
        raise InputError(f"tfds:{name}/{split}: no such split; it has {', '.join(splits)}.")
    there = builder.info.features
    if absent := sorted(set(features) - set(there)):
        raise InputError(
            f"tfds:{name}/{split}: no feature {', '.join(absent)}; it has {', '.join(there)}."
        )
    return builder


def has_split(name: str, split: str) -> bool:
    """Whether a data set has one; it is downloaded if it is not on this machine.

    Raises:
      InputError: no such data set.
    """
    return split in _downloaded(name).info.splits


def _downloaded(name: str) -> Any:
    import tensorflow_datasets as tfds
    import tensorflow_datasets.text  # noqa: F401 (registers the text data sets)

    try:
        # The one format that is read at random without TensorFlow.
        builder = tfds.builder(name, file_format="array_record")
    except ValueError as error:  # what DatasetNotFoundError is, too
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"tfds:{name}: {reason}") from error
    builder.download_and_prepare()
    return builder


def open_split(name: str, split: str, features: Collection[str] = ()) -> Sequence[dict[str, Any]]:
    """The examples of one split, in any order: texts are bytes, classes are numbers.

    Its `dataset_info.features` says what the features are.

    Raises:
      InputError: see `prepare`.
    """
    return prepare(name, split, features).as_data_source(split)
