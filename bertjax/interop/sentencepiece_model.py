"""A SentencePiece model as the library `tokenizers` has it, with the same ids.

Two settings of a model are needed that SentencePiece's own library does not tell: its kind, and
its map of characters. They are read from the file, a protocol buffer (sentencepiece_model.proto).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.text.tokenizer import Tokenizer

# Numbers of fields, by message.
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3  # ModelProto
_SCORE, _TYPE = 2, 3  # SentencePiece
_MODEL_TYPE, _SUFFIX = 3, 24  # TrainerSpec
_CHARACTER_MAP, _PREFIX, _EXTRA_SPACE, _ESCAPE = 2, 3, 4, 5  # NormalizerSpec

_UNIGRAM, _BPE = 1, 2
_USER_DEFINED, _UNUSED, _BYTE = 4, 5, 6


def as_library(tokenizer: Tokenizer):
    """A `tokenizers.Tokenizer` with the ids of a SentencePiece tokenizer, without special tokens.

    Three differences remain. Its arithmetic is in double precision, SentencePiece's in single: of
    two splits of a word that are equally probable to 6 digits, each may take another. Of a letter
    with two or more combining marks it maps the first two characters and drops the rest, or none.
    And of an uncased model that does not itself fold case, it lower-cases a sigma that ends a word
    as any other, where Python does not.

    Raises:
      InputError: a model with settings that have no equal there.
    """
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Library

    fields = list(_fields(tokenizer.vocabulary))
    pieces, (trainer,), (normalizer,) = (
        [dict(_fields(value)) for number, value in fields if number == wanted]
        for wanted in (_PIECE, _TRAINER, _NORMALIZER)
    )
    _refuse(pieces, trainer, normalizer)

    scores = np.array([piece.get(_SCORE, 0) for piece in pieces], np.uint32).view(np.float32)
    model = _unigram if trainer.get(_MODEL_TYPE, _UNIGRAM) == _UNIGRAM else _bpe
    library = Library(model(tokenizer, scores.tolist()))
    steps = [] if tokenizer.cased else [normalizers.Lowercase()]
    if character_map := normalizer.get(_CHARACTER_MAP):
        steps.append(normalizers.Precompiled(character_map))
    steps += [normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" +"), " ")]
    library.normalizer = normalizers.Sequence(steps)
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    library.decoder = decoders.Metaspace(prepend_scheme="always")
    return library


def _refuse(pieces: list[dict], trainer: dict, normalizer: dict) -> None:
    kinds = {piece.get(_TYPE) for piece in pieces}
    reasons = {
        "it is neither unigram nor BPE": trainer.get(_MODEL_TYPE, _UNIGRAM) not in (_UNIGRAM, _BPE),
        "it has symbols of its user's": _USER_DEFINED in kinds,
        "it has unused pieces": _UNUSED in kinds,
        "it has pieces for single bytes": _BYTE in kinds,
        "it marks the ends of words": trainer.get(_SUFFIX, 0),
        "it does not mark the first word": not normalizer.get(_PREFIX, 1),
        "it keeps runs of spaces": not normalizer.get(_EXTRA_SPACE, 1),
        "it does not escape spaces": not normalizer.get(_ESCAPE, 1),
    }
    for reason, holds in reasons.items():
        if holds:
            raise InputError(
                f"this SentencePiece model has no equal as a tokenizer.json: {reason}. Train one "
                "without that setting (launch/prepare_corpus.py --tokenizer=sentencepiece does)."
            )


def _unigram(tokenizer: Tokenizer, scores: list[float]):
    from tokenizers.models import Unigram

    return Unigram(list(zip(tokenizer.tokens, scores, strict=True)), unk_id=tokenizer.unk_id)


def _bpe(tokenizer: Tokenizer, scores: list[float]):
    """Merges in the order of what they make: SentencePiece has a score for each piece alone."""
    from tokenizers.models import BPE

    ids = {piece: number for number, piece in enumerate(tokenizer.tokens)}
    ordinary = set(ids) - {tokenizer.tokens[number] for number in tokenizer.special_ids}
    made = sorted(ordinary, key=lambda piece: (-scores[ids[piece]], ids[piece]))
    merges = [
        (piece[:cut], piece[cut:])
        for piece in made
        for cut in range(1, len(piece))
        if piece[:cut] in ordinary and piece[cut:] in ordinary
    ]
    unknown = tokenizer.tokens[tokenizer.unk_id]
    return BPE(vocab=ids, merges=merges, unk_token=unknown, fuse_unk=True)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of the fields of a message: a whole number, or bytes.

    The numbers stand for the names of sentencepiece.sentencepiece_model_pb2: that module of
    sentencepiece 0.2.3 needs protobuf 7, and Apache Beam needs an older one.
    """
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    for field in UnknownFieldSet(Empty.FromString(message)):
        yield field.field_number, field.data
