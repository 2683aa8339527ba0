"""One interface to all kinds of vocabularies: text to ids and back.

WordPiece gives the ids of transformers' BertTokenizer, which uses the library `tokenizers`. It has
the cleaning, accent stripping, CJK spacing and 100-character word limit of google-research/bert
`tokenization.py`. It differs in four ways from that Python code, and from transformers'
BertTokenizerLegacy, which follows it:

* A capital sigma at the end of a word becomes "\u03c3", as inside a word, and not "\u03c2".
* Character classes are those of Unicode 8: punctuation that came later does not split words, later
  accents are not stripped, and characters without an assignment are not removed.
* CJK characters U+2B820 to U+2B91F stand in words, not alone.
* Where accents are kept, a letter and its accent are made one character first (Unicode's NFC) only
  with the rule `nfc`, which cased vocabularies that are learned here have. (BertTokenizerLegacy
  does that always.)

Half a surrogate pair is no character: it is refused here, and dropped by the Python code.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Self

import numpy as np

from bertjax.base.cloud_storage import checked_path, path_of
from bertjax.base.errors import InputError
from bertjax.base.files import atomic_write, inside, read_json, write_json
from bertjax.base.validation import converted, record
from bertjax.text.byte_level import ByteLevelBPE
from bertjax.text.library_file import (
    LibraryPieces,
    cuts_at_spaces,
    is_unigram,
    is_word_level,
    marks_word_ends,
)
from bertjax.text.moses_bpe import MosesBPE
from bertjax.text.offsets import behind_marks
from bertjax.text.special_tokens import BERT, SPECIAL_TOKENS, UNK
from bertjax.text.template import Template
from bertjax.text.unigram import WORD_MARK, Unigram
from bertjax.text.usual import Usual
from bertjax.text.word_bpe import WordBPE
from bertjax.text.word_level import WordLevel

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

WORDPIECE = "wordpiece"
SENTENCEPIECE = "sentencepiece"
BPE = "bpe"  # byte-level
UNIGRAM = "unigram"  # SentencePiece's kind of model, in the form of the library `tokenizers`
WORD_BPE = "word_bpe"  # GPT's
MOSES_BPE = "moses_bpe"  # XLM's
WORDS = "words"  # ELMo's
KINDS = (WORDPIECE, SENTENCEPIECE, BPE, WORDS)  # that can be learned
# Their vocabulary file is a tokenizer.json of the library `tokenizers`.
LIBRARY_KINDS: dict[str, type[LibraryPieces]] = {
    BPE: ByteLevelBPE,
    UNIGRAM: Unigram,
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
    WORD_BPE: "word_bpe.json",
    MOSES_BPE: "moses_bpe.json",
    WORDS: "words.json",
}
# Keys of a vocabulary's description, which it has if their values are not BERT's.
_RULES = ("strip_accents", "tokenize_chinese_chars", "nfc")
_SPECIAL_TOKENS, _TEMPLATE = "special_tokens", "template"
_USUAL = "usual"  # a key that the identity does not depend on
_FEWEST = 1_000  # pieces of text; fewer say little about it
_OWN = {
    **dict.fromkeys(_RULES, bool),
    _SPECIAL_TOKENS: dict[str, str],
    _TEMPLATE: Template,
}


class Tokenizer:
    """Text to ids of a fixed vocabulary, and back. Open with `Tokenizer.open`.

    Attributes:
      kind: "wordpiece", "sentencepiece", "bpe", "unigram", "word_bpe", "moses_bpe" or "words".
      cased: False if text is lower-cased first.
      strip_accents: whether WordPiece removes accents; BERT does if it lower-cases.
      tokenize_chinese_chars: whether WordPiece treats each Chinese character as a word; BERT does.
      nfc: whether WordPiece brings text into Unicode's form NFC; BERT does not.
      usual: how it splits the text of its corpus; None: not known.
      keeps_spaces: whether pieces have the white space of a text (byte-level BPE). Then the ids of
        two texts together are those of the joined text only if the second text begins with the
        space between them.
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
        special_tokens: Mapping[str, str] | None = None,
        template: Template | None = None,
        usual: Usual | None = None,
    ):
        """Use `Tokenizer.open`, or `bertjax.interop.tokenizer_files.read_tokenizer`.

        Args:
          kind: see above.
          vocabulary: the bytes of the vocabulary file.
          origin: its name, for messages.
          cased: see `open`.
          strip_accents: of WordPiece; None: if text is lower-cased.
          tokenize_chinese_chars, nfc: of WordPiece.
          special_tokens: of a BPE or unigram model, the names of special tokens by role that other
            files give. The vocabulary file and the usual names give the rest.
          template: None: that of the file, or the usual one for its special tokens.
          usual: see above.

        Raises:
          InputError: see `open`.
        """
        pieces: LibraryPieces | _WordPiece | _SentencePiece
        if kind in LIBRARY_KINDS:
            pieces = LIBRARY_KINDS[kind](vocabulary, origin, special_tokens or {})
            if cased not in (None, pieces.cased):
                raise InputError(f"{origin}: says cased={pieces.cased}, asked for {cased}.")
            vocabulary, cased = pieces.vocabulary, pieces.cased
        elif cased is None:
            cased = kind == SENTENCEPIECE or _has_upper_case(_read_lines(vocabulary, origin))
        self.kind, self.cased, self.vocabulary = kind, cased, vocabulary
        self.strip_accents = not cased if strip_accents is None else strip_accents
        self.tokenize_chinese_chars, self.nfc, self.usual = tokenize_chinese_chars, nfc, usual
        if kind == WORDPIECE:
            pieces = _WordPiece(
                vocabulary,
                origin,
                cased=cased,
                strip_accents=self.strip_accents,
                tokenize_chinese_chars=tokenize_chinese_chars,
                nfc=nfc,
            )
        elif kind == SENTENCEPIECE:
            pieces = _SentencePiece(vocabulary, cased, origin)
        self._pieces = pieces
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
        own = (
            f"{name}={value if name in _RULES else json.dumps(value, sort_keys=True)}"
            for name, value in self._own().items()
        )
        rules = " ".join([kind, str(cased), *own])
        self.identity = hashlib.sha256(vocabulary + f"\0{rules}".encode()).hexdigest()

    def _own(self) -> dict[str, Any]:
        """The rules, special tokens and template that are not BERT's or not usual; often {}."""
        berts = dict(zip(_RULES, (not self.cased, True, False), strict=True))
        own = {rule: getattr(self, rule) for rule in _RULES if getattr(self, rule) != berts[rule]}
        names = {role: self.tokens[number] for role, number in self.roles.items()}
        if self.kind in LIBRARY_KINDS and names != BERT:
            own[_SPECIAL_TOKENS] = names
        if self.template != Template.usual(self.roles):
            own[_TEMPLATE] = dataclasses.asdict(self.template)
        return own

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
          path: the file or folder.
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
        kind = {".model": SENTENCEPIECE, ".json": BPE}.get(path.suffix, WORDPIECE)
        if kind == BPE and is_unigram(data):
            kind = UNIGRAM
        elif kind == BPE and marks_word_ends(data):
            kind = MOSES_BPE if cuts_at_spaces(data) else WORD_BPE
        elif kind == BPE and is_word_level(data):
            kind = WORDS
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
        cure = "it does not describe a tokenizer of ours: name the vocabulary file itself"
        description = read_json(file, fields, cure=cure)
        kind, saved_cased = description["kind"], description["cased"]
        if kind not in VOCABULARY_FILES:
            raise InputError(f"{file}: kind is {kind!r}: {cure}")
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
        write_json(path_of(directory) / DESCRIPTION_FILE, description | self._own() | usual)

    def shares(self, counts: np.ndarray) -> Usual:
        """How a text is split.

        Args:
          counts: [vocabulary_size], of its pieces.
        """
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
        """The ids of each text, without special tokens around them.

        Args:
          texts: any number of texts; many at once are faster than one by one.
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
        """The ids of each word of each text, which is given as its words.

        All ids of a text are those of its words with spaces between them.

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

        Returns:
          For each text, its ids, and int32 [N, 2]: the characters [start, end) of the text that
          each of the N pieces was made of, without white space around them. Both columns ascend.
          Characters that the vocabulary's rules remove belong to no piece, except accents, which
          belong to the piece of their letter. If one character becomes several pieces ("\u00bd"
          becomes "1", "\u2044", "2"; or its bytes), either all of them have its span, or one has
          it and the others are empty (start = end).

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


def refuse_surrogates(texts: Sequence[str]) -> None:
    for number, text in enumerate(texts):
        if half := re.search("[\ud800-\udfff]", text):
            raise InputError(
                f"text {number} (of {len(texts)}, from 0): its character {half.start()} is "
                f"U+{ord(half[0]):X}, half a surrogate pair and no character: remove it."
            )


class _Pieces:
    """What WordPiece and SentencePiece have in common, unlike byte-level BPE."""

    tokens: list[str]
    roles: dict[str, int]
    template = None
    keeps_spaces = False
    word_links = None

    @property
    def readable(self) -> list[str]:
        return self.tokens

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        raise NotImplementedError

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        special = {name: self.roles[role] for role, name in BERT.items()}
        border = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
        encoded = []
        for parts in map(border.split, texts):
            plain, between = self.encode(parts[::2]), [[special[part]] for part in parts[1::2]]
            in_turn = chain.from_iterable(zip_longest(plain, between, fillvalue=()))
            encoded.append(list(chain.from_iterable(in_turn)))
        return encoded


# --------------------------------------------------------------------------- WordPiece


def _read_lines(data: bytes, origin: str) -> list[str]:
    """The pieces of a vocab.txt, one a line; only a line feed ends a line.

    Published vocabularies hold pieces such as U+2028, at which str.splitlines would break.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{origin}: not UTF-8 at byte {error.start}: is this a vocab.txt (one piece a line)?"
        ) from error
    return [line.rstrip(" \t\r") for line in text.removesuffix("\n").split("\n")]


def _has_upper_case(tokens: list[str]) -> bool:
    return any(token != token.lower() for token in tokens if not token.startswith("["))


class _WordPiece(_Pieces):
    """The `tokenizers` library's WordPiece, behind a cache of whole words."""

    # Most words have been seen before, and a dictionary look-up takes a third of the library's
    # time: room for 400,000 words of English. Where no spaces stand between words, a whole clause
    # is one word here, with an id for each character.
    _CACHE_BYTES = 128 << 20
    # About what a word takes (its string, tuple and place in the dictionary), and each of its ids.
    _WORD_BYTES, _ID_BYTES = 160, 40
    _TEXTS_AT_ONCE = 1000  # with offsets, the library takes about 20 kB for a paragraph

    def __init__(self, data: bytes, origin: str, **rules: bool):
        self.tokens = _read_lines(data, origin)
        lines: dict[str, int] = {}
        for number, token in enumerate(self.tokens, start=1):
            if lines.setdefault(token, number) != number:
                raise InputError(
                    f"{origin}: lines {lines[token]} and {number} are both {token!r}: a vocabulary "
                    "must not repeat a piece."
                )
        missing = [token for token in SPECIAL_TOKENS if token not in lines]
        if missing:
            raise InputError(
                f"{origin}: {' '.join(missing)} not among its {len(lines)} lines: a BERT "
                f"vocabulary needs {' '.join(SPECIAL_TOKENS)}, one a line."
            )
        self.roles = {role: lines[name] - 1 for role, name in BERT.items()}
        self.continues_word = np.array([token.startswith("##") for token in self.tokens])
        ids = {token: line - 1 for token, line in lines.items()}
        self._library = bert_wordpiece(ids, **rules)
        self._joins_marks = rules["strip_accents"] or rules["nfc"]
        self._cache: dict[str, tuple[int, ...]] = {}
        self._cached_bytes = 0

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        # The library treats what stands between two spaces independently of all else: a space
        # is a word boundary to it, and it changes characters one by one.
        words_of = [text.split(" ") for text in texts]
        unseen = list(set(chain.from_iterable(words_of)).difference(self._cache))
        if unseen:
            encodings = self._library.encode_batch_fast(unseen, add_special_tokens=False)
            self._cache.update((w, tuple(e.ids)) for w, e in zip(unseen, encodings, strict=True))
            self._cached_bytes += sum(map(self._bytes_of, unseen))
        ids_of = self._cache.__getitem__
        encoded = [list(chain.from_iterable(map(ids_of, words))) for words in words_of]
        if self._cached_bytes > self._CACHE_BYTES:
            self._cache.clear()
            self._cached_bytes = 0
        return encoded

    def encode_with_offsets(self, texts: Sequence[str]) -> Iterator[tuple[list[int], np.ndarray]]:
        for first in range(0, len(texts), self._TEXTS_AT_ONCE):
            some = texts[first : first + self._TEXTS_AT_ONCE]
            encodings = self._library.encode_batch(some, add_special_tokens=False)
            for text, encoding in zip(some, encodings, strict=True):
                offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
                if self._joins_marks and not text.isascii():
                    offsets[:, 1] = behind_marks(text)[offsets[:, 1]]
                yield encoding.ids, offsets

    def _bytes_of(self, word: str) -> int:
        """About the memory that a cached word takes."""
        return self._WORD_BYTES + len(word) + self._ID_BYTES * len(self._cache[word])

    def decode(self, ids: list[int]) -> str:
        return self._library.decode(ids, skip_special_tokens=False)


def bert_wordpiece(
    ids: dict[str, int] | None,
    *,
    cased: bool,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
    nfc: bool = False,
) -> "Library":
    """The library's tokenizer with BERT's normalization; `ids` None: to be trained."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    library = Library(models.WordPiece(ids, unk_token=UNK, max_input_chars_per_word=100))
    library.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=tokenize_chinese_chars,
        strip_accents=strip_accents,
        lowercase=not cased,
    )
    if nfc:
        steps = [normalizers.NFC(), library.normalizer]
        library.normalizer = normalizers.Sequence(steps)  # type: ignore[arg-type]
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(prefix="##")
    return library


# ----------------------------------------------------------------------- SentencePiece


class _SentencePiece(_Pieces):
    """A SentencePiece model whose special tokens are control symbols (text cannot make them)."""

    def __init__(self, data: bytes, cased: bool, origin: str):
        from sentencepiece import SentencePieceProcessor

        self._cased = cased
        self._library = library = SentencePieceProcessor()
        try:
            library.LoadFromSerializedProto(data)
        except RuntimeError as error:
            raise InputError(f"{origin}: not a SentencePiece model.") from error
        size = library.get_piece_size()
        self.tokens = [library.id_to_piece(each) for each in range(size)]
        # The model itself says which pieces are padding and unknown; they may have any name.
        self.roles = {"pad": library.pad_id(), "unk": library.unk_id()}
        for role, name in list(BERT.items())[2:]:
            number = library.piece_to_id(name)
            self.roles[role] = number if library.is_control(number) else -1
        if missing := [BERT[role] for role, number in self.roles.items() if number < 0]:
            raise InputError(
                f"{origin}: {' '.join(missing)} not among its control symbols: train the model "
                "with pad_id and unk_id set and --control_symbols=[CLS],[SEP],[MASK]."
            )
        self.continues_word = np.array(
            [
                not (piece.startswith(WORD_MARK) or library.is_control(i) or library.is_unknown(i))
                for i, piece in enumerate(self.tokens)
            ]
        )

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if not self._cased:
            texts = [text.lower() for text in texts]
        return self._library.encode(list(texts), num_threads=1)

    def encode_with_offsets(self, texts: Sequence[str]) -> Iterator[tuple[list[int], np.ndarray]]:
        shown = list(texts) if self._cased else [text.lower() for text in texts]
        mappings = self._library.encode(shown, return_type="offset_mapping", num_threads=1)
        for text, lower, mapping in zip(texts, shown, mappings, strict=True):
            # A piece has the white space before it.
            spans = [_stripped(lower, *span) for span in mapping["offsets"]]
            offsets = np.array(spans, np.int32).reshape(-1, 2)
            if len(text) != len(lower):  # "\u0130" becomes two characters
                offsets = _before_lower_casing(text, offsets)
            yield mapping["ids"], offsets

    def decode(self, ids: list[int]) -> str:
        words: list[str] = []
        run: list[int] = []  # ids of text, since the last special token
        for each in ids:
            if each in self.roles.values():
                words += [self._library.decode(run), self.tokens[each]]
                run = []
            else:
                run.append(each)
        return " ".join(filter(None, [*words, self._library.decode(run)]))


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The part of a span that is not white space around it."""
    piece = text[start:end]
    end -= len(piece) - len(piece.rstrip())
    return min(end, start + len(piece) - len(piece.lstrip())), end


def _before_lower_casing(text: str, offsets: np.ndarray) -> np.ndarray:
    """Converts spans in `text.lower()` to spans of whole characters in `text`."""
    places = np.repeat(np.arange(len(text)), [len(character.lower()) for character in text])
    places = np.append(places, len(text))
    starts, ends = offsets.T
    empty = starts == ends
    ends = np.where(empty, places[starts], places[ends - 1] + 1)
    return np.stack([places[starts], ends], axis=1).astype(np.int32)
