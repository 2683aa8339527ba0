"""SQuAD 1.1 (section 4.2) and 2.0 (section 4.3): answers that are spans of a paragraph.

Command:
  python launch/finetune.py --config=configs/finetune_squad.py:v1.1 \\
    --config.data=DIR --config.init_from=NAME --workdir=RUN

DIR holds train-v1.1.json and dev-v1.1.json (or -v2.0.json); or "tfds:".

Hardware: one GPU or one TPU chip; a CPU for small models and few questions.
Expected: dev EM/F1 of BERT-Base 80.8/88.5 and BERT-Large 84.1/90.9 on 1.1; Large 78.7/81.9 on 2.0.
"""

import ml_collections

from bertjax.config import finetune_config, section
from bertjax.tasks.squad import Squad


def get_config(version: str = "v1.1") -> ml_collections.ConfigDict:
    """The recipe of sections 4.2 and 4.3: for 1.1 three epochs, for 2.0 two with batches of 48."""
    config = finetune_config()
    config.task = section(Squad, kind="squad", version=version)
    # Long paragraphs are cut into the same windows as in google-research/bert.
    config.max_length = 384
    if version == "v2.0":
        config.grid.update(batch_size=(48,), learning_rate=(5e-5,), epochs=(2,))
    return config
