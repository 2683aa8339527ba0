"""Hands a model on: python launch/export.py --model=RUN --output=FOLDER [--format=serving]

hugging_face: a folder that transformers' from_pretrained loads. serving: a StableHLO artifact
that runs with jax alone.
"""

from absl import flags

from bertjax import commandline

_MODEL = flags.DEFINE_string("model", None, "RUN, hf:FOLDER, hf:NAME or tf1:FOLDER.")
_OUTPUT = flags.DEFINE_string("output", None, "The folder to make.")
_FORMAT = flags.DEFINE_enum("format", "hugging_face", ["hugging_face", "serving"], "What to write.")
flags.mark_flags_as_required(["model", "output"])


def main(_) -> None:
    from bertjax import export

    export.run(_MODEL.value, _OUTPUT.value, _FORMAT.value)


if __name__ == "__main__":
    commandline.run(main)
