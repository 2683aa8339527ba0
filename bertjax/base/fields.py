"""The contract between host and device: what one array of a batch looks like.

The host makes the arrays with numpy. The step takes them as a dict, and a model reads those that it
needs by name. Whatever makes an array describes it by a field: a layout or a corruption of
`bertjax.data.examples`, or an objective of fine-tuning.
"""

from typing import NamedTuple


class Field(NamedTuple):
    """One array of a batch.

    Attributes:
      letters: a shape letter (see `bertjax.base.axes`) for each dimension.
      meaning: what its numbers mean, for people who call an exported model.
    """

    letters: str
    dtype: str
    meaning: str = ""


TEXT = {
    "input_ids": Field("BS", "int32", "ids of the pieces"),
    "input_mask": Field("BS", "int32", "1 for a piece, 0 for padding"),
    "token_type_ids": Field("BS", "int32", "0 in the first text, 1 in the second"),
}
# Rows of packed documents also have this. Without it, a row is one document.
SEGMENT_IDS = {
    "segment_ids": Field("BS", "int32", "1, 2, ... in each document of a row, 0 on padding"),
}
# Rows of a text and its translation also have these; without them, positions count from 0 in each
# row (or packed document), and no language is known.
POSITION_IDS = {
    "position_ids": Field("BS", "int32", "0, 1, ... in each of the two texts of a row"),
}
LANGUAGE_IDS = {
    "language_ids": Field("BS", "int32", "the number of each token's language, from 0"),
}
# A model that predicts tokens in any order (XLNet) has this next to the places that it predicts.
ORDER = {
    "order": Field("BS", "int32", "a token sees those with a lower number, and with the same"),
}
# An encoder of both directions reads these in the backward one; without them, it reads the same
# words in both. They stand in the order of `characters`: the last one is read first.
BACKWARD_CHARACTERS = {
    "backward_characters": Field("BSW", "int32", "ids of the characters of each word, backwards"),
}
# An encoder may read these, and does not need them.
OPTIONAL = SEGMENT_IDS | POSITION_IDS | LANGUAGE_IDS | BACKWARD_CHARACTERS
# An encoder that reads words has this in the place of `input_ids`.
CHARACTERS = {
    "characters": Field("BSW", "int32", "ids of the characters of each word, 0 on padding"),
}
WORD_LENGTH, NUM_CHARACTERS = 50, 262  # W, and their ids (bilm-tf and AllenNLP have no others)
UNKNOWN_WORD = 2  # its id in a vocabulary of words, after those of a sentence's begin and end
# A tagger whose tags depend on each other has this: which tokens have a tag.
WORD_MASK = {
    "word_mask": Field("BS", "int32", "1 for the first piece of a word, 0 elsewhere"),
}
# An answer network has this: it reads the two texts of a pair apart.
TEXT_NUMBERS = {
    "text_numbers": Field("BS", "int32", "1 in the first text, 2 in the second, 0 on padding"),
}
# A language model of both directions compares its predictions with these.
NEXT_WORDS = {
    "forward_ids": Field("BS", "int32", "the next word of the forward direction"),
    "backward_ids": Field("BS", "int32", "the next word of the backward direction"),
}
# Everything that an encoder may read.
INPUTS = TEXT | OPTIONAL | CHARACTERS
