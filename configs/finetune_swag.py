"""SWAG (section 4.4): which of four endings continues a sentence.

Command:
  python launch/finetune.py --config=configs/finetune_swag.py \\
    --config.data=DIR --config.init_from=NAME --workdir=RUN

DIR holds train.csv and val.csv (and test.csv) of github.com/rowanz/swagaf.

Hardware: one GPU or one TPU chip.
Expected: dev accuracy of BERT-Base 81.6, BERT-Large 86.6.
"""

import ml_collections

from bertjax.config import finetune_config


def get_config() -> ml_collections.ConfigDict:
    """The recipe of section 4.4: three epochs, batches of 16, rate 2e-5."""
    config = finetune_config()
    config.task = dict(kind="swag")
    config.grid.update(batch_size=(16,), learning_rate=(2e-5,), epochs=(3,))
    return config
