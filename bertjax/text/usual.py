"""How a vocabulary splits the text that it is for, and whether it splits other text more."""

from typing import NamedTuple

_MORE_PIECES = 1.5  # times the pieces a word
_MANY_UNKNOWN, _MORE_UNKNOWN = 0.01, 10.0  # a share of the pieces, and times the usual share


class Usual(NamedTuple):
    """Shares of a text's pieces: those that continue a word, and those for unknown text."""

    split: float
    unknown: float

    @property
    def pieces_a_word(self) -> float:
        """How many pieces a word has in the mean."""
        return 1 / max(1 - self.split, 1e-9)

    def difference(self, found: "Usual") -> str:
        """Says how another text has far more pieces, or more that are unknown; "" if it has not."""
        if found.pieces_a_word > _MORE_PIECES * self.pieces_a_word:
            return (
                f"{found.pieces_a_word:.2f} pieces a word, where the text of the vocabulary has "
                f"{self.pieces_a_word:.2f}"
            )
        if found.unknown > max(_MANY_UNKNOWN, _MORE_UNKNOWN * self.unknown):
            return (
                f"{found.unknown:.1%} of the pieces are unknown, where the text of the vocabulary "
                f"has {self.unknown:.2%}"
            )
        return ""
