"""Reports memory, time and collectives of a run on a TPU slice, without a TPU.

  python launch/compile_check.py --config=configs/pretrain_base_16.py --topology=v5e:4x4

It needs the extra `tpu`, which contains the compiler.
"""

from pathlib import Path

from absl import flags

from bertjax.programs import commandline

_CONFIG = commandline.DEFINE_config()
_TOPOLOGY = flags.DEFINE_string(
    "topology", None, "The slice: v5e:4x4, v5e:8x8, v6e:4x4, v5p:2x2x4, v4:4x4x4, ..."
)
_JSON = flags.DEFINE_string("json", "", "A .json file for the figures.")
_IMAGE = flags.DEFINE_string("image", "", "A .png file for a picture of them.")
_DOCUMENT = flags.DEFINE_float(
    "document",
    0,
    "The mean tokens of a document in a packed row; 0: a row is one document.",
)
flags.mark_flags_as_required(["config", "topology"])


def main(_) -> None:
    from bertjax.programs import compile_check

    title = Path(flags.FLAGS["config"].config_filename).stem
    values = _CONFIG.value, _TOPOLOGY.value, _JSON.value, _IMAGE.value
    compile_check.run(*values, title, _DOCUMENT.value)


if __name__ == "__main__":
    commandline.run(main)
