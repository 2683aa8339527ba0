"""SuperGLUE (arXiv 1905.00537): one of its eight tasks, or all with the leaderboard's zip file.

Commands:
  python launch/finetune.py --config=configs/finetune_superglue.py:BoolQ \\
    --config.data=DIR --config.init_from=NAME --workdir=RUN
  python launch/finetune.py --config=configs/finetune_superglue.py:all (the rest as above)

DIR holds BoolQ/ CB/ COPA/ MultiRC/ ReCoRD/ RTE/ WiC/ WSC/ AX-b/ AX-g/ as in SuperGLUE's download.

Hardware: one GPU or one TPU chip.
Expected: BERT-Large on the test sets (Table 3): BoolQ 77.4, CB 75.7/83.6, COPA 70.6,
  MultiRC 70.0/24.1, ReCoRD 72.0/71.3, RTE 71.7, WiC 69.6, WSC 64.4.
"""

import ml_collections

from bertjax.config import finetune_config, section
from bertjax.tasks.superglue import SuperGlue


def get_config(task: str = "BoolQ") -> ml_collections.ConfigDict:
    """The paper's recipe (section 5.1): rate 1e-5, batches of 4, ten epochs, 256 tokens."""
    config = finetune_config()
    config.task = section(SuperGlue, kind="superglue", name=task)
    config.max_length = 256
    config.grid.update(batch_size=(4,), learning_rate=(1e-5,), epochs=(10,))
    return config
