"""NeoBERT (arXiv 2502.19587), 28 layers of 768, on 16 TPU chips.

Command, on every host of the slice:
  python launch/pretrain.py --config=configs/pretrain_neobert.py --config.corpus=DIR --workdir=RUN

Hardware: 16 TPU chips; 131,072 tokens a chip.
The TPU compiler's estimate for v5e: 1.61 s an update at length 1,024 (MFU 61 %), plus collectives
of 22 ms at the links' full speed; 14.8 GiB of a chip's 15.75; 19 days for the first phase:
  python launch/compile_check.py --config=configs/pretrain_neobert.py --topology=v5e:4x4
Expected: the published model has 89.0 on GLUE's dev sets (Table 3). Not yet run on TPUs by this
project. `--config.budget=20e9tokens` takes a part of the 2.2 trillion tokens.

Paper, and the scripts of chandar-lab/NeoBERT: a million updates of 2,048 rows of 1,024 tokens of
RefinedWeb, and 50,000 of 512 rows of 4,096; BERT's vocabulary (`--vocabulary=hf:bert-base-uncased`
of launch/prepare_corpus.py). A fifth of the tokens become [MASK]. AdamW has a rate of 6e-4 after
2,000 updates, beta2 0.95 and a decay of 0.1 (the scripts' defaults are 1e-4 and 0.01). There the
rate falls by a cosine to a tenth in 900,000 updates, and then stays; here it falls on a line to 0.
There a row has one document, and the long phase reads only those of 1,024 tokens and more
(`--config.phase_2.corpus=DIR`); here rows are packed.
"""

import ml_collections

from bertjax.config import modern_config, place_on_pod


def get_config() -> ml_collections.ConfigDict:
    """The paper's two phases."""
    config = place_on_pod(modern_config())
    config.total_steps = 1_050_000
    masking = dict(rate=0.2, mask=1.0, random=0.0)
    config.phase_1.update(share=20 / 21, batch_size=2_048, accumulate=4, masking=masking)
    config.phase_2.update(share=1 / 21, length=4_096, batch_size=512, accumulate=8)
    config.phase_2.masking = masking
    config.phase_1.model = dict()
    config.model.update(encoder="neobert", size="250m", hidden_act="silu")
    config.model.update(max_position_embeddings=4_096)
    config.optimizer.update(name="adamw", learning_rate=6e-4, beta2=0.95, epsilon=1e-8)
    config.optimizer.update(schedule="linear", warmup_steps=2_000, decay_steps=0)
    config.optimizer.update(weight_decay=0.1)
    return config
