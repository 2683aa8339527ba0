"""The words of a text as numbers, and its n-grams, however it is written and punctuated."""

import hashlib
import unicodedata

import numpy as np

_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no bit is lost
_MOST_WORDS = 1 << 20  # in the memory of the hashes


class _Letters(dict[int, int | str]):
    """Keeps letters, marks and digits; each Chinese or Japanese character is a word."""

    def __missing__(self, code: int) -> int | str:
        character = chr(code)
        value: int | str = code if unicodedata.category(character)[0] in "LMN" else " "
        if unicodedata.name(character, "").startswith(("CJK UNIFIED", "HIRAGANA", "KATAKANA")):
            value = f" {character} "
        self[code] = value
        return value


class _Hashes(dict[str, int]):
    """The hash of each word, of 64 bits."""

    def __missing__(self, word: str) -> int:
        if len(self) >= _MOST_WORDS:
            self.clear()
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = value = int.from_bytes(digest, "big")
        return value


_letters, _hashes = _Letters(), _Hashes()


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation and symbols."""
    return unicodedata.normalize("NFKC", text.lower()).translate(_letters).split()


def word_hashes(words: list[str]) -> np.ndarray:
    """uint64 [W], the hash of each word."""
    return np.fromiter(map(_hashes.__getitem__, words), np.uint64, len(words))


def ngram_hashes(numbers: np.ndarray, n: int) -> np.ndarray:
    """The hash of each n consecutive numbers: uint64 [..., W] -> [..., W - n + 1]."""
    count = max(0, numbers.shape[-1] - n + 1)
    result = np.zeros((*numbers.shape[:-1], count), np.uint64)
    for place in range(n):
        result = result * _FACTOR + numbers[..., place : place + count]
    return result
