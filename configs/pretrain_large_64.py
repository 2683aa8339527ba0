"""BERT-Large as in the paper (section A.2), on 64 TPU chips.

Command, on every host of the slice:
  python launch/pretrain.py --config=configs/pretrain_large_64.py --config.corpus=DIR --workdir=RUN

Hardware: 64 TPU chips; 4 sequences a chip.
The TPU compiler's estimate for v5e: 12.8 ms a step at length 128 (MFU 38 %), 29.8 at 512 (70 %),
plus collectives of 10.8 ms at the links' full speed; 1.8 GiB of a chip's 15.75:
  python launch/compile_check.py --config=configs/pretrain_large_64.py --topology=v5e:8x8

Expected: on the paper's corpus (3.3 billion words) a perplexity of 3.23 (Table 6);
next-sentence accuracy 97-98 % (section 5.1); four days on 64 chips of 2018.
Not yet run on TPUs by this project.
"""

import ml_collections

from bertjax.config import paper_config, place_on_pod


def get_config() -> ml_collections.ConfigDict:
    """The paper's recipe with the larger model."""
    config = place_on_pod(paper_config())
    config.model.update(size="large")
    return config
