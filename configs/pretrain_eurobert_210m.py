"""EuroBERT-210m."""

import ml_collections

from bertjax.config import modern_config, place_on_pod


def get_config() -> ml_collections.ConfigDict:
    """Pre-training, and then the annealing on longer texts."""
    config = place_on_pod(modern_config())
    config.total_steps = 1_200_000
    config.phase_1.update(share=0.96, length=2_048, batch_size=2_048, accumulate=16)
    config.phase_2.update(share=0.04, batch_size=512, accumulate=16)
    config.phase_1.masking = dict(rate=0.5, mask=1.0, random=0.0)
    config.phase_2.masking = dict(rate=0.1, mask=1.0, random=0.0)
    config.model.update(encoder="eurobert", size="210m", hidden_act="silu")
    config.optimizer.update(name="adamw", learning_rate=1e-4, beta2=0.95, epsilon=1e-5)
    config.optimizer.update(weight_decay=0.1, warmup_steps=12_000, decay_steps=48_000)
    return config
