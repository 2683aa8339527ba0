"""Vectors of texts on disk: first shards, and after the last shard one file.

.parquet   a row for each text. `features` is a fixed-size list of W float32. If a text has several
           vectors, it is a list of these lists, and `tokens` is a list of strings.
.npz       `features` float32 [N, W] for N texts. If a text has several vectors, it is [total, W],
           and text i has the rows offsets[i]:offsets[i + 1]; `offsets` int64 [N + 1]; `tokens`
           [total], each cut after 100 characters.
"""

import contextlib
import json
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from bertjax.base.checks import check_new_output
from bertjax.base.errors import InputError
from bertjax.base.files import (
    atomic_write,
    check_content,
    contents_named,
    exclusive,
    name_by_content,
    named,
    read_json,
    temporary_name,
    to_disk,
    write_json,
)

_LONGEST_TOKEN = 100  # characters; in an .npz all tokens take as much room as the longest


def check_output(path: Path) -> None:
    """Raises InputError if a result cannot be written to `path`."""
    if path.suffix not in _WRITERS:
        raise InputError(f"--output={path}: must end in {' or '.join(_WRITERS)}")
    check_new_output(path)


class Shards:
    """The folder OUTPUT.parts: the finished shards in numbered Arrow files, and their plan."""

    def __init__(self, output: Path, count: int, plan: Mapping[str, Any]):
        """Use `Shards.open`."""
        self._output, self._count = output, count
        self._folder = output.with_name(f"{output.name}.parts")
        self._plan = json.loads(json.dumps(plan))
        self._finished: dict[int, Path] = {}

    @classmethod
    @contextlib.contextmanager
    def open(cls, output: Path, count: int, plan: Mapping[str, Any]) -> Iterator["Shards"]:
        """Opens the folder, and locks it while the block runs.

        `plan` has all settings that determine the result, as JSON. Raises InputError if the folder
        is in use, or has shards of another plan.
        """
        shards = cls(output, count, plan)
        with exclusive(shards._folder):
            shards._check_plan()
            shards._find()
            yield shards

    def _check_plan(self) -> None:
        file = self._folder / "plan.json"
        if not file.exists():
            write_json(file, self._plan)
            return
        found = read_json(file, hint=f"remove {self._folder}, and the command begins again")
        other = [key for key in self._plan | found if found.get(key) != self._plan.get(key)]
        if other:
            raise InputError(
                f"{self._folder}: has shards with another {', '.join(other)}: repeat the "
                "interrupted command, remove the folder, or choose another --output"
            )

    def __contains__(self, number: int) -> bool:
        return number in self._finished

    def _find(self) -> None:
        """Finds the finished shards in one listing of the folder, for there may be thousands."""
        for path in contents_named(self._folder, ".arrow"):
            self._finished[int(path.stem.partition("-")[0])] = path

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:05}.arrow"

    def write(
        self, number: int, vectors: Sequence[np.ndarray], tokens: Sequence[list[str]] | None
    ) -> None:
        """Writes one shard, atomically: of each text float32 [its vectors, W], and their tokens."""
        import pyarrow as arrow

        table = _table(vectors, tokens)
        temporary = temporary_name(self._path(number))
        try:
            with named(self._folder), open(temporary, "wb") as file:
                with arrow.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table)
                to_disk(file)
            self._finished[number] = name_by_content(temporary, self._path(number))
        finally:
            temporary.unlink(missing_ok=True)

    def join(self) -> None:
        """Joins the shards to one file, and removes them; raises InputError if one is damaged."""
        paths = [self._finished[number] for number in range(self._count)]
        for path in paths:
            check_content(path)
        with atomic_write(self._output) as file:
            _WRITERS[self._output.suffix](file, partial(_tables, paths))
        shutil.rmtree(self._folder)


def _tables(paths: Sequence[Path]) -> Iterator[Any]:
    """Yields the shards in order, each as an Arrow table."""
    import pyarrow as arrow

    for path in paths:
        with arrow.memory_map(str(path)) as file:
            yield arrow.ipc.open_file(file).read_all()


def _table(vectors: Sequence[np.ndarray], tokens: Sequence[list[str]] | None) -> Any:
    import pyarrow as arrow

    flat = np.concatenate(vectors)
    features = arrow.FixedSizeListArray.from_arrays(flat.reshape(-1), flat.shape[1])
    if tokens is None:
        return arrow.table({"features": features})
    offsets = np.cumsum([0, *map(len, vectors)], dtype=np.int32)
    return arrow.table(
        {
            "tokens": arrow.array(tokens, arrow.list_(arrow.string())),
            "features": arrow.ListArray.from_arrays(offsets, features),
        }
    )


def _write_parquet(file: IO[bytes], tables: Callable[[], Iterator[Any]]) -> None:
    from pyarrow.parquet import ParquetWriter

    options = {"use_dictionary": ["tokens.list.element"], "write_statistics": False}
    with contextlib.ExitStack() as stack:
        writer = None
        for table in tables():
            writer = writer or stack.enter_context(ParquetWriter(file, table.schema, **options))
            writer.write_table(table, row_group_size=len(table))


def _write_npz(file: IO[bytes], tables: Callable[[], Iterator[Any]]) -> None:
    """Writes the arrays one after another, and each shard by shard, to save memory."""
    import pyarrow.compute as compute

    def column(name: str) -> Iterator[Any]:
        """Yields one column of every shard as a flat array."""
        for table in tables():
            chunk = table.column(name).combine_chunks()
            yield chunk.flatten() if ragged else chunk

    schema = next(tables()).schema
    ragged = "tokens" in schema.names
    total = sum(map(len, column("features")))
    with zipfile.ZipFile(file, "w") as archive:
        vector = schema.field("features").type
        width = (vector.value_type if ragged else vector).list_size
        vectors = (chunk.flatten().to_numpy() for chunk in column("features"))
        _add_array(archive, "features", np.dtype(np.float32), (total, width), vectors)
        if not ragged:
            return
        each = (compute.list_value_length(table.column("tokens")) for table in tables())
        offsets = np.cumsum(np.concatenate([[0], *each]), dtype=np.int64)
        _add_array(archive, "offsets", offsets.dtype, offsets.shape, [offsets])
        longest = max(compute.max(compute.utf8_length(c)).as_py() or 1 for c in column("tokens"))
        text = np.dtype(f"U{min(longest, _LONGEST_TOKEN)}")
        tokens = (np.array(chunk.to_pylist(), text) for chunk in column("tokens"))
        _add_array(archive, "tokens", text, (total,), tokens)


def _add_array(
    archive: zipfile.ZipFile,
    name: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    blocks: Iterable[np.ndarray],
) -> None:
    """Adds an array in numpy's format to an archive; `blocks` are consecutive slices of it."""
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
        description = np.lib.format.dtype_to_descr(dtype)
        header = {"descr": description, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(block.tobytes())


_WRITERS = {".parquet": _write_parquet, ".npz": _write_npz}
