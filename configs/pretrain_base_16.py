"""BERT-Base as in the paper (section A.2), on 16 TPU chips.

Command, on every host of the slice:
  python launch/pretrain.py --config=configs/pretrain_base_16.py --config.corpus=DIR --workdir=RUN

Hardware: 16 TPU chips; 16 sequences a chip.
The TPU compiler's estimate for v5e: 10.5 ms a step at length 128 (MFU 54 %), 37.7 at 512 (65 %),
plus collectives of 3.8 ms at the links' full speed; 2.0 GiB of a chip's 15.75:
  python launch/compile_check.py --config=configs/pretrain_base_16.py --topology=v5e:4x4

Expected: on the paper's corpus (3.3 billion words) a perplexity of 3.99 (Table 6);
next-sentence accuracy 97-98 % (section 5.1); four days on 16 chips of 2018.
Not yet run on TPUs by this project.
"""

import ml_collections

from bertjax.config import paper_config, place_on_pod


def get_config() -> ml_collections.ConfigDict:
    """The paper's recipe."""
    return place_on_pod(paper_config())
