"""SWAG (section 4.4): which of four endings continues a sentence."""

import csv
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.files import atomic_write
from bertjax.base.limits import Free
from bertjax.data.corpus import tfds
from bertjax.tasks import official_files, scores
from bertjax.tasks.choice import Choice, MultipleChoice
from bertjax.tasks.rows import FileRow, read_rows
from bertjax.tasks.task import TRAIN, Task

_FILES = {TRAIN: "train.csv", "dev": "val.csv", "test": "test.csv"}
_TFDS_SPLITS = {TRAIN: "train", "dev": "validation", "test": "test"}
_ENDINGS = tuple(f"ending{number}" for number in range(4))


@dataclasses.dataclass(frozen=True)
class Swag(Task):
    """The data set SWAG, whose files have the columns sent1, sent2, ending0 to ending3 and label.

    Attributes:
      data: the folder of train.csv, val.csv and test.csv (compressed or not); or "tfds:NAME", a
        data set with these columns as features. If it has a feature "idx", that gives the order.
    """

    data: Free[str]

    name = "SWAG"
    metric = "accuracy"
    family = MultipleChoice(len(_ENDINGS))
    dev_splits = ("dev",)

    @cached_property
    def test_splits(self) -> tuple[str, ...]:
        if self.data.startswith(tfds.PREFIX):
            has_test = tfds.has_split(self.data.removeprefix(tfds.PREFIX), _TFDS_SPLITS["test"])
        else:
            has_test = official_files.exists(Path(self.data), _FILES["test"])
        return ("test",) if has_test else ()

    def read(self, split: str) -> list[Choice]:
        """The examples of a split; as in transformers, A is sent1, and B is sent2 and an ending."""
        if self.data.startswith(tfds.PREFIX):
            rows = _tfds_rows(self.data.removeprefix(tfds.PREFIX), _TFDS_SPLITS[split])
        else:
            rows = read_rows(Path(self.data), _FILES[split])
        examples = (_example(row, labelled=split != "test") for row in rows)
        return official_files.nonempty(examples, f"{self.data} {_FILES[split]}", "example")

    def tune(self, examples: Sequence[Choice], predictions: Sequence[Any]) -> dict[str, Any]:
        """See `Task`: this task has no settings."""
        return {}

    def score(
        self, examples: Sequence[Choice], predictions: Sequence[Any], settings: Mapping[str, Any]
    ) -> dict[str, float]:
        """The accuracy in percent."""
        gold = self.family.label_ids(examples)
        return {"accuracy": scores.accuracy(gold, np.argmax(predictions, axis=-1))}

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Choice],
        predictions: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> None:
        """Writes swag-SPLIT.csv with the column "pred", like the authors' csv_predict.py."""
        with atomic_write(folder / f"swag-{split}.csv", "w") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["", "pred"])
            for example, prediction in zip(examples, predictions, strict=True):
                writer.writerow([example.id, int(np.argmax(prediction))])


def _example(row: FileRow, *, labelled: bool) -> Choice:
    return Choice(
        str(row.number),
        row.text("sent1"),
        row.value("sent2"),  # empty if the endings are whole sentences
        tuple(map(row.text, _ENDINGS)),
        row.integer("label", len(_ENDINGS)) if labelled else None,
        row.where,
    )


def _tfds_rows(name: str, split: str) -> Iterator[FileRow]:
    records = list(tfds.open_split(name, split))
    records.sort(key=lambda record: record.get("idx", 0))
    for number, record in enumerate(records):
        fields = {
            column: value.decode("utf-8") if isinstance(value, bytes) else value
            for column, value in record.items()
        }
        yield FileRow(number, f"{tfds.PREFIX}{name}/{split} example {number}", fields)
