"""A small model learns the predictions of a large one (distillation, arXiv 1503.02531).

Commands; TEACHER is a run of configs/finetune_table.py on DIR, or an ensemble:
  python launch/predict.py --model=TEACHER --input=DIR/train.csv --output=DIR/taught.jsonl
  python launch/predict.py --model=TEACHER --input=DIR/dev.csv --output=DIR/taught_dev.jsonl
  python launch/finetune.py --config=configs/finetune_student.py \\
    --config.data=DIR --config.init_from=NAME --workdir=RUN

The columns of DIR/train.csv and DIR/dev.csv are text and label. The label is given_label in what
launch/predict.py writes; a column of another name keeps it: --config.task.label=NAME. Pairs need
--config.task.text_b=text_b.

Hardware: one GPU, one TPU chip, or a CPU for small models.
Expected: not yet measured by this project.
"""

import ml_collections

from bertjax.config import finetune_config, section
from bertjax.tasks.classification import ANSWERS
from bertjax.tasks.table import LOSS, SOFT, Table

KEYS = ("kind", "problem", "train", "dev", "test", "text", "text_b", "label")


def get_config() -> ml_collections.ConfigDict:
    """The recipe of a table's classes; half of the loss is of the teacher's probabilities."""
    config = finetune_config()
    fields = section(Table, kind="table", train="taught.jsonl", dev="taught_dev.jsonl")
    fields.update(label="given_label", soft_label="probabilities")
    config.task = {key: fields[key] for key in (*KEYS, *ANSWERS, *LOSS, *SOFT)}
    return config
