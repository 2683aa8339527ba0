"""BERT's WordPiece.

It gives the ids of transformers' BertTokenizer, which uses the library `tokenizers`. It has
the cleaning, accent stripping, CJK spacing and 100-character word limit of google-research/bert
`tokenization.py`. It differs in five ways from that Python code, and from transformers'
BertTokenizerLegacy, which follows it:

* A capital sigma at the end of a word becomes "\u03c3", as inside a word, and not "\u03c2".
* Character classes are those of Unicode 8: punctuation that came later does not split words, later
  accents are not stripped, and characters without an assignment are not removed.
* Half a surrogate pair is no character, and is refused; there it is dropped.
* CJK characters U+2B820 to U+2B91F stand in words, not alone.
* Where accents are kept, a letter and its accent are made one character first (Unicode's NFC) only
  with the rule `nfc`, which cased vocabularies that are learned here have. (BertTokenizerLegacy
  does that always.)
"""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from bertjax.base.errors import InputError
from bertjax.text.offsets import after_marks, without_white_space
from bertjax.text.pieces import LibraryPieces
from bertjax.text.special_tokens import BERT, SPECIAL_TOKENS, UNK

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library


def read_lines(data: bytes, origin: str) -> list[str]:
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


class WordPiece(LibraryPieces):
    """The `tokenizers` library's WordPiece, with a cache of whole words.

    Added tokens are whole in every text; those that are not in the vocabulary have the next ids.
    """

    # Most words have been seen before, and a dictionary look-up takes a third of the library's
    # time: room for 400,000 words of English. Where no spaces stand between words, a whole clause
    # is one word here, with an id for each character.
    _CACHE_BYTES = 128 << 20
    # About what a word takes (its string, tuple and place in the dictionary), and each of its ids.
    _WORD_BYTES, _ID_BYTES = 160, 40

    def __init__(
        self,
        data: bytes,
        origin: str,
        *,
        cased: bool | None,
        strip_accents: bool | None,
        tokenize_chinese_chars: bool,
        nfc: bool,
        added_tokens: Sequence[Mapping[str, Any]] = (),
    ):
        from tokenizers import AddedToken

        self.vocabulary = data
        pieces = read_lines(data, origin)
        lines: dict[str, int] = {}
        for number, token in enumerate(pieces, start=1):
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
        self.cased = _has_upper_case(pieces) if cased is None else cased
        strip_accents = not self.cased if strip_accents is None else strip_accents
        self.roles = {role: lines[name] - 1 for role, name in BERT.items()}
        self._added_tokens = added_tokens
        self.added = [token["content"] for token in added_tokens]
        self.tokens = self.readable = pieces + [name for name in self.added if name not in lines]
        self.continues_word = np.array(
            [token.startswith("##") and token not in self.added for token in self.tokens]
        )
        self.library = bert_wordpiece(
            {token: line - 1 for token, line in lines.items()},
            cased=self.cased,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
            nfc=nfc,
        )
        special = [AddedToken(name, normalized=False, special=True) for name in SPECIAL_TOKENS]
        self.library.add_special_tokens(special)
        # The library would not find special tokens in text.
        found = [AddedToken(**{**token, "special": False}) for token in added_tokens]
        self.library.add_tokens(found)
        self._has_spaces = any(" " in name for name in self.added)
        self._joins_marks = strip_accents or nfc
        self._cache: dict[str, tuple[int, ...]] = {}
        self._cached_bytes = 0

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        if self._has_spaces:
            return super().encode(texts)
        # The library treats what stands between two spaces independently of all else: a space
        # is a word boundary to it, and it changes characters one by one.
        words_of = [text.split(" ") for text in texts]
        unseen = list(set(chain.from_iterable(words_of)).difference(self._cache))
        if unseen:
            self._cache.update(zip(unseen, map(tuple, super().encode(unseen)), strict=True))
            self._cached_bytes += sum(map(self._bytes_of, unseen))
        ids_of = self._cache.__getitem__
        encoded = [list(chain.from_iterable(map(ids_of, words))) for words in words_of]
        if self._cached_bytes > self._CACHE_BYTES:
            self._cache.clear()
            self._cached_bytes = 0
        return encoded

    def _spans(self, text: str, offsets: np.ndarray) -> np.ndarray:
        if self._joins_marks and not text.isascii():
            offsets[:, 1] = after_marks(text)[offsets[:, 1]]
        # An added token may have the space next to it.
        return without_white_space(text, *offsets.T) if self.added else offsets

    def _bytes_of(self, word: str) -> int:
        return self._WORD_BYTES + len(word) + self._ID_BYTES * len(self._cache[word])

    def description(self) -> dict[str, Any]:
        description = json.loads(self.library.to_str())
        given = {token["content"]: token for token in self._added_tokens}
        for token in description["added_tokens"]:
            token |= given.get(token["content"], {})
        return description


def of_berts_words(
    model: Any,
    *,
    cased: bool,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
    nfc: bool = False,
) -> "Library":
    """The library's tokenizer with a model that gets words as BERT cuts text into them."""
    from tokenizers import Tokenizer as Library
    from tokenizers import normalizers, pre_tokenizers

    library = Library(model)
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
    return library


def bert_wordpiece(ids: dict[str, int] | None, **rules: Any) -> "Library":
    """A WordPiece with rules of `of_berts_words`; `ids` None: to be trained."""
    from tokenizers import decoders, models

    pieces = models.WordPiece(ids, unk_token=UNK, max_input_chars_per_word=100)
    library = of_berts_words(pieces, **rules)
    library.decoder = decoders.WordPiece(prefix="##")
    return library
