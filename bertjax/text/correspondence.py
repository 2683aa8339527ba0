"""Which pieces of an old vocabulary stand for each piece of a new one.

A piece that both have stands for itself, and special tokens stand for those of the same role. Any
other piece stands for the old pieces of its text. The two may be of different kinds, because the
text says whether the piece begins a word: then a space stands before it.
"""

from collections.abc import Callable, Sequence

from bertjax.text import byte_fallback, byte_level
from bertjax.text.special_tokens import UNK
from bertjax.text.tokenizer import (
    BPE,
    BYTE_FALLBACK_BPE,
    SENTENCEPIECE,
    UNIGRAM,
    WORDPIECE,
    Tokenizer,
)
from bertjax.text.unigram import WORD_MARK

_INSIDE = "##"
_WITH_SPACES = {BPE: byte_level, BYTE_FALLBACK_BPE: byte_fallback}  # what their pieces are


def old_pieces(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """The old ids that stand for each new id, without the one for unknown text; perhaps none."""
    of_role = {
        number: [old.roles[role]] if role in old.roles else []
        for role, number in reversed(new.roles.items())  # of two roles of a token, the first counts
    }
    same_pieces = {
        piece: [number] for number, piece in enumerate(old.tokens) if old.ordinary[number]
    }
    known = of_role | {
        number: same_pieces[piece]
        for number, piece in enumerate(new.tokens)
        if new.kind == old.kind and piece in same_pieces and number not in of_role
    }
    unknown = [number for number in range(new.vocabulary_size) if number not in known]
    ids = _SPLIT[old.kind](old, [_text(new, number) for number in unknown])
    special = set(old.special_ids)
    split = ([each for each in piece if each not in special] for piece in ids)
    known |= dict(zip(unknown, split, strict=True))
    return [known[number] for number in range(new.vocabulary_size)]


def _text(tokenizer: Tokenizer, number: int) -> bytes:
    """The text of a piece, with a space before it if it begins a word; perhaps half a character."""
    piece = tokenizer.tokens[number]
    if tokenizer.kind in _WITH_SPACES:
        return _WITH_SPACES[tokenizer.kind].bytes_of(piece)
    if tokenizer.kind == WORDPIECE:
        inside = tokenizer.continues_word[number] or not piece[:1].isalnum()  # "," has no space
        return (piece.removeprefix(_INSIDE) if inside else f" {piece}").encode()
    return piece.replace(WORD_MARK, " ").encode()


def _by_wordpiece(old: Tokenizer, texts: Sequence[bytes]) -> list[list[int]]:
    from tokenizers import Tokenizer as Library
    from tokenizers import models

    ids = {piece: number for number, piece in enumerate(old.tokens)}
    # To this library the start of a text is the inside of a word. Punctuation is always a word.
    inside = {piece: number for piece, number in ids.items() if len(piece) == 1}
    for piece, number in ids.items():
        if piece.startswith(_INSIDE):
            inside[piece] = inside[piece.removeprefix(_INSIDE)] = number
    pieces = models.WordPiece(inside | {UNK: old.unk_id}, unk_token=UNK)
    library = Library(pieces)
    library.normalizer, library.pre_tokenizer = old.library.normalizer, old.library.pre_tokenizer
    return [
        old.encode([text])[0] if text.startswith(" ") else library.encode(text).ids
        for text in map(_decoded, texts)
    ]


def _by_bpe(old: Tokenizer, texts: Sequence[bytes]) -> list[list[int]]:
    library, spelled, found = old.library, _WITH_SPACES[old.kind].spelled, []
    for piece in texts:
        text = _decoded(piece)
        if text and library.normalizer:
            piece = library.normalizer.normalize_str(text).encode()
        found.append([token.id for token in library.model.tokenize(spelled(piece))])
    return found


def _by_sentencepiece(old: Tokenizer, texts: Sequence[bytes]) -> list[list[int]]:
    ids = {piece: number for number, piece in enumerate(old.tokens)}
    decoded = list(map(_decoded, texts))
    found = old.encode([text.strip() for text in decoded])
    for text, pieces in zip(decoded, found, strict=True):
        if pieces and not text.startswith(" "):  # inside a word, the first piece has no mark
            first = old.tokens[pieces[0]].removeprefix(WORD_MARK)
            pieces[:1] = [ids.get(first, pieces[0])] if first else []
    return found


def _decoded(text: bytes) -> str:
    """The characters of a text; "" if it has half a character."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return ""


_SPLIT: dict[str, Callable[[Tokenizer, Sequence[bytes]], list[list[int]]]] = {
    WORDPIECE: _by_wordpiece,
    BPE: _by_bpe,
    BYTE_FALLBACK_BPE: _by_bpe,
    SENTENCEPIECE: _by_sentencepiece,
    UNIGRAM: _by_sentencepiece,
}
