"""A small vocabulary of GPT's kind, in the files of transformers' OpenAIGPTTokenizer."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers


def learn_gpt(texts: Sequence[str], folder: Path, size: int = 2000) -> None:
    """Writes vocab.json and merges.txt into a folder."""
    library = Library(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<unk>"],
        end_of_word_suffix="</w>",
        limit_alphabet=60,
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    folder.mkdir(exist_ok=True)
    library.model.save(str(folder))
