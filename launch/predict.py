"""Predicts labels, answers or vectors of new text.

python launch/predict.py --model=RUN --input=FILE --output=FILE
"""

from absl import flags

from bertjax.programs import commandline

_MODEL = flags.DEFINE_string(
    "model",
    None,
    "RUN of launch/finetune.py (over fixed features: RUN/concat_last_four) or launch/ensemble.py, "
    "hf:FOLDER or hf:NAME.",
)
_INPUT = flags.DEFINE_string(
    "input",
    "-",
    "A file of lines, a .csv or .tsv, or - for standard input. A line is a text, 'A ||| B', words "
    'to tag, or JSON: {"text", "text_b"}, {"question", "context"}, {"words"}, '
    '{"context", "prompt", "choices"}.',
)
_DOCUMENTS = flags.DEFINE_string(
    "documents", None, "For a model of vectors: a file of texts, as --input, to search for each."
)
_NEAREST = flags.DEFINE_integer("nearest", 10, "How many documents to find.", lower_bound=1)
_DIMENSIONS = flags.DEFINE_integer(
    "dimensions", None, "The first numbers of dense vectors to keep.", lower_bound=1
)
_OUTPUT = flags.DEFINE_string("output", "-", "A file of JSON lines, or - for standard output.")
flags.mark_flag_as_required("model")


def main(_) -> None:
    from bertjax.programs import predict, predict_vectors
    from bertjax.runs.source import Published, TunedRun, open_source

    match open_source(_MODEL.value):
        case (TunedRun(makes_vectors=True) | Published(makes_vectors=True)) as source:
            if _DOCUMENTS.value is None:
                why = "no --documents are given, among which it would search"
                commandline.refuse(why, "nearest")
            values = source, _INPUT.value, _OUTPUT.value
            predict_vectors.run(*values, _DOCUMENTS.value, _NEAREST.value, _DIMENSIONS.value)
        case source:
            why = f"{_MODEL.value} makes no vectors of texts"
            commandline.refuse(why, "documents", "nearest", "dimensions")
            predict.run(source, _INPUT.value, _OUTPUT.value)


if __name__ == "__main__":
    commandline.run(main)
