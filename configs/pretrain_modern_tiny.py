"""ModernBERT of 2 layers of 128 on a CPU, in minutes: the modern recipe in its smallest form.

Command:
  python launch/pretrain.py --config=configs/pretrain_modern_tiny.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: 2 CPU cores.
Expected: 3.8 to 3.9 nats and 35 to 36 % on the documentation of Python, in three minutes.
launch/quickstart.sh runs it.
"""

import ml_collections

from bertjax.config import modern_config


def get_config() -> ml_collections.ConfigDict:
    """The modern recipe for a small model and few steps, with Muon, which needs the fewest."""
    config = modern_config()
    config.total_steps = 600
    config.phase_1.update(share=1.0, length=256, batch_size=16, model=dict())
    del config.phase_2
    config.model.update(size="tiny", compute_dtype="float32", vocab_multiple=1)
    config.model.update(max_position_embeddings=512)
    config.optimizer.update(name="muon", learning_rate=5e-3, weight_decay=0.01)
    config.optimizer.update(warmup_steps=60, decay_steps=200)
    config.intervals.update(log=20, evaluate=200, checkpoint=200, eval_batches=32)
    config.eval_batch_size = 16
    config.keep_checkpoints = 2
    return config
