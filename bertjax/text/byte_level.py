"""Byte-level BPE (GPT-2; ModernBERT, arXiv 2412.13663), with the library `tokenizers`.

Text is normalized and cut into words, which have the space before them. Each byte of a word's UTF-8
is written as one of 256 characters (a space is "\u0120"), and merges join these to pieces. So no
text is unknown, and pieces give their text back, with its spaces. The ids are the library's, and so
those of transformers.
"""

import json
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.json_kinds import Either, OptionalFields, parse, problem_in

BYTES = 256  # pieces that every learned vocabulary has

_STEP = OptionalFields({"type": str, "add_prefix_space": bool})
_FILE = OptionalFields(
    {
        "model": OptionalFields(
            dict.fromkeys(("type", "continuing_subword_prefix", "end_of_word_suffix"), str)
            | dict.fromkeys(("byte_fallback", "fuse_unk", "ignore_merges"), bool)
            | {"dropout": float, "unk_token": str}
            | {"vocab": {str: int}, "merges": [Either(((str, str), str))]}
        ),
        "normalizer": OptionalFields({"type": str, "normalizers": [_STEP]}),
        "pre_tokenizer": OptionalFields({**_STEP.fields, "pretokenizers": [_STEP]}),
        "added_tokens": [{"content": str, "id": int, "special": bool}],
    }
)
# Others remove characters or add some, and then no piece stands for the text at its place.
_LOWERCASE = "Lowercase"
_NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", _LOWERCASE)
_DECODER = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


class ByteLevelBPE:
    """A byte-level BPE of the library, with the members that `bertjax.text.tokenizer` asks for.

    Attributes:
      keeps_spaces: True.
      vocabulary: the bytes of the file, in one form: without padding, truncation and template.
      cased: False if the file says that text is lower-cased first.
      tokens: the piece of each id, as the file writes it.
      readable: the text of each piece; what is not printable is escaped, as in "\\n" or "\\xf0".
      special_ids: the ids of `special_tokens`, in their order.
      continues_word: bool [vocabulary], True for a piece that may go on a word.
      word_links: uint8 [2, vocabulary], see `bertjax.text.tokenizer.Tokenizer`.
    """

    keeps_spaces = True
    _TEXTS_AT_ONCE = 1000  # with offsets: the library takes some 20 kB for a paragraph

    def __init__(self, data: bytes, origin: str, special_tokens: Sequence[str]):
        """Reads a tokenizer.json.

        Args:
          data: the bytes of the file.
          origin: its name, for messages.
          special_tokens: the special tokens that must be in it.

        Raises:
          InputError: a damaged file, another kind of tokenizer, or one without these tokens.
        """
        from tokenizers import Tokenizer as Library

        description = _read(data, origin)
        steps = _steps(description.get("normalizer"), "normalizers")
        self.cased = _LOWERCASE not in (step.get("type") for step in steps)
        try:
            self.vocabulary = _serialized(description)
            self._library = Library.from_buffer(self.vocabulary)
        except ValueError as error:
            reason = str(error).removeprefix("Cannot instantiate Tokenizer from buffer: ")
            raise InputError(
                f"{origin}: the library tokenizers cannot read it: {reason}: download it again"
            ) from error
        self.tokens = _tokens(self._library.get_vocab(), description, origin)
        added = {token["content"]: token for token in description["added_tokens"]}
        missing = [name for name in special_tokens if not added.get(name, {}).get("special")]
        if missing:
            raise InputError(
                f"{origin}: {' '.join(missing)} not among its special tokens: it needs "
                f"{' '.join(special_tokens)}: put them in with add_special_tokens of the library "
                "tokenizers"
            )
        ids = {piece: number for number, piece in enumerate(self.tokens)}
        self.special_ids = [ids[name] for name in special_tokens]
        pieces = [None if piece in added else _bytes_of(piece) for piece in self.tokens]
        self.readable = [
            _readable(token.encode() if piece is None else piece)
            for token, piece in zip(self.tokens, pieces, strict=True)
        ]
        self.word_links = np.array([_links(piece) for piece in pieces], np.uint8).T.copy()
        self.continues_word = self.word_links[0] != 0

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, in which special tokens are text."""
        return self._encode(texts, special=False)

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts, in which special tokens mean themselves, as in transformers."""
        return self._encode(texts, special=True)

    def _encode(self, texts: Sequence[str], *, special: bool) -> list[list[int]]:
        self._library.encode_special_tokens = not special
        encodings = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_with_offsets(self, texts: Sequence[str]) -> Iterator[tuple[list[int], np.ndarray]]:
        """The ids of `encode`, and the characters of each piece."""
        for first in range(0, len(texts), self._TEXTS_AT_ONCE):
            some = list(texts[first : first + self._TEXTS_AT_ONCE])
            self._library.encode_special_tokens = True
            encodings = self._library.encode_batch(some, add_special_tokens=False)
            for text, encoding in zip(some, encodings, strict=True):
                yield encoding.ids, _spans(text, np.array(encoding.offsets, np.int32))

    def decode(self, ids: list[int]) -> str:
        """The text of ids; half a character becomes U+FFFD."""
        return self._library.decode(ids, skip_special_tokens=False)


def empty_library(*, cased: bool):
    """The library's tokenizer of this kind, to be trained, in the form of ModernBERT's."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers

    library = Library(models.BPE())
    steps = [normalizers.NFC()] if cased else [normalizers.NFC(), normalizers.Lowercase()]
    library.normalizer = steps[0] if cased else normalizers.Sequence(steps)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return library


# ------------------------------------------------------------------------------- the file


def _read(data: bytes, origin: str) -> dict[str, Any]:
    """The content of a tokenizer.json, which is checked.

    Raises:
      InputError: it is damaged, or not a byte-level BPE whose ids are a function of the text.
    """
    try:
        description = parse(data)
    except ValueError as error:
        raise InputError(f"{origin}: damaged: {error}: download it again") from error
    if problem := problem_in(description, _FILE):
        raise InputError(f"{origin}: {problem}: correct it, or download it again")
    model = description.get("model") or {}
    if model.get("vocab") is None or model.get("merges") is None:
        raise InputError(
            f"{origin}: no model with a vocabulary and merges in it, as the library tokenizers "
            "writes a byte-level BPE: name a vocab.txt for WordPiece, a .model for SentencePiece"
        )
    words = _steps(description.get("pre_tokenizer"), "pretokenizers")
    last = words[-1] if words else {}
    found = {
        "model.type": (model.get("type"), "BPE"),
        "model.continuing_subword_prefix": (model.get("continuing_subword_prefix") or None, None),
        "model.end_of_word_suffix": (model.get("end_of_word_suffix") or None, None),
        "model.byte_fallback": (model.get("byte_fallback") or False, False),
        "model.dropout": (model.get("dropout") or None, None),
        "the last type of its pre_tokenizer": (last.get("type"), "ByteLevel"),
        "pre_tokenizer.add_prefix_space": (last.get("add_prefix_space"), False),
    }
    for place, (value, expected) in found.items():
        if value != expected:
            raise InputError(
                f"{origin}: {place} is {value!r}, where a byte-level BPE has {expected!r}: bertjax "
                "cannot give the ids of this tokenizer"
            )
    for step in _steps(description.get("normalizer"), "normalizers"):
        if step.get("type") not in _NORMALIZERS:
            raise InputError(
                f"{origin}: its normalizer is {step.get('type')!r}; bertjax reads "
                f"{', '.join(_NORMALIZERS)}: it cannot give the ids of this tokenizer"
            )
    for number, merge in enumerate(model["merges"]):
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if len(parts) != 2:
            raise InputError(
                f"{origin}: model.merges[{number}] is {merge!r}, must be two pieces with a space "
                "between them: download it again"
            )
        model["merges"][number] = list(parts)
    description["added_tokens"] = description.get("added_tokens") or []
    return description


def _steps(part: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer: of a sequence each, otherwise itself."""
    if not part:
        return []
    return part.get(name) or [] if part.get("type") == "Sequence" else [part]


def _serialized(description: dict[str, Any]) -> bytes:
    """The file without what does not change the ids of a text, in one order."""
    model = description["model"]
    plain = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(description["added_tokens"], key=lambda token: token["id"]),
        "normalizer": description.get("normalizer"),
        "pre_tokenizer": description["pre_tokenizer"],
        "post_processor": None,
        "decoder": _DECODER,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": model.get("unk_token"),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": bool(model.get("fuse_unk")),
            "byte_fallback": False,
            "ignore_merges": bool(model.get("ignore_merges")),
            "vocab": model["vocab"],
            "merges": model["merges"],
        },
    }
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def _tokens(ids: dict[str, int], description: dict[str, Any], origin: str) -> list[str]:
    """The pieces in the order of their ids, which the library gave them."""
    tokens = sorted(ids, key=ids.__getitem__)
    for number, piece in enumerate(tokens):
        if ids[piece] != number:
            raise InputError(
                f"{origin}: {piece!r} has id {ids[piece]}, and is number {number} in the order of "
                "ids: these must run from 0, without gaps, one for each piece"
            )
    for token in description["added_tokens"]:
        if ids[token["content"]] != token["id"]:
            raise InputError(
                f"{origin}: the added token {token['content']!r} has id {token['id']}, where the "
                f"next is {ids[token['content']]}: ids must run from 0, without gaps"
            )
    return tokens


# ------------------------------------------------------------------------ bytes of a piece


def _byte_of_character() -> dict[str, int]:
    """The byte of each character of the alphabet (openai/gpt-2 `encoder.py`, bytes_to_unicode).

    Printable bytes of Latin-1 are themselves; the others follow, from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + number): byte for number, byte in enumerate(others)
    }


_BYTE_OF = _byte_of_character()


def _bytes_of(piece: str) -> bytes:
    """The bytes that a piece of the vocabulary stands for."""
    try:
        return bytes(map(_BYTE_OF.__getitem__, piece))
    except KeyError:  # no text becomes this piece
        return piece.encode()


def _readable(piece: bytes) -> str:
    """The text of a piece on one line; bytes that are part of a character are escaped."""
    text = piece.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# ------------------------------------------------------------------------ words of pieces

# Classes of characters, whose borders are the borders of words in GPT-2's pattern; white space has
# none. A character that is split over pieces counts as a letter.
_LETTER, _NUMBER, _OTHER, _PART = 1, 2, 4, 8
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of a character behind its first


def _links(piece: bytes | None) -> tuple[int, int]:
    """The classes with which a piece goes on a word, and those that may follow it in the word.

    Args:
      piece: its bytes; None for an added token, which is a word of its own.
    """
    if piece is None:
        return 0, 0
    if piece == b" ":  # of the word behind it
        return 0, _LETTER | _NUMBER | _OTHER
    whole = piece.lstrip(_CONTINUATION)
    text = whole.decode("utf-8", "ignore")
    if len(whole) < len(piece):
        first = _PART
    else:
        first = _class_of(text[0]) if text else _LETTER
    if len(text.encode()) < len(whole):
        last = _PART
    else:
        last = _class_of(text[-1]) if text else _PART | _LETTER
    return first, last


def _class_of(character: str) -> int:
    if character.isspace():
        return 0
    return {"L": _LETTER, "N": _NUMBER}.get(unicodedata.category(character)[0], _OTHER)


# ---------------------------------------------------------------------------- the offsets


def _spans(text: str, offsets: np.ndarray) -> np.ndarray:
    """The library's offsets as `Tokenizer.encode_with_offsets` gives them, int32 [N, 2].

    Of characters that become one, the library names the first; the others go with it. The space
    before a word is not part of the span.
    """
    if not len(offsets):
        return np.zeros((0, 2), np.int32)
    starts, ends = np.maximum.accumulate(offsets, axis=0).T
    following = np.searchsorted(starts, starts, side="right")  # the piece of the next character
    ends = np.maximum(ends, np.append(starts, len(text))[following])
    places = np.arange(len(text) + 1, dtype=np.int32)
    space = np.array([character.isspace() for character in text])
    end_of, start_of = places.copy(), places.copy()  # without the white space on that side
    end_of[1:][space] = 0
    start_of[:-1][space] = len(text)
    ends = np.maximum.accumulate(end_of)[ends]
    starts = np.minimum.accumulate(start_of[::-1])[::-1][starts]
    return np.stack([np.minimum(starts, ends), ends], axis=1)
