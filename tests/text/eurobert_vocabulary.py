"""A small vocabulary in the form of EuroBERT's."""

from typing import Any

from bertjax.text.special_tokens import SPECIAL_TOKENS
from tests.text.small_vocabularies import added

# The pattern of the words of EuroBERT and Llama 3, and the names of their special tokens.
EUROBERT_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
FIRST, LAST, BLANK = "<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"
EUROBERT_CONFIG = {
    **{"bos_token": FIRST, "eos_token": LAST, "pad_token": LAST, "mask_token": BLANK},
    "tokenizer_class": "PreTrainedTokenizerFast",
}


def in_the_form_of_eurobert(content: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer.json of a byte-level BPE with other special tokens and words.

    It has no token for unknown text, and one for pad and eos. A word that is a piece has its id.
    """
    model = content["model"]
    pieces = [piece for piece in model["vocab"] if piece not in SPECIAL_TOKENS]
    model |= {"vocab": {piece: n for n, piece in enumerate(pieces)}, "ignore_merges": True}
    names, size = [FIRST, LAST, BLANK, "<|parallel_sep|>"], len(pieces)
    content["added_tokens"] = [
        added(size + n, name, special=True, lstrip=name == BLANK) for n, name in enumerate(names)
    ]
    split = {"type": "Split", "pattern": {"Regex": EUROBERT_WORDS}}
    split |= {"behavior": "Isolated", "invert": False}
    bytes_alone = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    steps = [split, bytes_alone | {"trim_offsets": True}]
    content |= {"normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    first = [{"SpecialToken": {"id": FIRST, "type_id": each}} for each in (0, 1)]
    a, b = ({"Sequence": {"id": each, "type_id": n}} for n, each in enumerate("AB"))
    template = {"type": "TemplateProcessing", "single": [first[0], a]}
    template |= {"pair": [first[0], a, first[1], b]}
    template |= {"special_tokens": {FIRST: {"id": FIRST, "ids": [size], "tokens": [FIRST]}}}
    offsets = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}
    processors = [offsets | {"use_regex": True}, template]
    content["post_processor"] = {"type": "Sequence", "processors": processors}
    return content
