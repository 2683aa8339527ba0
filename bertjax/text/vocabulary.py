"""Learns a vocabulary from text, for any kind of tokenizer; equal texts give equal files."""

import io
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write
from bertjax.text.special_tokens import CLS, MASK, PAD, SEP, SPECIAL_TOKENS, UNK
from bertjax.text.tokenizer import BPE, SENTENCEPIECE, WORDPIECE, WORDS
from bertjax.text.word_level import FIRST
from bertjax.text.wordpiece import bert_wordpiece, of_berts_words

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library
    from tokenizers.normalizers import Normalizer

MODEL_TYPES = ("unigram", "bpe")

# The most frequent characters are kept, until they cover this share of the text (700 characters in
# English Wikipedia, thousands in Chinese). Rarer characters become [UNK]; in WordPiece, the whole
# word becomes [UNK].
_CHARACTER_COVERAGE = 0.99995
_MAX_ALPHABET_SHARE = 0.25  # a share of the vocabulary; most characters have two pieces
# The trainers' time grows with the square of a word's length; a longer one is cut.
_LONGEST_WORD = re.compile(r"(\S{1000})(?=\S)")
# SentencePiece needs about 7 KB of memory for a sentence, so this number stays below 2 GB.
_MAX_SENTENCES = 200_000
# SentencePiece's rounding depends on the number of threads; a fixed number gives equal files.
_SENTENCEPIECE_THREADS = 2


def learn(
    kind: str,
    texts: Iterable[str],
    path: str | os.PathLike,
    *,
    size: int,
    cased: bool,
    **settings: Any,
) -> int:
    """Writes a vocabulary of at most `size` pieces, and returns how many it has.

    A text that is too small gives fewer pieces; a SentencePiece always has `size`.

    Args:
      kind: one of `bertjax.text.tokenizer.KINDS`.
      texts: for a SentencePiece, sentences.
      settings: `special_tokens` of a byte-level BPE; `model_type` of a SentencePiece, "unigram" or
        "bpe".

    Raises:
      InputError: the text has no characters, or is too small for a SentencePiece.
    """
    if kind == SENTENCEPIECE:
        texts = islice(filter(str.strip, texts), _MAX_SENTENCES)
    texts = list(texts)
    if not any(map(str.strip, texts)):
        raise _without_text(path)
    content, learned = _LEARNERS[kind](path, texts, size=size, cased=cased, **settings)
    with atomic_write(path) as file:
        file.write(content)
    return learned


def _without_text(path: str | os.PathLike) -> InputError:
    return InputError(f"{path}: no vocabulary to learn: the text has no characters.")


Learned = tuple[bytes, int]  # the content of the file, and its number of pieces


def _library_file(library: "Library") -> Learned:
    return library.to_str().encode(), library.get_vocab_size()


# -------------------------------------------------------------------------------- WordPiece


def _wordpiece(path: str | os.PathLike, texts: Sequence[str], *, size: int, cased: bool) -> Learned:
    """Learns a vocab.txt.

    Every character of the alphabet gets one piece for the start of a word and one for the rest of a
    word, so a word with only these characters never becomes [UNK]. A cased vocabulary brings text
    into the form NFC.
    """
    from tokenizers.trainers import WordPieceTrainer

    library = bert_wordpiece(None, cased=cased, nfc=cased)
    texts = [unicodedata.normalize("NFC", text) for text in texts]
    alphabet = _alphabet(texts, library.normalizer, int(size * _MAX_ALPHABET_SHARE))
    if not alphabet:
        raise _without_text(path)
    within_word = [f"##{c}" for c in alphabet if _continues_word(c, library)]
    # The trainer would number the "##" characters in the order of a hash table, and it breaks ties
    # between merges by these numbers. As special tokens they have the same numbers in every run.
    first = [*SPECIAL_TOKENS, *within_word]
    trainer = WordPieceTrainer(
        vocab_size=size,
        special_tokens=first,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        min_frequency=2,
        show_progress=False,
    )
    library.train_from_iterator(_with_shorter_words(texts), trainer)
    ids = library.get_vocab(with_added_tokens=False)
    tokens = sorted(ids, key=ids.__getitem__)
    return "".join(f"{token}\n" for token in tokens).encode(), len(tokens)


def _alphabet(texts: Iterable[str], normalizer: "Normalizer", limit: int) -> list[str]:
    """The most frequent characters after normalization, at most `limit`, in code order."""
    return sorted(_frequent_characters(texts, normalizer)[:limit])


def _frequent_characters(texts: Iterable[str], normalizer: "Normalizer") -> list[str]:
    """The characters that cover the text after normalization, the most frequent first."""
    counts = np.zeros(0x110000, np.int64)
    for batch in _batches(texts):
        counts += np.bincount(np.frombuffer(batch.encode("utf-32-le"), "<u4"), minlength=0x110000)
    frequency: dict[str, int] = {}
    for code in np.flatnonzero(counts).tolist():
        for character in "".join(normalizer.normalize_str(chr(code)).split()):
            frequency[character] = frequency.get(character, 0) + int(counts[code])
    kept = sorted(frequency, key=lambda character: (-frequency[character], character))
    covered = np.cumsum([frequency[character] for character in kept])
    needed = np.count_nonzero(covered < _CHARACTER_COVERAGE * covered[-1:]) + 1
    return kept[: int(needed)]


def missing_characters(
    texts: Iterable[str], library: "Library", tokens: Sequence[str], limit: int
) -> list[str]:
    """At most `limit` pieces of a text's characters that a WordPiece lacks, frequent ones first.

    A character has one piece for the start of a word, and one for the rest if it stands there.
    """
    known = set(tokens)
    frequent = _frequent_characters(texts, library.normalizer)
    pieces = [(c, f"##{c}") if _continues_word(c, library) else (c,) for c in frequent]
    return [piece for piece in chain.from_iterable(pieces) if piece not in known][:limit]


def _batches(texts: Iterable[str], characters: int = 1 << 22) -> Iterator[str]:
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= characters:
            yield "".join(batch)
            batch, size = [], 0
    yield "".join(batch)


def _with_shorter_words(texts: Iterable[str]) -> Iterator[str]:
    return (_LONGEST_WORD.sub(r"\1 ", text) for text in texts)


def _continues_word(character: str, library: "Library") -> bool:
    """Whether BERT's rules keep `character` in the same word as a letter before it."""
    word = library.normalizer.normalize_str(f"a{character}")
    return len(library.pre_tokenizer.pre_tokenize_str(word)) == 1


# ---------------------------------------------------------------------------- other kinds


def _sentencepiece(
    path: str | os.PathLike,
    sentences: Sequence[str],
    *,
    size: int,
    cased: bool,
    model_type: str = "unigram",
) -> Learned:
    """Learns a .model, of which BERT's special tokens are the first five pieces.

    [CLS], [SEP] and [MASK] are control symbols: text is never encoded as one of them.
    """
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type=model_type,
            vocab_size=size,
            character_coverage=_CHARACTER_COVERAGE,
            normalization_rule_name="nmt_nfkc" if cased else "nmt_nfkc_cf",
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece=PAD,
            unk_piece=UNK,
            control_symbols=[CLS, SEP, MASK],
            num_threads=_SENTENCEPIECE_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        # "... Vocabulary size too high (30000). Please set it to a value <= 812." and the like.
        reason = str(error).rpartition("] ")[2]
        raise InputError(
            f"{path}: SentencePiece cannot learn {size} pieces from this text: {reason} Give more "
            "text or a smaller --learn_vocabulary."
        ) from error
    return model.getvalue(), size


def _byte_level_bpe(
    path: str | os.PathLike,
    texts: Sequence[str],
    *,
    size: int,
    cased: bool,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
) -> Learned:
    """Learns a tokenizer.json in the form of ModernBERT's.

    Its first pieces are the special tokens and the 256 bytes, so no text is unknown. [MASK] takes
    the space before it, which the piece in its place would have.
    """
    from tokenizers import AddedToken, models, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Library
    from tokenizers.trainers import BpeTrainer

    library = Library(models.BPE())
    steps = [normalizers.NFC()] if cased else [normalizers.NFC(), normalizers.Lowercase()]
    library.normalizer = steps[0] if cased else normalizers.Sequence(steps)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = [
        AddedToken(name, special=True, normalized=False, lstrip=name == MASK)
        for name in special_tokens
    ]
    trainer = BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    library.train_from_iterator(_with_shorter_words(texts), trainer)
    return _library_file(library)


def _words(path: str | os.PathLike, texts: Sequence[str], *, size: int, cased: bool) -> Learned:
    """Learns a tokenizer.json: the special words first, then the most frequent ones."""
    from tokenizers import AddedToken, models
    from tokenizers.trainers import WordLevelTrainer

    library = of_berts_words(models.WordLevel({}, unk_token=FIRST[-1]), cased=cased, nfc=True)
    special = [AddedToken(name, special=True, normalized=False) for name in FIRST]
    trainer = WordLevelTrainer(
        vocab_size=size, min_frequency=1, special_tokens=special, show_progress=False
    )
    library.train_from_iterator(texts, trainer)
    return _library_file(library)


_LEARNERS: dict[str, Callable[..., Learned]] = {
    WORDPIECE: _wordpiece,
    SENTENCEPIECE: _sentencepiece,
    BPE: _byte_level_bpe,
    WORDS: _words,
}
