"""Reads parse trees out of a model's vectors: python launch/probe.py --model=RUN --data=ud"""

from absl import flags

from bertjax.programs import commandline

_MODEL = flags.DEFINE_string("model", None, "RUN, RUN@STEP, hf:FOLDER, hf:NAME or tf1:FOLDER.")
_DATA = flags.DEFINE_string("data", None, "A folder with *train*, *dev* and *test*.conllu files.")
_LAYERS = flags.DEFINE_multi_integer("layer", None, "From 0, the embeddings; all by default.")
_RANKS = flags.DEFINE_multi_integer("rank", [], "Of the projection; the model's width by default.")
_MOST = flags.DEFINE_integer("most", None, "Only the first so many sentences for training.", 1)
_BASELINES = flags.DEFINE_boolean("baselines", True, "Also score what a probe alone can learn.")
_OUTPUT = flags.DEFINE_string("output", None, "A .json file; pictures are drawn next to it.")
flags.mark_flags_as_required(["model", "data"])


def main(_) -> None:
    from bertjax.programs import probe

    values = _MODEL.value, _DATA.value, _LAYERS.value, _RANKS.value
    probe.run(*values, _MOST.value, _BASELINES.value, _OUTPUT.value)


if __name__ == "__main__":
    commandline.run(main)
