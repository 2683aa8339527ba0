"""BERT-Large in large batches with LAMB (arXiv 1904.00962), on 64 TPU chips.

Command, on every host of the slice:
  python launch/pretrain.py --config=configs/pretrain_large_64_lamb.py \\
    --config.corpus=DIR --workdir=RUN

  ...lamb.py       32k sequences throughout, 15,625 updates
  ...lamb.py:64k   64k at length 128, 32k at 512, 8,599 updates ("76 minutes")

Both train on 512 million sequences. For the second stage of 64k, that paper repeats the warm-up of
the rate; here the rate continues to fall.
Hardware: 64 TPU chips; each update computes its batch in microbatches.
The TPU compiler's estimate for v5e, 32k: 0.92 s an update at length 128 (MFU 68 %), 3.7 s at 512
(71 %), plus collectives of 0.06 and 0.47 s at the links' full speed; by count 0.73 s and 3.5 s; 6.2
GiB of a chip's 15.75:
  python launch/compile_check.py --config=configs/pretrain_large_64_lamb.py --topology=v5e:8x8

Expected: not yet run on TPUs by this project.
"""

import ml_collections

from bertjax.config import paper_config, place_on_pod


def get_config(batch: str = "32k") -> ml_collections.ConfigDict:
    """The recipe of the LAMB paper's Table 4: rate and warm-up follow the batch's square root."""
    config = place_on_pod(paper_config())
    config.model.update(size="large")
    config.phase_1.update(batch_size=32_768, accumulate=8)
    config.phase_2.update(batch_size=32_768, accumulate=64)
    config.total_steps = 15_625
    config.optimizer.update(name="lamb", learning_rate=5e-3, warmup_steps=3_125)
    if batch == "64k":
        config.total_steps = 8_599
        config.phase_1.update(batch_size=65_536, accumulate=16, share=7_037 / 8_599)
        config.phase_2.update(share=1_562 / 8_599)
        config.optimizer.update(warmup_steps=2_000)
    elif batch != "32k":
        raise ValueError(f"pretrain_large_64_lamb:{batch}: must be 32k or 64k")
    config.intervals.update(log=10, evaluate=250, checkpoint=250)
    return config
