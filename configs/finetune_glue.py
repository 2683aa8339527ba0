"""GLUE (section 4.1): one of its nine tasks, or all of them with the leaderboard's zip file.

Commands:
  python launch/finetune.py --config=configs/finetune_glue.py:MRPC \\
    --config.data=DIR --config.init_from=NAME --workdir=RUN
  python launch/finetune.py --config=configs/finetune_glue.py:all (the rest as above)

DIR holds CoLA/ SST-2/ MRPC/ STS-B/ QQP/ MNLI/ QNLI/ RTE/ WNLI/ as in GLUE's download; or "tfds:".
If a small task is unstable, use several restarts: --config.grid.restarts=5

Hardware: one GPU, one TPU chip, or a CPU for small models.
Expected: BERT-Base on the test sets (Table 1): CoLA 52.1, SST-2 93.5, MRPC 88.9, STS-B 85.8,
  QQP 71.2, MNLI 84.6/83.4, QNLI 90.5, RTE 66.4.
"""

import ml_collections

from bertjax.config import finetune_config, section
from bertjax.tasks.glue import Glue


def get_config(task: str = "MRPC") -> ml_collections.ConfigDict:
    """Section 4.1: batch 32, three epochs, four rates."""
    config = finetune_config()
    config.task = section(Glue, kind="glue", name=task)
    config.grid.learning_rate = (5e-5, 4e-5, 3e-5, 2e-5)
    return config
