"""Shows how a config splits a model over devices: python launch/show_sharding.py --config=FILE

With eight simulated devices, on any machine:

  JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=8 \
      python launch/show_sharding.py --config=configs/pretrain_base_16.py --config.layout=fsdp
"""

from absl import flags

from bertjax.programs import commandline

_CONFIG = commandline.DEFINE_config()
flags.mark_flag_as_required("config")


def main(_) -> None:
    from bertjax.programs import show_sharding

    show_sharding.run(_CONFIG.value)


if __name__ == "__main__":
    commandline.run(main)
