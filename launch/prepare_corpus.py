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
    "parquet:GLOB#column, tfds:NAME/SPLIT#feature or installed-docs; each perhaps with @WEIGHT.",
)
_OUTPUT = flags.DEFINE_string("output", None, "The corpus folder to make.", required=True)
_LEARN = flags.DEFINE_integer("learn_vocabulary", None, "Learn a vocabulary of this many pieces.")
_VOCABULARY = flags.DEFINE_string(
    "vocabulary", None, "Use this vocab.txt, SentencePiece .model or tokenizer.json (BPE, unigram)."
)
_DOMAIN_WORDS = flags.DEFINE_integer(
    "domain_words", 0, "Frequent words of the text to put into [unusedN] pieces of that vocab.txt."
)
_TOKENIZER = flags.DEFINE_enum(
    "tokenizer", None, ["wordpiece", "sentencepiece", "bpe", "gpt2"], "Kind to learn: docs/training"
)
_MODEL_TYPE = flags.DEFINE_enum(
    "model_type", "unigram", ["unigram", "bpe"], "The kind of SentencePiece model to learn."
)
_CASED = flags.DEFINE_boolean(
    "cased", None, "Keep upper case. By default bpe does, others learned do not, a given one as is."
)
_HELD_OUT = flags.DEFINE_float("held_out", 0.01, "Fraction of the documents kept for evaluation.")
_WORKERS = flags.DEFINE_integer("workers", None, "Processes; by default one per CPU.")
_LANGUAGE = flags.DEFINE_string("language", "en", "Language code of the sentence splitter.")
_UNDECODABLE = flags.DEFINE_enum(
    "undecodable", "error", ["error", "skip"], "What to do with documents that are not UTF-8."
)
_VERIFY = flags.DEFINE_boolean("verify", False, "Compare every checksum of the finished store.")
_RUNNER = flags.DEFINE_enum("runner", "local", ["local", "beam"], "Who does the work.")
_BEAM_OPTION = flags.DEFINE_multi_string(
    "beam_option", [], "An option for the Beam pipeline, as in --beam_option=--runner=FlinkRunner."
)


def main(_: list[str]) -> None:
    from bertjax.programs import prepare

    prepare.run(
        _SOURCE.value,
        _OUTPUT.value,
        learn_vocabulary=_LEARN.value,
        vocabulary=_VOCABULARY.value,
        domain_words=_DOMAIN_WORDS.value,
        tokenizer=_TOKENIZER.value,
        model_type=_MODEL_TYPE.value,
        cased=_CASED.value,
        held_out=_HELD_OUT.value,
        workers=_WORKERS.value,
        language=_LANGUAGE.value,
        undecodable=_UNDECODABLE.value,
        verify=_VERIFY.value,
        runner=_RUNNER.value,
        beam_options=_BEAM_OPTION.value,
    )


if __name__ == "__main__":
    commandline.run(main)
