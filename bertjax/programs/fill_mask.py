"""Prints the words that a trained model puts in the place of [MASK]."""

from collections.abc import Sequence

from bertjax.inference.blanks import Guess, check_blanks, fill
from bertjax.runs.source import open_model


def run(model: str, texts: Sequence[str], top: int) -> list[list[list[Guess]]]:
    """Prints, and returns, the best guesses of `fill`; raises InputError also for no such model."""
    check_blanks(texts)
    guesses = fill(open_model(model), texts, top)
    for text, places in zip(texts, guesses, strict=True):
        print(text)
        for place in places:
            print("  " + "  ".join(f"{guess.token} {guess.probability:.1%}" for guess in place))
    return guesses
