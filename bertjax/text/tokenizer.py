"""One interface to all kinds of vocabularies: text to ids and back.

Half a surrogate pair is no character, and is refused.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Self

import numpy as np

from bertjax.base.cloud_storage import checked_path, path_of
from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, inside, read_json, write_json
from bertjax.base.validation import converted, optional, parsed, record
from bertjax.text.byte_fallback import SPACES_MARKED, ByteFallbackBPE
from bertjax.text.byte_level import ByteLevelBPE
from bertjax.text.library_file import LibraryFile
from bertjax.text.moses_bpe import SPLIT_AT_SPACES, MosesBPE
from bertjax.text.pieces import LibraryPieces
from bertjax.text.sentence_piece import SentencePiece
from bertjax.text.special_tokens import BERT
from bertjax.text.template import Template
from bertjax.text.unigram import Unigram
from bertjax.text.usual import Usual
from bertjax.text.word_bpe import WordBPE
from bertjax.text.word_level import WordLevel
from bertjax.text.wordpiece import WordPiece

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

WORDPIECE = "wordpiece"
SENTENCEPIECE = "sentencepiece"
BPE = "bpe"  # byte-level
UNIGRAM = "unigram"  # SentencePiece's kind of model, in the form of the library `tokenizers`
BYTE_FALLBACK_BPE = "byte_fallback_bpe"  # Gemma's and mmBERT's
WORD_BPE = "word_bpe"  # GPT's
MOSES_BPE = "moses_bpe"  # XLM's
WORDS = "words"  # ELMo's
KINDS = (WORDPIECE, SENTENCEPIECE, BPE, WORDS)  # that can be learned
# Their vocabulary file is a tokenizer.json of the library `tokenizers`.
LIBRARY_KINDS: dict[str, type[LibraryFile]] = {
    BPE: ByteLevelBPE,
    UNIGRAM: Unigram,
    BYTE_FALLBACK_BPE: ByteFallbackBPE,
    WORD_BPE: WordBPE,
    MOSES_BPE: MosesBPE,
    WORDS: WordLevel,
}
OF_WORDS = (WORD_BPE, MOSES_BPE, WORDS)

DESCRIPTION_FILE = "vocabulary.json"
VOCABULARY_FILES = {
    WORDPIECE: "vocab.txt",
    SENTENCEPIECE: "sentencepiece.model",
    BPE: "bpe.json",
    UNIGRAM: "unigram.json",
    BYTE_FALLBACK_BPE: "byte_fallback_bpe.json",
    WORD_BPE: "word_bpe.json",
    MOSES_BPE: "moses_bpe.json",
    WORDS: "words.json",
}
# Keys of a vocabulary's description, which it has if their values are not BERT's.
_RULES = ("strip_accents", "tokenize_chinese_chars", "nfc")
_SPECIAL_TOKENS, _TEMPLATE = "special_tokens", "template"
_ADDED = "added_tokens"
_USUAL = "usual"  # a key that the identity does not depend on
_FEWEST = 1_000  # pieces of text; fewer say little about it
AddedToken: Any = record(
    content=str, **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), bool)
)
_OWN = {
    **dict.fromkeys(_RULES, bool),
    _SPECIAL_TOKENS: dict[str, str],
    _TEMPLATE: Template,
    _ADDED: list[AddedToken],
}


class Tokenizer:
    """Text to ids of a fixed vocabulary, and back. Open with `Tokenizer.open`.

    Attributes:
      kind: one of `KINDS`, "unigram", "byte_fallback_bpe", "word_bpe" or "moses_bpe".
      cased: False if text is lower-cased first.
      strip_accents: whether WordPiece removes accents; BERT does if it lower-cases.
      tokenize_chinese_chars: whether WordPiece treats each Chinese character as a word; BERT does.
      nfc: whether WordPiece brings text into Unicode's form NFC; BERT does not.
      usual: how it splits the text of its corpus; None: not known.
      added_tokens: of a WordPiece, those of its owner, in the form of tokenizer.json without ids.
      added: the names of the tokens that are found in a text before its words.
      keeps_spaces: whether pieces have the white space of a text (byte-level BPE, and one with byte
        fallback). Then the ids of two texts together are those of the joined text only if the
        second text begins with the space between them.
      tokens: the piece of each id.
      readable: the pieces for people to read: bytes are shown as text.
      vocabulary_size: number of ids.
      roles: the id of each role's special token: of pad, unk, cls, sep, mask, bos and eos, those
        that the vocabulary has. BERT's have the first five.
      special_ids: the ids of all roles, ascending.
      ordinary: bool [vocabulary_size], False for the special ids.
      template: how special tokens and token types make a sequence of one or two texts.
      continues_word: bool [vocabulary_size], True for a piece that continues a word.
      word_links: None; or uint8 [2, vocabulary_size] if that depends on the piece before it, too:
        sets of classes of characters, as bits. A piece continues a word only if its class (first
        row) is in the set of the piece before it (second row).
      vocabulary: the bytes of the vocabulary file.
      identity: hex hash over the vocabulary file, kind, cased, and the rules, special tokens and
        template that are not BERT's.
    """

    def __init__(
        self,
        kind: str,
        vocabulary: bytes,
        origin: str,
        *,
        cased: bool | None = None,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        nfc: bool = False,
        added_tokens: Sequence[Mapping[str, Any]] = (),
        special_tokens: Mapping[str, str] | None = None,
        template: Template | None = None,
        usual: Usual | None = None,
    ):
        """Use `Tokenizer.open`, or `bertjax.interop.tokenizer_files.read_tokenizer`.

        Args:
          vocabulary: the bytes of the vocabulary file.
          origin: its name, for messages.
          strip_accents: of WordPiece; None: if text is lower-cased.
          added_tokens: of WordPiece, those of its owner; new ones have the ids after its pieces.
          special_tokens: of a BPE or unigram model, the names of special tokens by role that other
            files give. The vocabulary file and the usual names give the rest.
          template: None: that of the file, or the usual one for its special tokens.
        """
        pieces: LibraryPieces | SentencePiece
        if kind == WORDPIECE:
            pieces = WordPiece(
                vocabulary,
                origin,
                cased=cased,
                strip_accents=strip_accents,
                tokenize_chinese_chars=tokenize_chinese_chars,
                nfc=nfc,
                added_tokens=added_tokens,
            )
        elif kind == SENTENCEPIECE:
            pieces = SentencePiece(vocabulary, origin, cased=cased)
        else:
            pieces = LIBRARY_KINDS[kind](vocabulary, origin, special_tokens or {})
            if cased not in (None, pieces.cased):
                raise InputError(f"{origin}: says cased={pieces.cased}, asked for {cased}.")
        self.kind, self.cased, self.vocabulary = kind, pieces.cased, pieces.vocabulary
        self.strip_accents = not self.cased if strip_accents is None else strip_accents
        self.tokenize_chinese_chars, self.nfc, self.usual = tokenize_chinese_chars, nfc, usual
        self._pieces, self.added_tokens, self.added = pieces, list(added_tokens), pieces.added
        self.keeps_spaces: bool = pieces.keeps_spaces
        self.tokens: list[str] = pieces.tokens
        self.readable: list[str] = pieces.readable
        self.vocabulary_size = len(self.tokens)
        self.roles: dict[str, int] = pieces.roles
        self.special_ids = tuple(sorted({*self.roles.values()}))
        self.ordinary = np.ones(self.vocabulary_size, bool)
        self.ordinary[list(self.special_ids)] = False
        self.template = template or pieces.template or Template.usual(self.roles)
        self.continues_word: np.ndarray = pieces.continues_word
        self.word_links: np.ndarray | None = pieces.word_links
        own_rules = (
            f"{name}={value if name in _RULES else json.dumps(value, sort_keys=True)}"
            for name, value in self._own_rules().items()
        )
        rules = " ".join([kind, str(self.cased), *own_rules])
        self.identity = hashlib.sha256(self.vocabulary + f"\0{rules}".encode()).hexdigest()

    def _own_rules(self) -> dict[str, Any]:
        """The rules, special tokens and template that are not BERT's or not usual; often {}."""
        berts = dict(zip(_RULES, (not self.cased, True, False), strict=True))
        rules = {rule: getattr(self, rule) for rule in _RULES if getattr(self, rule) != berts[rule]}
        if self.kind in LIBRARY_KINDS and self.names != BERT:
            rules[_SPECIAL_TOKENS] = self.names
        if self.added_tokens:
            rules[_ADDED] = self.added_tokens
        if self.template != Template.usual(self.roles):
            rules[_TEMPLATE] = template = dataclasses.asdict(self.template)
            if not template["between_type"]:  # a later field: identities stay
                del template["between_type"]
        return rules

    @property
    def names(self) -> dict[str, str]:
        """The special token of each role."""
        return {role: self.tokens[number] for role, number in self.roles.items()}

    @property
    def library(self) -> "Library":
        """The tokenizer of the library `tokenizers`, to read; a SentencePiece .model has none."""
        assert isinstance(self._pieces, LibraryPieces)
        return self._pieces.library

    def description(self) -> dict[str, Any]:
        """The content of its tokenizer.json; a SentencePiece .model has none."""
        assert isinstance(self._pieces, LibraryPieces)
        return self._pieces.description()

    def with_vocabulary(
        self, vocabulary: bytes, origin: str = "the vocabulary with new pieces", **changes: Any
    ) -> Self:
        """A tokenizer with these rules, names and template, but for `changes`, and other pieces."""
        rules = {rule: getattr(self, rule) for rule in ("cased", *_RULES, _TEMPLATE, _ADDED)}
        rules[_SPECIAL_TOKENS] = self.names
        return type(self)(self.kind, vocabulary, origin, **rules | changes)

    def _id(self, role: str) -> int:
        if role not in self.roles:
            names = ", ".join(self.tokens[number] for number in self.special_ids)
            raise InputError(
                f"the vocabulary has no special token for {role!r} (it has {names}), which is "
                "needed here: take a vocabulary that has one"
            )
        return self.roles[role]

    @property
    def pad_id(self) -> int:
        """The id of padding. This property and the next five raise InputError without the role."""
        return self._id("pad")

    @property
    def unk_id(self) -> int:
        """The id that stands for text that the vocabulary lacks."""
        return self._id("unk")

    @property
    def cls_id(self) -> int:
        """The id of the token that stands for a whole sequence."""
        return self._id("cls")

    @property
    def sep_id(self) -> int:
        """The id of the token that separates texts."""
        return self._id("sep")

    @property
    def end_id(self) -> int:
        """The id of the token between documents: that of eos, or else of sep."""
        return self._id("eos" if "eos" in self.roles else "sep")

    @property
    def mask_id(self) -> int:
        """The id of a hidden token."""
        return self._id("mask")

    @classmethod
    def open(cls, path: str | os.PathLike, cased: bool | None = None) -> Self:
        """Opens a vocab.txt, a SentencePiece .model, a tokenizer.json, or a folder of `save`.

        Args:
          cased: whether upper case is kept. None: as the folder says; for vocab.txt, whether any
            piece has upper case; for .model, True (a model may fold case by itself); for .json, as
            the file says.

        Raises:
          InputError: no vocabulary there, a damaged one, or one without special tokens or with
            duplicates (naming the lines).
        """
        path = checked_path(path)
        if path.is_dir():
            return cls._open_folder(path, cased)
        if not path.exists():
            raise InputError(f"{path}: no such vocabulary file.")
        data = path.read_bytes()
        kind = SENTENCEPIECE if path.suffix == ".model" else WORDPIECE
        kind = _kind_in(data) if path.suffix == ".json" else kind
        return cls(kind, data, str(path), cased=cased)

    @classmethod
    def _open_folder(cls, folder: Path, cased: bool | None) -> Self:
        file = folder / DESCRIPTION_FILE
        if not file.exists():
            raise InputError(
                f"{folder}: no {DESCRIPTION_FILE} in this folder: name the vocabulary file itself, "
                "or a folder that launch/prepare_corpus.py or launch/pretrain.py wrote."
            )
        optional = _OWN | {_USUAL: dict[str, float]}
        own_fields = {name: NotRequired[each | None] for name, each in optional.items()}
        fields = record(kind=str, cased=bool, file=str, sha256=str, **own_fields)
        hint = "it does not describe a tokenizer of ours: name the vocabulary file itself"
        description = read_json(file, fields, hint=hint)
        kind, saved_cased = description["kind"], description["cased"]
        if kind not in VOCABULARY_FILES:
            raise InputError(f"{file}: kind is {kind!r}: {hint}")
        path, sha256 = inside(folder, description["file"], file), description["sha256"]
        if not path.exists():
            raise InputError(f"{path}: missing, but {file} names it.")
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != sha256:
            raise InputError(f"{path}: not the file that {file} describes: restore it.")
        if cased is not None and cased != saved_cased:
            raise InputError(f"{file}: says cased={saved_cased}, asked for {cased}.")
        own = {name: description[name] for name in _OWN if name in description}
        if _TEMPLATE in own:
            own[_TEMPLATE] = converted(own[_TEMPLATE], Template)
        if usual := description.get(_USUAL):
            own[_USUAL] = converted([usual.get(field) for field in Usual._fields], Usual)
        return cls(kind, data, str(path), cased=saved_cased, **own)

    def save(self, directory: str | os.PathLike) -> None:
        """Writes the vocabulary file and its description into `directory`, for `open`."""
        with atomic_write(path_of(directory) / VOCABULARY_FILES[self.kind]) as file:
            file.write(self.vocabulary)
        self.save_description(directory)

    def save_description(self, directory: str | os.PathLike) -> None:
        """Writes the description alone, into a folder with the vocabulary file."""
        name = VOCABULARY_FILES[self.kind]
        sha256 = hashlib.sha256(self.vocabulary).hexdigest()
        description = {"kind": self.kind, "cased": self.cased, "file": name, "sha256": sha256}
        usual = {_USUAL: self.usual._asdict()} if self.usual else {}
        write_json(path_of(directory) / DESCRIPTION_FILE, description | self._own_rules() | usual)

    def shares(self, counts: np.ndarray) -> Usual:
        """How a text is split, from the counts of its pieces, [vocabulary_size]."""
        unknown = counts[self.roles["unk"]] if "unk" in self.roles else 0
        total = max(counts[self.ordinary].sum() + unknown, 1)
        split = counts[self.continues_word & self.ordinary].sum()
        return Usual(float(split / total), float(unknown / total))

    def unusual(self, ids: np.ndarray) -> str:
        """Says how a text with these ids differs from the usual; "" if it does not, or is short."""
        counts = np.bincount(ids, minlength=self.vocabulary_size)
        if self.usual is None or counts[self.ordinary].sum() < _FEWEST:
            return ""
        return self.usual.difference(self.shares(counts))

    def encode(self, texts: Sequence[str], *, special: bool = False) -> list[list[int]]:
        """The ids of each text, without special tokens around them; many at once are faster.

        Args:
          special: whether "[MASK]" and the like, as written in a prompt, mean the special token.
            Otherwise they are brackets and a word, so that no corpus can make a special token
            (but for the unknown one, which stands for what the vocabulary lacks).

        Raises:
          InputError: half a surrogate pair in a text.
        """
        try:
            return self._pieces.encode_prompts(texts) if special else self._pieces.encode(texts)
        except (TypeError, UnicodeEncodeError):  # of the libraries, for half a surrogate pair
            refuse_surrogates(texts)
            raise

    def encode_words(self, texts: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """The ids of each word of each text: together, those of the words with spaces between them.

        Raises:
          InputError: half a surrogate pair in a word.
        """
        space = " " if self.keeps_spaces else ""
        words = chain.from_iterable(
            (space + word if number else word for number, word in enumerate(text)) for text in texts
        )
        ids = iter(self.encode(list(words)))
        return [[next(ids) for _ in text] for text in texts]

    def encode_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], np.ndarray]]:
        """The ids of each text, as `encode` gives them, and where they stand in it.

        The places are int32 [N, 2]: the characters [start, end) of the text that each of the N
        pieces was made of, without white space around them. Both columns ascend. Characters that
        the vocabulary's rules remove belong to no piece, except accents, which belong to the piece
        of their letter. If one character becomes several pieces ("\u00bd" becomes "1", "\u2044",
        "2"; or its bytes), either all of them have its span, or one has it and the others are empty
        (start = end).

        Raises:
          InputError: half a surrogate pair in a text.
        """
        try:
            return list(self._pieces.encode_with_offsets(texts))
        except (TypeError, UnicodeEncodeError):  # of the libraries, for half a surrogate pair
            refuse_surrogates(texts)
            raise

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; special tokens are written out."""
        return self._pieces.decode([int(each) for each in ids])


def kind_of(description: Mapping[str, Any]) -> str | None:
    """The kind of a tokenizer.json; None if it is none of `LIBRARY_KINDS`."""
    model = description.get("model") or {}
    name = model.get("type")
    if isinstance(model.get("vocab"), list) and name in ("Unigram", None):  # None: older files
        return UNIGRAM
    if name != "BPE":
        return WORDS if name == "WordLevel" else None
    if not model.get("end_of_word_suffix"):
        return BYTE_FALLBACK_BPE if description.get("normalizer") == SPACES_MARKED else BPE
    return MOSES_BPE if description.get("pre_tokenizer") == SPLIT_AT_SPACES else WORD_BPE


def _kind_in(data: bytes) -> str:
    """The kind of a tokenizer.json; for any other file "bpe", whose reader says what is wrong."""
    try:
        return kind_of(parsed(data, optional(model=dict), "tokenizer.json", "")) or BPE
    except InputError:
        return BPE


def refuse_surrogates(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts):
        if half := re.search("[\ud800-\udfff]", text):
            raise InputError(
                f"text {number} (of {len(texts)}, from 0): its character {half.start()} is "
                f"U+{ord(half[0]):X}, half a surrogate pair and no character: remove it."
            )
