"""The fast recipe: 4 layers of 256 that learn the most in minutes of a CPU (docs/speedrun.md).

Command:
  python launch/pretrain.py --config=configs/pretrain_fast_mini.py --config.corpus=DIR \\
    --config.budget=20min --workdir=RUN

Hardware: 2 CPU cores.
Expected: docs/speedrun.md.
"""

import ml_collections

from bertjax.config import modern_config


def get_config() -> ml_collections.ConfigDict:
    """ModernBERT, so that its model goes to transformers, with many small updates by Muon."""
    config = modern_config()
    config.total_steps = 4_000
    config.phase_1.update(share=1.0, length=128, batch_size=8, model=dict())
    config.phase_1.masking = dict(rate=0.3)
    del config.phase_2
    config.model.update(size="mini", compute_dtype="float32", vocab_multiple=1)
    config.model.update(max_position_embeddings=512)
    config.optimizer.update(name="muon", learning_rate=2e-3, weight_decay=0.01)
    config.optimizer.update(warmup_steps=200, decay_steps=1_500)
    config.intervals.update(log=20, evaluate=500, checkpoint=500, eval_batches=8)
    config.eval_batch_size = 16
    config.keep_checkpoints = 2
    return config
