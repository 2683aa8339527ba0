"""The fast recipe: 4 layers of 256 that learn the most in minutes of a CPU (docs/speedrun.md).

Command:
  python launch/pretrain.py --config=configs/pretrain_fast_mini.py --config.corpus=DIR \\
    --config.budget=20min --workdir=RUN

`pretrain_fast_mini.py:night` is the recipe for hours: 17.8 million tokens in batches of twice the
rows; after the first third, half of the rows are still read left to right (GPT-BERT), so that the
model can do both; 15 % of the others are masked at the end. --config.budget=6h makes it longer.

Hardware: 2 CPU cores. On a CPU without AVX512_BF16, try --config.model.compute_dtype=float32, too.
Expected: docs/speedrun.md.
"""

import ml_collections

from bertjax.base.errors import InputError
from bertjax.config import modern_config, section
from bertjax.runs.recipe import PhaseSpec


def get_config(time: str = "minutes") -> ml_collections.ConfigDict:
    """ModernBERT, left to right first: many small updates by Muon, of larger fresh weights."""
    if time not in ("minutes", "night"):
        raise InputError(f"configs/pretrain_fast_mini.py:{time}: must be :minutes or :night")
    config = modern_config()
    config.total_steps = 4_000
    rows = dict(length=128, batch_size=8)
    del config.phase_1, config.phase_2
    config.phase_1 = {**section(PhaseSpec, share=0.3, **rows), "objective": "left_to_right"}
    config.phase_2 = {**section(PhaseSpec, share=0.7, **rows), "masking": dict(rate=0.4)}
    config.model.update(size="mini", compute_dtype="bfloat16", vocab_multiple=1)
    config.model.update(max_position_embeddings=512, initializer_range=0.06)
    config.optimizer.update(name="muon", learning_rate=4e-3, weight_decay=0.01)
    config.optimizer.update(warmup_steps=400, decay_steps=1_300)
    config.intervals.update(log=20, evaluate=500, checkpoint=500, eval_batches=8)
    config.eval_batch_size = 16
    config.keep_checkpoints = 2
    if time == "night":
        config.total_steps = 8_700
        both = dict(name="hybrid", causal_rows=1, group=2)
        config.phase_1.update(share=1 / 3, batch_size=16)
        config.phase_2.update(share=1 / 3, batch_size=16, objective=both)
        config.phase_3 = {**config.phase_2, "masking": dict(rate=0.15)}
        config.optimizer.update(learning_rate=3e-3, warmup_steps=240, decay_steps=2_900)
        config.intervals.update(log=100, evaluate=1_000)
    return config
