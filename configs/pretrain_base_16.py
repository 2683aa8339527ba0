"""BERT-Base as in the paper (section A.2), on 16 TPU chips.

Command, on every host of the slice:
  python launch/pretrain.py --config=configs/pretrain_base_16.py --config.corpus=DIR --workdir=RUN

Hardware: 16 TPU chips; 16 sequences a chip.
Expected, of the paper's corpus (3.3 billion words): held-out masked-LM perplexity 3.99
(Table 6), next-sentence accuracy 97-98 % (section 5.1); four days on 16 chips of 2018.
Not yet run on TPUs by this project.
"""

import ml_collections

from bertjax.config import paper_config


def get_config() -> ml_collections.ConfigDict:
    """The paper's recipe."""
    return paper_config()
