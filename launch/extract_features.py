"""Writes the vectors of texts: python launch/extract_features.py --model=RUN --input=FILE ..."""

from absl import flags

from bertjax.programs import commandline

_MODEL = flags.DEFINE_string(
    "model", None, "RUN (of launch/pretrain.py), hf:FOLDER, hf:NAME, tf1:FOLDER or elmo:FOLDER."
)
_INPUT = flags.DEFINE_string(
    "input",
    None,
    'A text file (.gz .xz .bz2 .zst too), a text on each line, "A ||| B" for a pair; or '
    "jsonl:GLOB#field, or parquet:GLOB#column, whose texts are no pairs.",
)
_OUTPUT = flags.DEFINE_string("output", None, "A .parquet or .npz file, which is not yet there.")
_FEATURES = flags.DEFINE_enum(
    "features",
    None,
    ["tokens", "words", "first_pieces", "cls", "last", "mean", "max"],
    "Vectors of every token ([CLS] and [SEP] too); of every word between white space, the mean of "
    "its pieces or its first; or one of the text: of [CLS] or the last token, or the mean or "
    "maximum of its tokens. By default those that a model of dense vectors makes, or tokens.",
)
_LAYERS = flags.DEFINE_string(
    "layers", "-1", "0 for the embeddings, 1 to L for layers; -1 for the last: -4,-3,-2,-1."
)
_COMBINE = flags.DEFINE_enum("combine", "concat", ["concat", "sum"], "What several layers make.")
_NORMALIZE = flags.DEFINE_bool("normalize", None, "Vectors of length 1; by default as the model.")
_DIMENSIONS = flags.DEFINE_integer("dimensions", None, "First numbers of text vectors to keep.", 1)
_MAX_LENGTH = flags.DEFINE_integer(
    "max_length", None, "Tokens a text may have; by default as such a model, or what it takes."
)
_TRUNCATE = flags.DEFINE_bool("truncate", False, "Cuts off the end of texts that are too long.")
_COMPUTE_DTYPE = flags.DEFINE_enum(
    "compute_dtype", "auto", ["auto", "float32", "bfloat16"], "auto: bfloat16 where it is faster."
)
_BATCH_TOKENS = flags.DEFINE_integer(
    "batch_tokens",
    None,
    "Tokens computed together on a device; by default 512 on a CPU, 16,384 elsewhere.",
    lower_bound=1,
)
_STREAMS = flags.DEFINE_integer(
    "streams", 0, "Text n goes on where text n - STREAMS ended (ELMo). 0: each begins anew.", 0
)
flags.mark_flags_as_required(["model", "input", "output"])


def main(_) -> None:
    from bertjax.programs import extract_features

    options = extract_features.Options(
        features=_FEATURES.value,
        layers=extract_features.parse_layers(_LAYERS.value),
        combine=_COMBINE.value,
        normalize=_NORMALIZE.value,
        dimensions=_DIMENSIONS.value,
        max_length=_MAX_LENGTH.value,
        truncate=_TRUNCATE.value,
        compute_dtype=_COMPUTE_DTYPE.value,
        batch_tokens=_BATCH_TOKENS.value,
        streams=_STREAMS.value,
    )
    extract_features.run(_MODEL.value, _INPUT.value, _OUTPUT.value, options)


if __name__ == "__main__":
    commandline.run(main)
