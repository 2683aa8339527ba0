"""A small vocabulary in the form of Gemma's and mmBERT's."""

import json
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers

from bertjax.text.byte_fallback import SPLIT
from bertjax.text.unigram import WORD_MARK
from tests.text.small_vocabularies import added

NAMES = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>")
GEMMA_CONFIG = {f"{name[1:-1]}_token": name for name in NAMES}
GEMMA_CONFIG["tokenizer_class"] = "GemmaTokenizerFast"


def learn_gemma(texts: Iterable[str], size: int) -> dict[str, Any]:
    """The tokenizer.json of a BPE with byte fallback, learned from words with their spaces."""
    library = Library(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.normalizer = normalizers.Replace(" ", WORD_MARK)
    library.pre_tokenizer = pre_tokenizers.Split(WORD_MARK, "merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*NAMES, *(f"<0x{byte:02X}>" for byte in range(256))],
        limit_alphabet=size // 4,
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    content = json.loads(library.to_str())
    content["added_tokens"] = [added(n, name, special=True) for n, name in enumerate(NAMES)]
    bos, eos = ({"SpecialToken": {"id": name, "type_id": 0}} for name in ("<bos>", "<eos>"))
    a, b = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    ids = {name: {"id": name, "ids": [n], "tokens": [name]} for n, name in enumerate(NAMES)}
    template = {
        "type": "TemplateProcessing",
        "single": [bos, a, eos],
        "pair": [bos, a, eos, b, eos],
    }
    template |= {"special_tokens": {name: ids[name] for name in ("<bos>", "<eos>")}}
    replaced = {"type": "Replace", "pattern": {"String": WORD_MARK}, "content": " "}
    decoders = [replaced, {"type": "ByteFallback"}, {"type": "Fuse"}]
    decoder = {"type": "Sequence", "decoders": decoders}
    return content | {"pre_tokenizer": SPLIT, "post_processor": template, "decoder": decoder}
