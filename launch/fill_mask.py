"""Fills in blanks: python launch/fill_mask.py --model=RUN --text="the [MASK] of a function" """

from absl import flags

from bertjax.programs import commandline

_MODEL = flags.DEFINE_string("model", None, "RUN, hf:FOLDER, hf:NAME or tf1:FOLDER.")
_TEXT = flags.DEFINE_multi_string("text", None, "A text with [MASK] in it; may be repeated.")
_TOP = flags.DEFINE_integer("top", 5, "How many guesses for each [MASK].", lower_bound=1)
flags.mark_flags_as_required(["model", "text"])


def main(_) -> None:
    from bertjax.programs import fill_mask

    fill_mask.run(_MODEL.value, _TEXT.value, _TOP.value)


if __name__ == "__main__":
    commandline.run(main)
