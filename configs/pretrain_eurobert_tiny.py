"""EuroBERT or NeoBERT of 2 layers of 128 on a CPU, in minutes.

Command:
  python launch/pretrain.py --config=configs/pretrain_eurobert_tiny.py:FAMILY --config.corpus=DIR \\
    --workdir=RUN

FAMILY is eurobert (without `:FAMILY`) or neobert. The papers' recipes, for TPUs, are
pretrain_eurobert_210m.py and pretrain_neobert.py.

Hardware: 2 CPU cores.
Expected: 4.91 nats and 21.9 % on the documentation of Python, in minutes, for eurobert; 5.17 and
19.5 % for neobert (unigram baseline 5.84).

Sizes, lengths and packed rows suit a CPU, and so does the optimizer: Muon needs the fewest steps.
EuroBERT's 30 % of masked tokens are the default of its trainer.
"""

import ml_collections

from bertjax.base.errors import InputError
from bertjax.config import modern_config


def get_config(family: str = "eurobert") -> ml_collections.ConfigDict:
    """Short texts first, and then longer ones."""
    if family not in ("eurobert", "neobert"):
        raise InputError(
            f"configs/pretrain_eurobert_tiny.py:{family}: must be :eurobert or :neobert"
        )
    is_euro = family == "eurobert"
    config = modern_config()
    config.total_steps = 600
    masking = dict(rate=0.3 if is_euro else 0.2, mask=1.0, random=0.0)
    long = 0.1 if is_euro else 0.05
    config.phase_1.update(share=1 - long, length=128, batch_size=32, masking=masking)
    config.phase_2.update(share=long, length=256, batch_size=16, masking=masking)
    config.phase_1.model = dict(global_rope_theta=10_000.0) if is_euro else dict()
    config.phase_2.model = dict()
    config.model.update(encoder=family, size="tiny", hidden_act="silu")
    config.model.update(compute_dtype="float32", vocab_multiple=1, max_position_embeddings=512)
    config.optimizer.update(name="muon", learning_rate=5e-3, beta2=0.95, weight_decay=0.01)
    config.optimizer.update(epsilon=1e-5 if is_euro else 1e-8)
    config.optimizer.update(warmup_steps=60, decay_steps=200)
    config.intervals.update(log=20, evaluate=200, checkpoint=200, eval_batches=32)
    config.eval_batch_size = 16
    config.keep_checkpoints = 2
    return config
