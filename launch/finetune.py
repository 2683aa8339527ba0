"""Fine-tunes on a task: python launch/finetune.py --config=configs/finetune_glue.py:MRPC ...

The config names the task: GLUE, SQuAD, SWAG, named entities, or your own table; or what compares
texts: vectors, or a reranker.
"""

from absl import flags

from bertjax.programs import commandline

_CONFIG = commandline.DEFINE_config()
_WORKDIR = flags.DEFINE_string("workdir", None, "Where the run lies; a run found there goes on.")
flags.mark_flags_as_required(["config", "workdir"])


def main(_) -> int:
    from bertjax.programs import finetune

    return finetune.run(_CONFIG.value, _WORKDIR.value)


if __name__ == "__main__":
    commandline.run(main)
