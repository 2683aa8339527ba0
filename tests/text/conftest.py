"""What the tests of several kinds of vocabularies share."""

from pathlib import Path

import pytest

from bertjax.text.vocabulary import learn
from tests.text.small_vocabularies import CHAIRS


@pytest.fixture(scope="session")
def model_file(tmp_path_factory) -> Path:
    """A small model of SentencePiece; do not write into it."""
    path = tmp_path_factory.mktemp("model") / "learned.model"
    learn("sentencepiece", CHAIRS, path, size=80, cased=True)
    return path
