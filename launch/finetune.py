"""Fine-tunes on a task: python launch/finetune.py --config=configs/finetune_glue.py:MRPC ...

The config names the task: GLUE, SQuAD, SWAG, named entities, or your own table.
"""

from absl import flags
from ml_collections import config_flags

from bertjax.programs import commandline

_CONFIG = config_flags.DEFINE_config_file(
    *("config", None, "A file of configs/."), lock_config=False, accept_new_attributes=True
)  # a key that the file lacks may be given, too: the recipe knows them all
_WORKDIR = flags.DEFINE_string("workdir", None, "Where the run lies; a run found there goes on.")
flags.mark_flags_as_required(["config", "workdir"])


def main(_) -> int:
    from bertjax.programs import finetune

    return finetune.run(_CONFIG.value, _WORKDIR.value)


if __name__ == "__main__":
    commandline.run(main)
