"""Evaluates a model on held-out text: python launch/evaluate.py --model=RUN

Or a model of vectors, or a reranker: --on=similarity:FILE,retrieval:DIR
"""

from absl import flags

from bertjax.programs import commandline

_MODEL = flags.DEFINE_string(
    "model", None, "RUN of launch/pretrain.py; with --on, --same_text, --stride also hf:NAME."
)
_CORPUS = flags.DEFINE_string("corpus", None, "A prepared corpus; the run's own by default.")
_SAME_TEXT = flags.DEFINE_boolean(
    "same_text",
    False,
    "The loss of pieces and of words on text masked alike; also --corpus=A,B and --model=C,D.",
)
_BATCHES = flags.DEFINE_integer("batches", 50, "Held-out batches at each length.", lower_bound=1)
_ON = flags.DEFINE_string(
    "on", None, "Pairs of texts: pairs:DIR, similarity:FILE or retrieval:DIR, with commas between."
)
_DIMENSIONS = flags.DEFINE_integer(
    "dimensions", None, "With --on: the first numbers of vectors to compare.", lower_bound=1
)
_STRIDE = flags.DEFINE_integer(
    "stride", None, "Perplexity of a model that reads left to right: windows move on by so many."
)
_MEMORY = flags.DEFINE_integer(
    "memory", None, "With --stride: the tokens that a Transformer-XL remembers; its run's own."
)
_OUTPUT = flags.DEFINE_string("output", None, "With --on and --stride: a JSON file of the result.")
flags.mark_flag_as_required("model")


def main(_) -> None:
    from bertjax.programs import evaluate, evaluate_similarity, masked_text, perplexity

    if _ON.value:
        commandline.refuse("--on is given", "corpus", "same_text", "batches", "stride", "memory")
        evaluate_similarity.run(_MODEL.value, _ON.value, _OUTPUT.value, _DIMENSIONS.value)
        return
    commandline.refuse("--on is not given", "dimensions")
    if _STRIDE.value is None:
        commandline.refuse("--stride is not given", "memory")
    if _SAME_TEXT.value:
        commandline.refuse("--same_text is given", "batches", "stride", "output")
    if _SAME_TEXT.value and "," in _MODEL.value:
        masked_text.compare(_MODEL.value.split(","), (_CORPUS.value or "").split(","))
        return
    if _SAME_TEXT.value:
        masked_text.run(_MODEL.value, _CORPUS.value)
        return
    if _STRIDE.value is not None:
        commandline.refuse("--stride is given", "batches")
        perplexity.run(_MODEL.value, _CORPUS.value, _STRIDE.value, _OUTPUT.value, _MEMORY.value)
        return
    commandline.refuse("neither --on nor --stride is given", "output")
    evaluate.run(_MODEL.value, _CORPUS.value, _BATCHES.value)


if __name__ == "__main__":
    commandline.run(main)
