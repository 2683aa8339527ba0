"""Converts a SentencePiece model to the library `tokenizers`, with its own ids or fairseq's.

This needs two settings that SentencePiece's own library does not give: the kind of the model, and
its map of characters. They are read from the file, a protocol buffer (sentencepiece_model.proto).
"""

import base64
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bertjax.base.checks import input_error_at
from bertjax.base.errors import InputError
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.unigram import WORD_MARK

if TYPE_CHECKING:
    import tokenizers

# The numbers of the fields in each message. They have names in sentencepiece_model_pb2, but that of
# sentencepiece 0.2.3 needs protobuf 7, and Apache Beam needs an older one.
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3  # ModelProto
_TEXT, _SCORE, _TYPE = 1, 2, 3  # SentencePiece
_MODEL_TYPE, _SUFFIX = 3, 24  # TrainerSpec
_CHARACTER_MAP, _PREFIX, _EXTRA_SPACE, _ESCAPE = 2, 3, 4, 5  # NormalizerSpec

_UNIGRAM, _BPE = 1, 2
_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 2, 3, 4, 5, 6


def as_library(tokenizer: Tokenizer) -> "tokenizers.Tokenizer":
    """A `tokenizers.Tokenizer` with the ids of a SentencePiece tokenizer, without special tokens.

    Three differences remain:

    * It computes in double precision, SentencePiece in single. Where two splits of a word are
      equally probable to 6 digits, the two libraries may choose different ones.
    * For a letter with two or more combining marks, it either maps the first two characters and
      drops the rest, or maps none.
    * If the model is uncased and does not fold case itself, a sigma at the end of a word is
      lower-cased as any other sigma. Python lower-cases it to another letter.
    """
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Library

    pieces, trainer, normalizer = sections = _sections(tokenizer.vocabulary)
    _refuse(*sections, "this SentencePiece model")
    model = _unigram if trainer.get(_MODEL_TYPE, _UNIGRAM) == _UNIGRAM else _bpe
    library = Library(model(tokenizer, _scores(pieces)))
    steps: list[normalizers.Normalizer] = [] if tokenizer.cased else [normalizers.Lowercase()]
    if character_map := normalizer.get(_CHARACTER_MAP):
        steps.append(normalizers.Precompiled(character_map))
    steps += [normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" +"), " ")]
    library.normalizer = normalizers.Sequence(steps)
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    library.decoder = decoders.Metaspace(prepend_scheme="always")
    return library


def fairseq(
    data: bytes, origin: str, names: Mapping[str, str], *, is_camembert: bool
) -> dict[str, Any]:
    """The tokenizer.json of a model with the ids of fairseq's dictionary, without added tokens.

    It has the special tokens first, by `names` of roles, then the model's other pieces, and <mask>
    last, as in transformers (`convert_slow_tokenizer.py`, XLMRobertaConverter and
    CamembertConverter).
    """
    pieces, trainer, normalizer = sections = _checked_sections(data, origin)
    texts = _texts(pieces)
    _refuse(*sections, origin)
    pad, unknown, bos, eos = (names[role] for role in ("pad", "unk", "bos", "eos"))
    if is_camembert:  # the model's own <s> and </s> are used, not fairseq's before them
        first_own_piece = 1
        first = [("<s>NOTUSED", 0), (pad, 0), ("</s>NOTUSED", 0), (unknown, 0)]
        first.append(("<unk>NOTUSED", -100))
    else:
        first_own_piece = 3
        first = [(bos, 0), (pad, 0), (eos, 0), (unknown, 0)]
    if trainer.get(_MODEL_TYPE, _UNIGRAM) != _UNIGRAM:
        raise InputError(f"{origin}: a BPE, where XLM-R and CamemBERT have a unigram model")
    if texts[:3] != [unknown, bos, eos]:
        raise InputError(
            f"{origin}: its first pieces are {', '.join(map(repr, texts[:3]))}, where a model of "
            f"fairseq has {unknown!r}, {bos!r}, {eos!r}: bertjax cannot give the ids of this "
            "tokenizer"
        )
    rest = zip(texts[first_own_piece:], _scores(pieces)[first_own_piece:], strict=True)
    character_map = normalizer.get(_CHARACTER_MAP)
    steps = [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": WORD_MARK}]
    return {
        "model": {"type": "Unigram", "unk_id": 3, "vocab": [*first, *rest, (names["mask"], 0)]},
        "normalizer": character_map
        and {
            "type": "Precompiled",
            "precompiled_charsmap": base64.b64encode(character_map).decode(),
        },
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
    }


def with_own_ids(
    data: bytes, origin: str, *, cased: bool
) -> tuple[dict[str, Any], Mapping[str, int], list[str]]:
    """The tokenizer.json of a unigram model with its own ids, without added tokens.

    Also the ids of its pieces, and its control symbols. As the class of DeBERTa-v2 in transformers
    5 does, it normalizes by steps of that class, and not by the model's map of characters.
    """
    pieces, trainer, _ = _checked_sections(data, origin)
    texts, types = _texts(pieces), [piece.get(_TYPE) for piece in pieces]
    reasons = {
        "a BPE": trainer.get(_MODEL_TYPE, _UNIGRAM) != _UNIGRAM,
        "a model with symbols of its user's": _USER_DEFINED in types,
    }
    for reason, holds in reasons.items():
        if holds:
            raise InputError(
                f"{origin}: {reason}, where DeBERTa-v2 has a unigram model: bertjax cannot give "
                "the ids of this tokenizer"
            )
    vocabulary = [*zip(texts, _scores(pieces), strict=True)]
    model = {"type": "Unigram", "unk_id": types.index(_UNKNOWN), "vocab": vocabulary}
    content = {
        "model": model,
        "normalizer": deberta_normalizer(cased),
        "pre_tokenizer": {"type": "Metaspace", "replacement": WORD_MARK},
    }
    controls = [text for text, type_ in zip(texts, types, strict=True) if type_ == _CONTROL]
    return content, {text: number for number, text in enumerate(texts)}, controls


def deberta_normalizer(cased: bool) -> dict[str, Any]:
    """The normalizer of the class of DeBERTa-v2, in tokenizer.json."""
    spaces = {"Regex": r"\s{2,}|[\n\r\t]"}
    steps: list[dict[str, Any]] = [] if cased else [{"type": "Lowercase"}]
    steps += [{"type": "Replace", "pattern": spaces, "content": " "}, {"type": "NFC"}]
    steps.append({"type": "Strip", "strip_left": False, "strip_right": True})
    return {"type": "Sequence", "normalizers": steps}


def _checked_sections(data: bytes, origin: str) -> tuple[list[dict], dict, dict]:
    """`_sections`; InputError for another file."""
    from google.protobuf.message import DecodeError

    with input_error_at(
        f"{origin}: not a SentencePiece model", (DecodeError, KeyError, ValueError)
    ):
        sections = _sections(data)
        _texts(sections[0])
    return sections


def _texts(pieces: list[dict]) -> list[str]:
    return [piece[_TEXT].decode() for piece in pieces]


def _sections(data: bytes) -> tuple[list[dict], dict, dict]:
    """(pieces, settings of training, settings of normalization), each by numbers of fields."""
    fields = list(_fields(data))
    pieces, (trainer,), (normalizer,) = (
        [dict(_fields(value)) for number, value in fields if number == wanted]
        for wanted in (_PIECE, _TRAINER, _NORMALIZER)
    )
    return pieces, trainer, normalizer


def _scores(pieces: list[dict]) -> list[float]:
    bits = np.array([piece.get(_SCORE, 0) for piece in pieces], np.uint32)
    return bits.view(np.float32).tolist()


def _refuse(pieces: list[dict], trainer: dict, normalizer: dict, origin: str) -> None:
    piece_types = {piece.get(_TYPE) for piece in pieces}
    reasons = {
        "it is neither unigram nor BPE": trainer.get(_MODEL_TYPE, _UNIGRAM) not in (_UNIGRAM, _BPE),
        "it has symbols of its user's": _USER_DEFINED in piece_types,
        "it has unused pieces": _UNUSED in piece_types,
        "it has pieces for single bytes": _BYTE in piece_types,
        "it marks the ends of words": trainer.get(_SUFFIX, 0),
        "it does not mark the first word": not normalizer.get(_PREFIX, 1),
        "it keeps runs of spaces": not normalizer.get(_EXTRA_SPACE, 1),
        "it does not escape spaces": not normalizer.get(_ESCAPE, 1),
    }
    for reason, holds in reasons.items():
        if holds:
            raise InputError(
                f"{origin} has no equal as a tokenizer.json: {reason}. Train one without that "
                "setting (launch/prepare_corpus.py --tokenizer=sentencepiece does)."
            )


def _unigram(tokenizer: Tokenizer, scores: list[float]) -> "tokenizers.models.Unigram":
    from tokenizers.models import Unigram

    return Unigram(list(zip(tokenizer.tokens, scores, strict=True)), unk_id=tokenizer.unk_id)


def _bpe(tokenizer: Tokenizer, scores: list[float]) -> "tokenizers.models.BPE":
    """A BPE with its merges by the scores of the pieces; SentencePiece has no merges."""
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
    """Yields (number, value) of each field of a message; a value is a whole number, or bytes."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    for field in UnknownFieldSet(Empty.FromString(message)):
        yield field.field_number, field.data
