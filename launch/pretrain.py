"""Pre-trains a model on a corpus: python launch/pretrain.py --config=tiny ... --workdir=RUN"""

from absl import flags

from bertjax.programs import commandline

_CONFIG = commandline.DEFINE_config()
_WORKDIR = flags.DEFINE_string("workdir", None, "Where the run lies; a run found there goes on.")
_VERIFY = flags.DEFINE_boolean("verify", False, "Compare every checksum of the corpus first.")
_HOSTS = flags.DEFINE_integer("hosts", None, "How many hosts the job must have.", lower_bound=1)
_CHIPS = flags.DEFINE_integer("chips", None, "How many chips the job must have.", lower_bound=1)
flags.mark_flags_as_required(["config", "workdir"])


def main(_) -> int:
    from bertjax.programs import pretrain
    from bertjax.training.sharding.hosts import join_processes

    join_processes()
    return pretrain.run(
        _CONFIG.value,
        _WORKDIR.value,
        verify=_VERIFY.value,
        hosts=_HOSTS.value,
        chips=_CHIPS.value,
    )


if __name__ == "__main__":
    commandline.run(main)
