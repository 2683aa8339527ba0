"""Makes a corpus folder from text: learns a vocabulary (or uses one) and builds the token store.

  python launch/prepare_corpus.py --source='text:wiki/*.txt.xz' --output=corpora/wiki \
      --learn_vocabulary=30000
"""

from absl import flags

from bertjax.programs import commandline

_SOURCE = flags.DEFINE_multi_string(
    "source",
    [],
    "Text, mixed if several: text:GLOB (a blank line ends a document), lines:GLOB, jsonl:GLOB#key, "
    "parquet:GLOB#column, tfds:NAME/SPLIT#feature, installed-docs or parallel:A|B (translations); "
    "each perhaps with @WEIGHT, and with a code of its language before it: sw=text:GLOB. Files may "
    "have addresses, such as hf://datasets/USER/NAME/*.txt, s3:// or https:// (docs/corpus.md).",
)
_OUTPUT = flags.DEFINE_string("output", None, "The corpus folder to make.", required=True)
flags.DEFINE_integer("learn_vocabulary", None, "Learn a vocabulary of this many pieces.")
flags.DEFINE_string(
    "vocabulary", None, "Use that of hf:FOLDER, hf:NAME, a vocab.txt, .model or tokenizer.json."
)
flags.DEFINE_integer(
    "domain_words", 0, "Frequent words of the text to put into [unusedN] pieces of that vocab.txt."
)
flags.DEFINE_integer("extend_vocabulary", 0, "Pieces of the text to add after its own.")
flags.DEFINE_enum(
    "tokenizer",
    None,
    ["wordpiece", "sentencepiece", "bpe", "words", "gpt2", "xlnet"],
    "Kind to learn: docs/corpus.md",
)
flags.DEFINE_enum("model_type", "unigram", ["unigram", "bpe"], "Of sentencepiece.")
flags.DEFINE_boolean("cased", None, "Keep upper case (bpe, gpt2, words and xlnet do so anyway).")
flags.DEFINE_float("held_out", 0.01, "Fraction of the documents kept for evaluation.")
flags.DEFINE_integer("workers", None, "Processes; by default one per CPU.")
flags.DEFINE_string("language", "en", "Language code of the sentence splitter.")
flags.DEFINE_float(
    "language_alpha", 1.0, "Below 1, small languages count for more in the vocabulary (XLM: 0.5)."
)
flags.DEFINE_enum("undecodable", "error", ["error", "skip"], "What to do with what is not UTF-8.")
flags.DEFINE_enum(
    "nulls", "error", ["error", "skip"], "What to do with null in .jsonl and Parquet."
)
flags.DEFINE_list("language_filter", [], "Keep documents in these languages only, as en,de.")
flags.DEFINE_enum("deduplicate", None, ["exact", "near"], "Keep one of equal or similar documents.")
flags.DEFINE_multi_string("decontaminate", [], "Remove documents with texts of these files.")
flags.DEFINE_boolean("verify", False, "Compare every checksum of the finished store.")
flags.DEFINE_enum("runner", "local", ["local", "beam"], "Who does the work.")
_BEAM_OPTION = flags.DEFINE_multi_string(
    "beam_option", [], "An option for the Beam pipeline, as in --beam_option=--runner=FlinkRunner."
)


def main(_: list[str]) -> None:
    from bertjax.programs import prepare

    names = (
        *("learn_vocabulary", "vocabulary", "domain_words", "extend_vocabulary", "tokenizer"),
        *("model_type", "cased", "held_out", "workers", "language", "language_alpha"),
        *("undecodable", "nulls", "language_filter", "deduplicate", "decontaminate", "verify"),
        "runner",
    )
    options = {name: flags.FLAGS[name].value for name in names}
    prepare.run(_SOURCE.value, _OUTPUT.value, **options, beam_options=_BEAM_OPTION.value)


if __name__ == "__main__":
    commandline.run(main)
