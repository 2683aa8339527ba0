"""ModernBERT-large (arXiv 2412.13663) for 100 billion tokens, on 64 TPU chips.

Command, on every host of the slice:
  python launch/pretrain.py --config=configs/pretrain_modern_large_64.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: 64 TPU chips; 16,384 tokens a chip.
The TPU compiler's estimate for v5e: 0.37 s a step at length 1,024 (MFU 51 %), 0.41 s at 8,192
(64 %), plus collectives of 20 ms at the links' full speed; 8.8 GiB of a chip's 15.75:
  python launch/compile_check.py --config=configs/pretrain_modern_large_64.py --topology=v5e:8x8
Expected: the paper's model of 2 trillion tokens has 90.4 on GLUE's dev sets (Table 1). Not yet run
on TPUs by this project.
"""

import ml_collections

from bertjax.config import modern_config, place_on_pod


def get_config() -> ml_collections.ConfigDict:
    """The modern recipe with the larger model, its rate and its decay (appendix A)."""
    config = place_on_pod(modern_config())
    config.phase_1.update(accumulate=2)
    config.phase_2.update(accumulate=2)
    config.model.update(size="large")
    config.optimizer.update(learning_rate=5e-4, weight_decay=0.02)
    return config
