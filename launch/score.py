"""Scores what a model knows of grammar, by minimal pairs.

python launch/score.py --model=RUN --data=blimp.jsonl.xz
"""

from absl import flags

from bertjax.programs import commandline

_MODEL = flags.DEFINE_string("model", None, "RUN, RUN@STEP, hf:FOLDER, hf:NAME or tf1:FOLDER.")
_DATA = flags.DEFINE_string(
    "data", None, "Files or folders of minimal pairs, with commas between: see docs/evaluation.md."
)
_MASKING = flags.DEFINE_enum(
    "masking",
    "token",
    ["token", "word"],
    "What is masked with a token: nothing else, or also the later tokens of its word.",
)
_MOST = flags.DEFINE_integer(
    "most", None, "The first pairs of each paradigm, at most so many.", lower_bound=1
)
_PART = flags.DEFINE_string("part", "", "A part of the model of a run, such as causal.")
_OUTPUT = flags.DEFINE_string("output", None, "A .json file of the result.")
flags.mark_flags_as_required(["model", "data"])


def main(_) -> None:
    from bertjax.programs import score

    values = _MODEL.value, _DATA.value, _MASKING.value, _MOST.value, _OUTPUT.value
    score.run(*values, _PART.value)


if __name__ == "__main__":
    commandline.run(main)
