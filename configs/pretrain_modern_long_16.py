"""ModernBERT-base for sequences of 32,768 tokens, on 16 TPU chips.

Command, on every host of the slice; the weights are those of a run of pretrain_modern_base_16:
  python launch/pretrain.py --config=configs/pretrain_modern_long_16.py --config.corpus=DIR \\
    --config.init_from=BASE --workdir=RUN

Hardware: 16 TPU chips. Four chips share a sequence, so that each has 8,192 of its tokens.
The TPU compiler says what an update takes, of whole rows or of packed documents:
  python launch/compile_check.py --config=configs/pretrain_modern_long_16.py \\
    --topology=v5e:4x4 --document=700
Expected: not yet run on TPUs by this project.
"""

import ml_collections

from bertjax.config import modern_config, place_on_pod


def get_config() -> ml_collections.ConfigDict:
    """The modern recipe at constant rate, for five billion tokens in one phase."""
    config = place_on_pod(modern_config())
    config.layout, config.mesh.model = "sequence", 4
    config.total_steps = 5_000
    config.phase_1.update(share=0.0)
    config.phase_2.update(share=1.0, length=32_768, batch_size=32, accumulate=8)
    config.model.update(max_position_embeddings=32_768)
    config.optimizer.update(learning_rate=8e-5, warmup_steps=100, decay_steps=1_000)
    config.eval_batch_size = 8
    return config
