"""BERT-Small (4 layers of 512) on one GPU or one TPU chip.

Command:
  python launch/pretrain.py --config=configs/pretrain_small.py --config.corpus=DIR --workdir=RUN

Hardware: one GPU with 16 GB, or one TPU chip.
Expected: no figure yet; pretrain_tiny runs the same code on a CPU.
"""

import ml_collections

from bertjax.config import paper_config


def get_config() -> ml_collections.ConfigDict:
    """The paper's recipe with a tenth of its steps, and a rate for a smaller model."""
    config = paper_config()
    config.total_steps = 100_000
    config.phase_2.update(batch_size=64)
    config.model.update(size="small")
    config.optimizer.update(learning_rate=5e-4, warmup_steps=5_000)
    config.intervals.update(evaluate=2_000, checkpoint=2_000)
    return config
