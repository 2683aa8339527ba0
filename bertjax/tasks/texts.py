"""All texts of the files of tasks, whatever their columns and fields mean."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertjax.tasks import official_files, rows


def texts(name: str) -> Iterator[str]:
    """Yields each text of a file of a task, compressed or not.

    Those are all texts in the JSON of a .json (as SQuAD's) or .jsonl, all columns of a .csv or
    .parquet, and else the fields between the tabs of each line (GLUE's .tsv with or without a
    header, .txt).
    """
    path = Path(name)
    ending = official_files.ending(path)
    if ending == ".json":
        yield from _nested_texts(official_files.json_value(path.parent, path.name)[1])
    elif ending in (".jsonl", ".csv", ".parquet"):
        for row in rows.read_rows(path.parent, path.name):
            yield from _nested_texts(dict(row.fields))
    else:
        for line in official_files.lines(path.parent, path.name):
            yield from line.split("\t")


def _nested_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _nested_texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _nested_texts(each)
