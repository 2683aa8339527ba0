"""BERT-Tiny (2 layers of 128) on a CPU, in minutes: a small example of the whole path.

Command:
  python launch/pretrain.py --config=configs/pretrain_tiny.py --config.corpus=DIR --workdir=RUN

Hardware: 2 CPU cores.
Expected: 13 % on the documentation of Python, in four minutes. That is the corpus of
launch/quickstart.sh.
"""

import ml_collections

from bertjax.config import paper_config


def get_config() -> ml_collections.ConfigDict:
    """The paper's recipe for a small model and few steps."""
    config = paper_config()
    config.total_steps = 1_000
    config.phase_1.update(batch_size=32)
    config.phase_2.update(batch_size=8)
    # Each text is seen little more than once, so dropout is not needed.
    no_dropout = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config.model.update(size="tiny", compute_dtype="float32", vocab_multiple=1, **no_dropout)
    config.optimizer.update(learning_rate=2e-3, warmup_steps=100)
    config.intervals.update(log=20, evaluate=200, checkpoint=200, eval_batches=32)
    config.eval_batch_size = 32
    config.keep_checkpoints = 2
    return config
