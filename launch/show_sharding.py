"""Shows how a config splits a model over devices: python launch/show_sharding.py --config=FILE

With eight simulated devices, on any machine:

  JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 \
      python launch/show_sharding.py --config=configs/pretrain_base_16.py --config.layout=fsdp
"""

from absl import flags
from ml_collections import config_flags

from bertjax.programs import commandline

_CONFIG = config_flags.DEFINE_config_file(
    *("config", None, "A file of configs/."), lock_config=False, accept_new_attributes=True
)  # a key that the file lacks may be given, too: the recipe knows them all
flags.mark_flag_as_required("config")


def main(_) -> None:
    from bertjax.programs import show_sharding

    show_sharding.run(_CONFIG.value)


if __name__ == "__main__":
    commandline.run(main)
