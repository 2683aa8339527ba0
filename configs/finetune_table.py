"""Your own data: CSV, TSV, JSON lines or Parquet with named columns.

Command:
  python launch/finetune.py --config=configs/finetune_table.py:classification \\
    --config.task.text=title --config.task.text_b=body --config.task.label=topic \\
    --config.data=DIR --config.init_from=NAME --workdir=RUN

DIR holds train.csv, dev.csv and, for predictions, test.csv (or .tsv, .jsonl, .parquet); or it is
hf://datasets/NAME, a data set of the hub. For other names give --config.task.train=FILE and so on.
--config.task.on_null=skip leaves out the rows with null, and counts them. The word after the colon
is classification, multi_label, regression, tagging or questions.

Hardware: one GPU, one TPU chip, or a CPU for small models.
Expected: it depends on the data; --config.grid.restarts=5 shows the spread.
"""

import ml_collections

from bertjax.base.errors import InputError
from bertjax.config import finetune_config, section
from bertjax.tasks.classification import ANSWERS
from bertjax.tasks.table import LOSS, SOFT, Table

# The keys of each problem.
KEYS = {
    "classification": ("text", "text_b", "label", *ANSWERS, *LOSS, *SOFT),
    "multi_label": ("text", "text_b", "label", "separator", *LOSS),
    "regression": ("text", "text_b", "label", "soft_label", "soft_share"),
    "tagging": ("words", "tags", *LOSS),
    "questions": (
        *("question", "context", "answer", "answer_start"),
        *("max_query_length", "stride"),
    ),
}


def get_config(problem: str = "classification") -> ml_collections.ConfigDict:
    """The recipe; `bertjax.tasks.table.Table` describes the columns."""
    config = finetune_config()
    if problem not in KEYS:
        raise InputError(f"configs/finetune_table.py:{problem}: must be one of :{', :'.join(KEYS)}")
    fields = section(Table, kind="table", problem=problem)
    files = ("train", "dev", "test", "on_null")
    config.task = {key: fields[key] for key in ("kind", "problem", *files, *KEYS[problem])}
    if problem == "questions":
        config.max_length = 384
    return config
