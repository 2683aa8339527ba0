"""mmBERT-base (arXiv 2509.06888), ModernBERT-base with 256,000 pieces, on 16 TPU chips.

Command, on every host of the slice:
  python launch/pretrain.py --config=configs/pretrain_mmbert_base.py --workdir=RUN \\
    --config.corpus=DIR --config.phase_2.corpus=DIR2 --config.phase_3.corpus=DIR3

Hardware: 16 TPU chips; 294,912 tokens a chip, and 2,359,296 of the long rows.
The TPU compiler's estimate for v5e: 3.40 s an update at length 1,024 (MFU 49 %, two fifths of it
in the head), plus collectives of 185 ms at the links' full speed; 11.0 GiB of a chip's 15.75; 19
days for the first phase:
  python launch/compile_check.py --config=configs/pretrain_mmbert_base.py --topology=v5e:4x4 \\
    --config.model.vocab_size=256000
Expected: the published model has 72.8 on XTREME. Not yet run on TPUs by this project.
`--config.budget=20e9tokens` takes a part of the three trillion tokens.

Paper: 2.3 trillion tokens of 60 languages, of which 30 % are predicted, in rows of 1,024; 600
billion of 110 languages, 15 %, in rows of 8,192; and 100 billion of 1,833 languages, 5 %, while the
rate falls by 1 - sqrt. Languages are drawn by their tokens to the power 0.7, 0.5 and 0.3; here
`--config.language_alpha` is one for the whole run. Gemma 2's vocabulary is
`--vocabulary=hf:jhu-clsp/mmBERT-base` of launch/prepare_corpus.py.

Their configs (JHU-CLSP/mmBERT) say the rest: 4,608 rows in all phases, the rate after 3 billion
tokens of warm-up, StableAdamW's numbers (a decay of 8e-5 an update at the peak), and a theta of
160,000 in local layers, too. What is not here: the batch grows in the first 60 billion tokens,
attention's output has a dropout of 0.1, the rate falls to 2 % and not to 0, and the published model
is merged from several decays. The first of them has 25 % for the paper's 30 %.
"""

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
