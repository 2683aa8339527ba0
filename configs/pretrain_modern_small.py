"""ModernBERT of 68 million parameters (Ettin's third size) on one GPU or one TPU chip.

Command:
  python launch/pretrain.py --config=configs/pretrain_modern_small.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: one GPU with 24 GB, or one TPU chip.
Expected: no figure yet; pretrain_modern_tiny runs the same code on a CPU.
"""

import ml_collections

from bertjax.config import modern_config


def get_config() -> ml_collections.ConfigDict:
    """The modern recipe with batches of 65,536 tokens, for 6.5 billion tokens in all."""
    config = modern_config()
    config.phase_1.update(batch_size=64, accumulate=4)
    config.phase_2.update(batch_size=8, accumulate=4)
    config.model.update(size="68m")
    config.intervals.update(evaluate=2_000, checkpoint=2_000)
    config.eval_batch_size = 16
    return config
