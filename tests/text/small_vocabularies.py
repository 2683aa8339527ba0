"""Small vocabularies, texts for them, and the fields of their files that several tests change."""

import random
from collections.abc import Iterable
from typing import Any

from bertjax.text.tokenizer import Tokenizer

# Of English words, and with characters of two and three bytes.
CHAIRS = [f"The cat number {n} sat on mat {n % 7}, not on chair {n % 5}." for n in range(300)]
SENTENCES = [
    f"The cat number {n * n} sat on mat {n % 7}, isn't it? \u4e2d\u6587 caf\u00e9 na\u00efve (no)."
    for n in range(99)
]
LETTERS = "abcdeABCDE"
ACCENTED = "\u00e9\u00c9\u0130\u00df\u1e9e\ufb01\u0301\u0323\u03a3\u03c2\u4e2d\uac00\U0001f600"


def wordpiece(pieces: Iterable[str], **rules: bool) -> Tokenizer:
    data = "".join(f"{piece}\n" for piece in pieces).encode()
    return Tokenizer("wordpiece", data, "here", **rules)


def random_texts(count: int) -> list[str]:
    """Of letters, marks, controls, brackets and runs of spaces."""
    controls = "\x00\x01\x1c\x1f\x7f\x85\xa0\xad\u200b\u2028\u3000\ufeff\ufffd\t\n\r"
    numbers = random.Random(0)
    pool = [*(LETTERS * 4), *ACCENTED, *controls, *".,![]#'", *(" " * 12)]
    return ["".join(numbers.choices(pool, k=n % 40)) for n in range(count)]


def added(number: int, content: str, **settings: bool) -> dict[str, Any]:
    """An added token of a tokenizer.json."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": number, "content": content} | flags | settings


def put(content: Any, keys: list, value: Any) -> None:
    """Sets a value of nested JSON."""
    for key in keys[:-1]:
        content = content[key]
    content[keys[-1]] = value
