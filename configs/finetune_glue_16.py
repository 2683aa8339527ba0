"""GLUE (section 4.1) on 16 TPU chips: all of its nine tasks, or one.

Command, on every host of the slice; RUN lies on a file system that all hosts share:
  python launch/finetune.py --config=configs/finetune_glue_16.py --config.data=DIR \\
    --config.init_from=NAME --workdir=RUN
  (one task: --config=configs/finetune_glue_16.py:MRPC)

DIR is as in configs/finetune_glue.py. launch/tpu_vm.sh does it on a rented slice (docs/tpu.md).

Hardware: 16 TPU chips; a batch of 32 is 2 examples a chip.
Expected: the scores of configs/finetune_glue.py. Not yet run on TPUs by this project.
"""

import ml_collections

from bertjax.config import finetune_config, place_on_pod, section
from bertjax.tasks.glue import Glue


def get_config(task: str = "all") -> ml_collections.ConfigDict:
    """The recipe of configs/finetune_glue.py."""
    config = finetune_config()
    config.task = section(Glue, kind="glue", name=task)
    config.grid.learning_rate = (5e-5, 4e-5, 3e-5, 2e-5)
    place_on_pod(config)
    del config.model.hidden_act  # that of the weights
    return config
