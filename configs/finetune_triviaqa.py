"""TriviaQA-Wiki (section 4.2, footnote 12), which warms a model up for SQuAD.

Command:
  python launch/finetune.py --config=configs/finetune_triviaqa.py \\
    --config.data=DIR --config.init_from=NAME --workdir=RUN

DIR holds qa/ and evidence/ of triviaqa-rc.tar.gz. Then --config.init_from=RUN of
configs/finetune_squad.py goes on from this model and its output layer.

Hardware: one GPU or one TPU chip.
Expected: the paper has no scores on TriviaQA. On SQuAD 1.1, BERT-Large reaches dev EM/F1 84.2/91.1
after it, and 84.1/90.9 without it.
"""

import ml_collections

from bertjax.config import finetune_config, section
from bertjax.tasks.triviaqa import TriviaQa


def get_config() -> ml_collections.ConfigDict:
    """The recipe of SQuAD for one epoch; the paper does not say how it trained on TriviaQA."""
    config = finetune_config()
    config.task = section(TriviaQa, kind="triviaqa")
    config.max_length = 384
    config.grid.update(epochs=(1,))
    return config
