"""The fast recipe on one GPU: 8 layers of 512, in five minutes.

Command:
  python launch/pretrain.py --config=configs/pretrain_fast_small.py --config.corpus=DIR \\
    --workdir=RUN

It reads 140 million tokens: half of them left to right; then half of the rows are masked, at the
end 15 % of their tokens, so that the model can do both.

Hardware: one GPU with 24 GB, or one TPU chip.
Expected: 2.21 nats and 56.5 % on an H100 in 4 minutes and 22 seconds, 58 of them to compile.
docs/results/speedrun.md has the run.
"""

import ml_collections

from bertjax.config import fast_config


def get_config() -> ml_collections.ConfigDict:
    """ModernBERT with batches of 8,192 tokens; all of its layers see the whole row."""
    config = fast_config(batch_size=64, both=True)
    config.total_steps = 17_200
    config.phase_1.share = 0.5
    config.phase_2.share = config.phase_3.share = 0.25
    config.model.update(size="mini", num_hidden_layers=8, hidden_size=512, num_attention_heads=8)
    config.model.update(intermediate_size=1360, global_attn_every_n_layers=1)
    config.optimizer.update(learning_rate=3e-3, weight_decay=0.1)
    config.optimizer.update(warmup_steps=600, decay_steps=5_160)
    config.intervals.update(evaluate=4_000, checkpoint=4_000)
    config.eval_batch_size = 128
    return config
