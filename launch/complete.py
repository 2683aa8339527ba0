"""Continues a text: python launch/complete.py --model=RUN --text="The shape of" """

from absl import flags

from bertjax.programs import commandline

_MODEL = flags.DEFINE_string(
    "model", None, "A model that reads left to right: RUN, hf:FOLDER or hf:NAME."
)
_TEXT = flags.DEFINE_multi_string("text", None, "The beginning of a text; may be repeated.")
_TOKENS = flags.DEFINE_integer("tokens", 40, "The most new tokens.")
_TEMPERATURE = flags.DEFINE_float(
    "temperature", 0.0, "What divides the logits of draws; 0: the most probable token is taken."
)
_TOP_P = flags.DEFINE_float("top_p", 1.0, "The probability of the tokens to draw from, together.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the draws.")
flags.mark_flags_as_required(["model", "text"])


def main(_) -> None:
    from bertjax.programs import complete

    complete.run(
        _MODEL.value,
        _TEXT.value,
        _TOKENS.value,
        _TEMPERATURE.value,
        _TOP_P.value,
        _SEED.value,
    )


if __name__ == "__main__":
    commandline.run(main)
