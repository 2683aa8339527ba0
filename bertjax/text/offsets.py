"""Corrects the libraries' offsets, the places of pieces in their text."""

import unicodedata

import numpy as np


def after_marks(text: str) -> np.ndarray:
    """For each place, the first one from there that is no combining mark: int32 [len(text) + 1]."""
    places = np.arange(len(text) + 1, dtype=np.int32)
    marks = [unicodedata.category(character) == "Mn" for character in text]
    places[:-1][marks] = len(text)
    return np.minimum.accumulate(places[::-1])[::-1]


def without_white_space(text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Spans without the white space at their borders, int32 [N, 2], from ascending ones [N]."""
    places = np.arange(len(text) + 1, dtype=np.int32)
    space = np.array([character.isspace() for character in text], bool)
    end_of, start_of = places.copy(), places.copy()  # without the white space on that side
    end_of[1:][space] = 0
    start_of[:-1][space] = len(text)
    ends = np.maximum.accumulate(end_of)[ends]
    starts = np.minimum.accumulate(start_of[::-1])[::-1][starts]
    return np.stack([np.minimum(starts, ends), ends], axis=1)
