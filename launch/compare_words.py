"""Compares a word's vectors in several texts, as a picture.

  python launch/compare_words.py --model=RUN --word=key --output=key.png \
      --text='Returns the value of the key.' --text='The private key signs the message.'
"""

from absl import flags

from bertjax.programs import commandline

_MODEL = flags.DEFINE_string("model", None, "RUN, hf:FOLDER, hf:NAME or tf1:FOLDER.")
_WORD = flags.DEFINE_string("word", None, "A word that is in every text.")
_TEXT = flags.DEFINE_multi_string("text", None, "A text with the word; give it at least twice.")
_OUTPUT = flags.DEFINE_string("output", None, "The .png file to write.")
flags.mark_flags_as_required(["model", "word", "text", "output"])


def main(_) -> None:
    from bertjax.programs import compare_words

    compare_words.run(_MODEL.value, _WORD.value, _TEXT.value, _OUTPUT.value)


if __name__ == "__main__":
    commandline.run(main)
