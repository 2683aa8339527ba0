"""mmBERT-base."""

import ml_collections

from bertjax.config import modern_config, place_on_pod


def get_config() -> ml_collections.ConfigDict:
    """The paper's three phases."""
    config = place_on_pod(modern_config())
    config.total_steps = 506_050
    config.phase_1.update(batch_size=4_608, accumulate=18)
    config.phase_1.model.local_rope_theta = 10_000.0
    config.phase_2.update(batch_size=4_608, accumulate=144)
    config.phase_3 = config.phase_2.to_dict()
    for phase, steps, rate in ((1, 487_500, 0.3), (2, 15_900, 0.15), (3, 2_650, 0.05)):
        share = steps / config.total_steps
        config[f"phase_{phase}"].update(share=share, masking=dict(rate=rate))
    config.model.update(local_rope_theta=160_000.0)
    config.optimizer.update(beta2=0.95, epsilon=1e-8, weight_decay=0.1)
    config.optimizer.update(warmup_steps=640, decay_steps=2_650)
    return config
