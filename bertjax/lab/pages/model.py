"""What a model does with a text: the attention of every head, and what each word may become."""

import base64
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bertjax.base.errors import InputError
from bertjax.inference.features.attention_maps import AttentionMaps
from bertjax.lab.pages.html import Html, element, table

MASK = "[MASK]"
GUESSES = 5


def attention(found: AttentionMaps, number: int) -> Html:
    """A small picture for each layer (a row) and head (a column); dark is much attention."""
    layers, heads = found.maps.shape[:2]
    rows = [
        [layer + 1, *(_head(found.maps[layer, head], layer, head, number) for head in range(heads))]
        for layer in range(layers)
    ]
    names = ["layer", *(f"head {head}" for head in range(1, heads + 1))]
    return element(
        "figure",
        element("h3", "Attention: a row for each token, a column for each that it attends to"),
        element("p", "The tokens: " + " ".join(found.tokens)),
        element("p", "", class_="here", role="status"),
        element("div", table("attention by layer and head", names, rows), class_="heads"),
    )


def _head(share: np.ndarray, layer: int, head: int, number: int) -> Html:
    coded = base64.b64encode(gray_png(1 - share)).decode()
    alt = f"layer {layer + 1}, head {head + 1}"
    picture = f"data:image/png;base64,{coded}"
    return element("img", src=picture, alt=alt, title=alt, data_text=number, tabindex=0)


def gray_png(values: np.ndarray) -> bytes:
    """A PNG of a matrix of numbers from 0 (black) to 1 (white), a pixel each."""
    height, width = values.shape
    pixels = np.rint(255 * np.clip(values, 0, 1)).astype(np.uint8)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels], axis=1)  # 0: no filter

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
    return b"\x89PNG\r\n\x1a\n" + data + chunk(b"IEND", b"")


def blanks(text: str) -> list[tuple[str, str]]:
    """The words of a text, each with the text in which it is masked.

    Words are runs of letters and digits. If the text has [MASK] in it, it is the only one.
    """
    if MASK in text:
        return [(MASK, text)]
    words = re.finditer(r"\w+", text)
    return [(each[0], text[: each.start()] + MASK + text[each.end() :]) for each in words]


def guesses(
    text: str, fill: Callable[[list[str]], Sequence[Sequence[Sequence[tuple[str, float]]]]]
) -> Iterator[Html]:
    """Yields a table of what a model puts in the place of each word of a text.

    Args:
      fill: texts with [MASK] -> for each text, for each [MASK], pieces and their probabilities.
    """
    masked = blanks(text)
    try:
        filled = fill([each for _, each in masked])
    except InputError as error:  # other models have attention alone
        yield element("p", f"No words are guessed: {error}", class_="note")
        return
    rows = []
    for (word, _), places in zip(masked, filled, strict=True):
        for place in places:
            shown = [
                _guess(piece, share, piece.casefold() == word.casefold()) for piece, share in place
            ]
            rows.append([word, *shown])
    names = ["word", *(f"guess {number}" for number in range(1, GUESSES + 1))]
    yield table("what each word becomes if it is masked; bold: the word itself", names, rows)


def _guess(piece: str, probability: float, right: bool) -> Html:
    return element("span", f"{piece} {probability:.1%}", class_="sure" if right else None)
