"""ModernBERT-base (arXiv 2412.13663) for 100 billion tokens, on 16 TPU chips.

Command, on every host of the slice:
  python launch/pretrain.py --config=configs/pretrain_modern_base_16.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: 16 TPU chips; 65,536 tokens a chip.
The TPU compiler's estimate for v5e: 0.47 s a step at length 1,024 (MFU 56 %), 0.78 s at 8,192
(56 %), plus collectives of 14 and 27 ms at the links' full speed; 6.0 GiB of a chip's 15.75:
  python launch/compile_check.py --config=configs/pretrain_modern_base_16.py --topology=v5e:4x4
Expected: the paper's model of 2 trillion tokens has 88.4 on GLUE's dev sets (Table 1). Not yet run
on TPUs by this project.
"""

import ml_collections

from bertjax.config import modern_config, place_on_pod


def get_config() -> ml_collections.ConfigDict:
    """The modern recipe, its microbatches of a size that fits into a chip's memory."""
    config = place_on_pod(modern_config())
    config.phase_1.update(accumulate=4)
    config.phase_2.update(accumulate=8)
    return config
