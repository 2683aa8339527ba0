"""Compares a model's vectors of one word in different texts, which depend on the context."""

import string
from collections.abc import Sequence

import numpy as np

from bertjax.base import figures
from bertjax.base.checks import check_output
from bertjax.base.errors import InputError
from bertjax.base.progress import Progress
from bertjax.inference.features.compute import Extractor, Options
from bertjax.inference.features.texts import WORDS
from bertjax.runs.source import open_model


def run(model: str, word: str, texts: Sequence[str], output: str) -> np.ndarray:
    """Prints and draws the cosines between the vectors of a word, at its first place in each text.

    The vectors come from the last layer. The mean over all words of all texts is subtracted: all
    vectors have it in common, and it would make them all similar. Adjacent punctuation and upper
    case of words do not matter.

    Returns:
      The cosines, float32 [texts, texts].

    Raises:
      InputError: the model is missing; a text lacks the word or is too long.
    """
    check_output(output, ".png")
    if len(texts) < 2:
        raise InputError("--text: give it at least twice, because texts are compared")
    places = [_place(word, text) for text in texts]
    pretrained = open_model(model)
    print(pretrained.summary())
    extractor = Extractor(pretrained, Options(features=WORDS))
    encoded = list(extractor.encoder.encode(texts, pairs=False))
    for text, each in zip(texts, encoded, strict=True):
        extractor.check(each, repr(text))
    with Progress("Features", len(texts), " texts") as progress:
        vectors = extractor.vectors(encoded, progress)
    cosines = _cosines(vectors, places)
    for row, text in zip(cosines, texts, strict=True):
        print(" ".join(f"{cosine:5.2f}" for cosine in row), "", text)
    _draw(cosines, word, texts, output)
    return cosines


def _place(word: str, text: str) -> int:
    """The index of the word's first occurrence among the words of a text."""
    words = [each.strip(string.punctuation).casefold() for each in text.split()]
    if word.casefold() not in words:
        raise InputError(f"no {word!r} in {text!r}: every --text must have the word")
    return words.index(word.casefold())


def _cosines(vectors: Sequence[np.ndarray], places: Sequence[int]) -> np.ndarray:
    mean = np.concatenate(vectors).mean(0)
    chosen = np.stack([each[place] - mean for each, place in zip(vectors, places, strict=True)])
    chosen /= np.linalg.norm(chosen, axis=-1, keepdims=True)
    return chosen @ chosen.T


def _draw(cosines: np.ndarray, word: str, texts: Sequence[str], output: str) -> None:
    count = len(texts)
    numbers = [str(number) for number in range(1, count + 1)]
    size = 2.5 + 0.08 * max(map(len, texts)) + 0.6 * count, 1 + 0.6 * count  # inches
    with figures.png(output, figsize=size) as figure:
        plot = figure.subplots()
        image = plot.imshow(cosines, vmin=-1, vmax=1, cmap="RdBu_r")
        plot.set_xticks(range(count), numbers)
        labels = [f"{text}  {number}" for text, number in zip(texts, numbers, strict=True)]
        plot.set_yticks(range(count), labels)
        for (row, column), cosine in np.ndenumerate(cosines):
            color = "white" if abs(cosine) > 0.6 else "black"
            plot.text(column, row, f"{cosine:.2f}", ha="center", va="center", color=color)
        plot.set_title(f"“{word}”: cosine of its vectors in these texts")
        figure.colorbar(image)
