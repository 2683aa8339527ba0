"""A SentencePiece model as Google's library runs it."""

import re
from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

import numpy as np

from bertjax.base.errors import InputError
from bertjax.text.special_tokens import BERT, SPECIAL_TOKENS
from bertjax.text.unigram import WORD_MARK


class SentencePiece:
    """A SentencePiece model whose special tokens are control symbols (text cannot make them).

    It has the members of `LibraryPieces`, but for the library.
    """

    keeps_spaces, template, word_links, added = False, None, None, ()

    def __init__(self, data: bytes, origin: str, *, cased: bool | None):
        from sentencepiece import SentencePieceProcessor

        self.vocabulary, self.cased = data, cased is not False
        self._model = library = SentencePieceProcessor()
        try:
            library.LoadFromSerializedProto(data)
        except RuntimeError as error:
            raise InputError(f"{origin}: not a SentencePiece model.") from error
        size = library.get_piece_size()
        self.tokens = self.readable = [library.id_to_piece(each) for each in range(size)]
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
        if not self.cased:
            texts = [text.lower() for text in texts]
        return self._model.encode(list(texts), num_threads=1)

    def encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        special = {name: self.roles[role] for role, name in BERT.items()}
        border = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
        encoded = []
        for splits in map(border.split, texts):
            text_ids, between = self.encode(splits[::2]), [[special[name]] for name in splits[1::2]]
            in_turn = chain.from_iterable(zip_longest(text_ids, between, fillvalue=()))
            encoded.append(list(chain.from_iterable(in_turn)))
        return encoded

    def encode_with_offsets(self, texts: Sequence[str]) -> Iterator[tuple[list[int], np.ndarray]]:
        shown = list(texts) if self.cased else [text.lower() for text in texts]
        mappings = self._model.encode(shown, return_type="offset_mapping", num_threads=1)
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
                words += [self._model.decode(run), self.tokens[each]]
                run = []
            else:
                run.append(each)
        return " ".join(filter(None, [*words, self._model.decode(run)]))


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without the white space around it."""
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
