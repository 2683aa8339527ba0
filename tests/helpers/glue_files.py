"""Small versions of GLUE's nine tasks and diagnostic set, in the form of its download."""

import random
from pathlib import Path

from bertjax.tasks.glue import SUBMITTED
from tests.helpers.task_files import saying, write_cola, write_mrpc, write_stsb

TESTED = 13  # rows of each test file
_PARSES = "sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse".split()
_MNLI = ["index", "promptID", "pairID", "genre", *_PARSES, "sentence1", "sentence2", "label1"]
_PAIR = ["index", "sentence1", "sentence2"]

# File -> its columns; the column of the label is "label", which a test file lacks.
_FILES = {
    "SST-2/train": ["sentence", "label"],
    "SST-2/dev": ["sentence", "label"],
    "SST-2/test": ["index", "sentence"],
    "QQP/train": ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
    "QQP/dev": ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
    "QQP/test": ["id", "question1", "question2"],
    "MNLI/train": [*_MNLI, "gold_label"],
    "MNLI/dev_matched": [*_MNLI, "label2", "gold_label"],
    "MNLI/dev_mismatched": [*_MNLI, "label2", "gold_label"],
    "MNLI/test_matched": _MNLI[:-1],
    "MNLI/test_mismatched": _MNLI[:-1],
    "diagnostic/diagnostic": _PAIR,
    "QNLI/train": ["index", "question", "sentence", "label"],
    "QNLI/dev": ["index", "question", "sentence", "label"],
    "QNLI/test": ["index", "question", "sentence"],
    "RTE/train": [*_PAIR, "label"],
    "RTE/dev": [*_PAIR, "label"],
    "RTE/test": _PAIR,
    "WNLI/train": [*_PAIR, "label"],
    "WNLI/dev": [*_PAIR, "label"],
    "WNLI/test": _PAIR,
}
_LABELS = ("is_duplicate", "gold_label", "label")
_WORDS = {
    "MNLI": ("neutral", "entailment", "contradiction"),
    "QNLI": ("not_entailment", "entailment"),
    "RTE": ("not_entailment", "entailment"),
}
_TEXTS = ("sentence", "sentence1", "sentence2", "question", "question1", "question2")


def write_glue(folder: Path, rows: int = 24, seed: int = 0) -> Path:
    """Writes all files; a label depends on which half of the sounds the last text is from."""
    rng = random.Random(seed)
    for write in (write_cola, write_mrpc, write_stsb):
        write(folder, rows=rows)
    for name, columns in _FILES.items():
        task, _, split = name.partition("/")
        words = _WORDS.get(task, ("0", "1"))
        count = TESTED if "test" in split or split == "diagnostic" else rows
        lines = ["\t".join(columns)]
        for number in range(count):
            row = {column: str(number) for column in columns}
            for column in columns:
                if column in _TEXTS:
                    high = rng.random() < 0.5
                    row[column] = saying(rng, high)
            row |= {column: words[high] for column in _LABELS if column in columns}
            lines.append("\t".join(row[column] for column in columns))
        path = folder / f"{name}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def small_submission() -> dict[tuple[str, str], tuple[str, int]]:
    """`SUBMITTED` with the rows of these files."""
    return {key: (file, TESTED) for key, (file, _) in SUBMITTED.items()}
