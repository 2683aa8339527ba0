"""GLUE (section 4.1): its nine tasks and the diagnostic set, from its TSV files or TFDS."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.base.limits import FewOrNone, Free, Rate, check_limits, require
from bertjax.base.validation import real
from bertjax.data.corpus import tfds
from bertjax.tasks import official_files, scores
from bertjax.tasks.classification import (
    STEP_DROPOUT,
    Classification,
    Regression,
    TextPair,
    check_answers,
    class_ids,
    classification,
)
from bertjax.tasks.leaderboard import write_zip
from bertjax.tasks.task import TRAIN, Task


class _Set(NamedTuple):
    """The format of one task."""

    # In the order of google-research/bert `run_classifier.py`, or of GLUE's baselines if that lacks
    # the task; () if the task predicts a number.
    classes: tuple[str, ...]
    numbered: bool  # whether the files have a class's number instead of its name
    texts: tuple[str, ...]
    label: str
    metric: str  # of the paper's Table 1
    tfds: str
    features: tuple[str, ...] = ()  # the texts in TFDS, if they differ from those in the files


_NLI = ("contradiction", "entailment", "neutral")
_ENTAILED = ("entailment", "not_entailment")
_SENTENCES = ("sentence1", "sentence2")
_QUESTIONS = ("question1", "question2")
_STRINGS = ("#1 String", "#2 String")
SETS = {
    "CoLA": _Set(
        ("unacceptable", "acceptable"), True, ("sentence",), "label", "matthews", "glue/cola"
    ),
    "SST-2": _Set(("negative", "positive"), True, ("sentence",), "label", "accuracy", "glue/sst2"),
    "MRPC": _Set(
        ("not_equivalent", "equivalent"), True, _STRINGS, "Quality", "f1", "glue/mrpc", _SENTENCES
    ),
    "STS-B": _Set((), False, _SENTENCES, "score", "spearman", "glue/stsb"),
    "QQP": _Set(("not_duplicate", "duplicate"), True, _QUESTIONS, "is_duplicate", "f1", "glue/qqp"),
    "MNLI": _Set(
        *(_NLI, False, _SENTENCES, "gold_label", "accuracy", "glue/mnli"),
        ("premise", "hypothesis"),
    ),
    "QNLI": _Set(_ENTAILED, False, ("question", "sentence"), "label", "accuracy", "glue/qnli"),
    "RTE": _Set(_ENTAILED, False, _SENTENCES, "label", "accuracy", "glue/rte"),
    "WNLI": _Set(
        ("not_entailment", "entailment"), True, _SENTENCES, "label", "accuracy", "glue/wnli"
    ),
}
_COLA_COLUMNS = ("source", "label", "star", "sentence")  # its files have no header
DIAGNOSTIC = "diagnostic"  # predicted by the model of MNLI
_DIAGNOSTIC_TFDS = "glue/ax"
_SCORES = 0.0, 5.0  # STS-B: the lowest and the highest similarity
_MATCHED, _MISMATCHED = "dev_matched", "dev_mismatched"

# The files that the leaderboard takes: (task, split) -> (file, number of rows).
SUBMITTED = {
    ("CoLA", "test"): ("CoLA.tsv", 1063),
    ("SST-2", "test"): ("SST-2.tsv", 1821),
    ("MRPC", "test"): ("MRPC.tsv", 1725),
    ("STS-B", "test"): ("STS-B.tsv", 1379),
    ("QQP", "test"): ("QQP.tsv", 390965),
    ("MNLI", "test_matched"): ("MNLI-m.tsv", 9796),
    ("MNLI", "test_mismatched"): ("MNLI-mm.tsv", 9847),
    ("QNLI", "test"): ("QNLI.tsv", 5463),
    ("RTE", "test"): ("RTE.tsv", 3000),
    ("WNLI", "test"): ("WNLI.tsv", 146),
    ("MNLI", DIAGNOSTIC): ("AX.tsv", 1104),
}
_HEADER = "index\tprediction"


@dataclasses.dataclass(frozen=True)
class Glue(Task):
    """One task of GLUE.

    Attributes:
      data: the folder of all tasks, as GLUE's download makes it, or the folder of this task, whose
        files may be compressed; or "tfds:", or "tfds:NAME" for another version, such as
        "glue/mrpc:2.0.0".
      name: a key of `SETS`.
      answer_steps: the steps of the answer network that reads a pair of texts with a class
        (`bertjax.models.heads.answer_network`); 0: the class is predicted as that of one text.
      answer_dropout: the probability that a step of it is left out of a prediction in training.
    """

    data: Free[str]
    name: str
    answer_steps: FewOrNone = 0
    answer_dropout: Rate = STEP_DROPOUT

    def __post_init__(self):
        require(self.name in SETS, self, "name", f"must be one of {', '.join(SETS)}, or all")
        check_limits(self)
        of_pairs = self._set.classes and len(self._set.texts) == 2
        check_answers(self, "" if of_pairs else self.name)

    @property
    def _set(self) -> _Set:
        return SETS[self.name]

    @property
    def family(self) -> Classification | Regression:
        classes, pairs = self._set.classes, len(self._set.texts) == 2
        if not classes:
            return Regression(pairs)
        return classification(classes, pairs, self.answer_steps, self.answer_dropout)

    @property
    def metric(self) -> str:
        return self._set.metric

    @cached_property
    def dev_splits(self) -> tuple[str, ...]:
        if self.name != "MNLI":
            return ("dev",)
        return (_MATCHED, *self._present(_MISMATCHED))

    @cached_property
    def test_splits(self) -> tuple[str, ...]:
        if self.name != "MNLI":
            return self._present("test")
        return self._present("test_matched", "test_mismatched", DIAGNOSTIC)

    def _present(self, *splits: str) -> tuple[str, ...]:
        if self._in_tfds:
            return splits
        exists = official_files.exists
        return tuple(s for s in splits if exists(self._folder(s), f"{s}.tsv"))

    @property
    def _in_tfds(self) -> bool:
        return self.data.startswith(tfds.PREFIX)

    def _folder(self, split: str) -> Path:
        data = Path(self.data)
        usual = [data / self.name, data]
        # GLUE's downloads had the diagnostic set in different folders.
        places = [data / DIAGNOSTIC, *usual, data / "AX"] if split == DIAGNOSTIC else usual
        found = (place for place in places if official_files.exists(place, f"{split}.tsv"))
        return next(found, usual[0])

    def read(self, split: str) -> list[TextPair]:
        """The examples of a split, in the order of GLUE's file; test splits have no labels.

        Rows of QQP that lack columns are left out and counted, as in GLUE's baselines.
        """
        labelled = split == TRAIN or split in self.dev_splits
        if split == _MATCHED and _MISMATCHED not in self.dev_splits:
            print(
                f"warning: {self._folder(_MATCHED)}: no {_MISMATCHED}.tsv: MNLI is scored on "
                "matched genres only",
                flush=True,
            )
        read = self._read_tfds if self._in_tfds else self._read_file
        what = f"example of {self.name} {split}"
        return official_files.nonempty(read(split, labelled), self.data, what)

    def _read_file(self, split: str, labelled: bool) -> Iterator[TextPair]:
        name, folder = f"{split}.tsv", self._folder(split)
        path = official_files.find(folder, name)
        rows = _rows(path, official_files.lines(folder, name))
        header: Sequence[str] = _COLA_COLUMNS
        if self.name != "CoLA" or not labelled:
            _, header = next(rows, (0, ()))
        wanted = (*self._set.texts, *([self._set.label] if labelled else []))
        if missing := [column for column in wanted if column not in header]:
            raise InputError(
                f"{path}: no column {', '.join(map(repr, missing))}, which {self.name} {split} "
                f"needs; it has {', '.join(map(repr, header)) or 'none: it is empty'}"
            )
        places = [header.index(column) for column in wanted]
        index = header.index("index") if "index" in header else None
        count = short = 0
        for number, row in rows:
            if len(row) < len(header) and self.name == "QQP" and labelled:
                short += 1
                continue
            where = f"{path} line {number}"
            official_files.check_width(where, row, len(header), f"{self.name} {split}")
            values = [row[place] for place in places]
            label = self._label(values.pop(), where) if labelled else None
            b = values[1] if len(values) == 2 else None
            yield TextPair(str(count) if index is None else row[index], values[0], b, label, where)
            count += 1
        if short:
            print(f"{path}: {short} rows with too few columns left out, {count} read", flush=True)

    def _label(self, value: str, where: str) -> str | float:
        classes, numbered = self._set.classes, self._set.numbered
        if not classes:
            return self._score(value, where)
        number_of = {str(n) if numbered else name: n for n, name in enumerate(classes)}
        return classes[class_ids([value], number_of, where)[0]]

    def _score(self, value: str | float, where: str) -> float:
        number, (least, most) = real(value), _SCORES
        if number is None or not least <= number <= most:
            raise InputError(
                f"{where}: {self._set.label} {value!r}: must be a number from {least:g} to "
                f"{most:g}: is this a file of {self.name}?"
            )
        return number

    def _read_tfds(self, split: str, labelled: bool) -> Iterator[TextPair]:
        name = self.data.removeprefix(tfds.PREFIX) or self._set.tfds
        name, split = (
            (_DIAGNOSTIC_TFDS, "test")
            if split == DIAGNOSTIC
            else (name, split.replace("dev", "validation"))
        )
        features = self._set.features or self._set.texts
        needed = [*features, "idx", *(["label"] if labelled else [])]
        records = tfds.open_split(name, split, needed)
        # TFDS shuffles the examples, but the leaderboard needs the order of its files.
        for record in sorted(map(records.__getitem__, range(len(records))), key=_index):
            index = _index(record)
            where = f"tfds:{name}/{split} example {index}"
            texts = [record[feature].decode("utf-8") for feature in features]
            label = None
            if labelled and self._set.classes:
                label = records.dataset_info.features["label"].names[record["label"]]
            elif labelled:
                label = self._score(float(record["label"]), where)
            b = texts[1] if len(texts) == 2 else None
            yield TextPair(str(index), texts[0], b, label, where)

    def rows(self, examples: Sequence[TextPair]) -> int:
        """The rows of the leaderboard's file with these examples."""
        return len(examples)

    def tune(self, examples: Sequence[TextPair], predictions: Sequence[Any]) -> dict[str, Any]:
        """See `Task`: this task has no settings."""
        return {}

    def score(
        self, examples: Sequence[TextPair], predictions: Sequence[Any], settings: Mapping[str, Any]
    ) -> dict[str, float]:
        """GLUE's metrics of the task in percent; of two metrics also the mean, as in GLUE."""
        family = self.family
        if isinstance(family, Regression):
            gold = family.targets(examples)
            pair = {
                "spearman": scores.spearman(gold, predictions),
                "pearson": scores.pearson(gold, predictions),
            }
            return pair | {"mean": sum(pair.values()) / 2}
        gold, chosen = family.label_ids(examples), np.argmax(predictions, axis=-1)
        accuracy = {"accuracy": scores.accuracy(gold, chosen)}
        if self.metric == "matthews":
            return {"matthews": scores.matthews(gold, chosen)} | accuracy
        if self.metric == "f1":
            pair = {"f1": scores.f1(gold, chosen)} | accuracy
            return pair | {"mean": sum(pair.values()) / 2}
        return accuracy

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[TextPair],
        predictions: Sequence[Any],
        settings: Mapping[str, Any],
    ) -> None:
        """Writes a test split in the leaderboard's form, or a dev split with its labels."""
        columns = [[example.id for example in examples], list(map(self._word, predictions))]
        if split in self.dev_splits:
            name, header = f"{self.name}-{split}.tsv", f"{_HEADER}\tlabel"
            columns.append(list(map(self._word, self._gold(examples))))
        else:
            (name, _), header = SUBMITTED[self.name, split], _HEADER
        with atomic_write(folder / name, "w") as file:
            rows = map("\t".join, zip(*columns, strict=True))
            file.writelines(f"{line}\n" for line in (header, *rows))

    def _gold(self, examples: Sequence[TextPair]) -> list[Any]:
        family = self.family
        if isinstance(family, Regression):
            return family.targets(examples).tolist()
        return list(np.eye(len(family.classes))[family.label_ids(examples)])

    def _word(self, prediction: Any) -> str:
        if not self._set.classes:
            return f"{min(max(_SCORES[0], prediction), _SCORES[1]):.3f}"
        chosen = int(np.argmax(prediction))
        return str(chosen) if self._set.numbered else self._set.classes[chosen]


def _rows(path: Path, lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, columns); quotes are unbalanced in these files, so they are ordinary."""
    empty: list[int] = []
    for number, line in enumerate(lines, start=1):
        if line:
            yield from ((each, [""]) for each in empty)
            empty = []
            yield number, line.split("\t")
        else:
            empty.append(number)


def _index(record: Mapping[str, Any]) -> int:
    return int(record["idx"])


def submission(runs: Mapping[str, Path], output: Path) -> None:
    """Writes the leaderboard's zip file from the predictions of all tasks.

    `runs` maps each task of `SETS` to the folder that `Glue.write` wrote the test splits into. The
    errors are those of `bertjax.tasks.leaderboard.write_zip`.
    """
    write_zip(SUBMITTED, runs, output, _checked)


def _checked(path: Path, rows: int) -> str:
    text = path.read_text(encoding="utf-8")
    header, *lines = text.splitlines()
    if header != _HEADER or len(lines) != rows:
        raise InputError(
            f"{path}: {len(lines)} predictions below {header!r}; the official test set has {rows}, "
            f"below {_HEADER!r}: predict it again from GLUE's own test file"
        )
    return text
