"""The fast recipe: 4 layers of 256 that learn the most in minutes of a CPU.

Command:
  python launch/pretrain.py --config=configs/pretrain_fast_mini.py --config.corpus=DIR \\
    --config.budget=20min --workdir=RUN

`pretrain_fast_mini.py:night` is the recipe for hours: 17.8 million tokens in batches of twice the
rows; after the first third, half of the rows are still read left to right (GPT-BERT), so that the
model can do both; 15 % of the others are masked at the end. --config.budget=6h makes it longer.

Hardware: 2 CPU cores. On a CPU without AVX512_BF16, try --config.model.compute_dtype=float32, too.
Expected: 4.11 nats and 31.8 % on Wikipedia after 20 minutes (3,000 updates, seen once).
docs/results/speedrun.md has the runs.
"""

import ml_collections

from bertjax.base.errors import InputError
from bertjax.config import fast_config


def get_config(time: str = "minutes") -> ml_collections.ConfigDict:
    """ModernBERT, left to right first: many small updates by Muon, of larger random weights."""
    if time == "minutes":
        config = fast_config(batch_size=8, both=False)
        config.total_steps = 4_000
        config.phase_1.share, config.phase_2.share = 0.3, 0.7
        config.optimizer.update(learning_rate=4e-3, warmup_steps=400, decay_steps=1_300)
        config.intervals.update(log=20, evaluate=500, checkpoint=500)
    elif time == "night":
        config = fast_config(batch_size=16, both=True)
        config.total_steps = 8_700
        for phase in (config.phase_1, config.phase_2, config.phase_3):
            phase.share = 1 / 3
        config.optimizer.update(learning_rate=3e-3, warmup_steps=240, decay_steps=2_900)
        config.intervals.update(evaluate=1_000, checkpoint=500)
    else:
        raise InputError(f"configs/pretrain_fast_mini.py:{time}: must be :minutes or :night")
    config.model.size = "mini"
    config.eval_batch_size = 16
    return config
