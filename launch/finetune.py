"""Fine-tunes a model on a task: python launch/finetune.py --config=finetune_glue:MRPC ...

The config names the task: GLUE, SQuAD, SWAG, named entities, or your own table; or what compares
texts: vectors, or a reranker.
"""

from absl import flags

from bertjax.programs import commandline

_CONFIG = commandline.DEFINE_config()
_WORKDIR = flags.DEFINE_string("workdir", None, "Where the run lies; a run found there goes on.")
_HOSTS = flags.DEFINE_integer("hosts", None, "How many hosts the job must have.", lower_bound=1)
_CHIPS = flags.DEFINE_integer("chips", None, "How many chips the job must have.", lower_bound=1)
flags.mark_flags_as_required(["config", "workdir"])


def main(_) -> int:
    from bertjax.programs import finetune
    from bertjax.training.sharding.hosts import join_processes

    join_processes()
    return finetune.run(_CONFIG.value, _WORKDIR.value, hosts=_HOSTS.value, chips=_CHIPS.value)


if __name__ == "__main__":
    commandline.run(main)
