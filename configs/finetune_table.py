"""Your own data: CSV, TSV or JSON lines with named columns.

Command:
  python launch/finetune_table.py --config=configs/finetune_table.py:classification \\
    --config.task.text=title --config.task.text_b=body --config.task.label=topic \\
    --config.data=DIR --config.init_from=NAME --workdir=RUN

DIR holds train.csv, dev.csv and, for predictions, test.csv (or .tsv, or .jsonl). For other names
give --config.task.train=FILE and so on. The word after the colon is classification, regression,
tagging or questions.

Hardware: one GPU, one TPU chip, or a CPU for small models.
Expected: it depends on the data; --config.grid.restarts=5 shows the spread.
"""

import ml_collections

from bertjax.base.errors import InputError
from bertjax.config import finetune_config


def get_config(problem: str = "classification") -> ml_collections.ConfigDict:
    """The recipe; `bertjax.tasks.table.Table` describes the columns."""
    config = finetune_config()
    config.task = dict(kind="table", problem=problem, train="", dev="", test="")
    if problem in ("classification", "regression"):
        config.task.update(text="text", text_b="", label="label")
    elif problem == "tagging":
        config.task.update(words="words", tags="tags")
    elif problem == "questions":
        config.task.update(question="question", context="context", answer="answer", answer_start="")
        config.task.update(max_query_length=64, stride=128)
        config.max_length = 384
    else:
        raise InputError(
            f"configs/finetune_table.py:{problem}: must be :classification, :regression, :tagging "
            "or :questions"
        )
    return config
