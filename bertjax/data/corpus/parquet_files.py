"""Parquet files: how one is opened, and which columns hold text."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bertjax.base.errors import InputError
from bertjax.data.corpus.line_files import open_file

if TYPE_CHECKING:
    from pyarrow import DataType
    from pyarrow.parquet import ParquetFile


@contextlib.contextmanager
def open_parquet(name: str) -> "Iterator[ParquetFile]":
    """Opens a file or an address; what is damaged raises InputError, also while it is read."""
    import pyarrow as arrow
    from pyarrow.parquet import ParquetFile

    with open_file(name, buffering=0) as file:
        try:
            yield ParquetFile(file)
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{name}: not a Parquet file, or damaged ({error}).") from error


def is_text(dtype: "DataType") -> bool:
    """Whether a column of this type holds texts, or bytes that may be texts, in any encoding."""
    from pyarrow import types

    if types.is_dictionary(dtype):
        dtype = dtype.value_type
    text_types = (
        *(types.is_string, types.is_large_string, types.is_string_view),
        *(types.is_binary, types.is_large_binary, types.is_binary_view),
    )
    return any(is_kind(dtype) for is_kind in text_types)
