"""The vocabulary of the small models, and a way to make them."""

from functools import partial

import pytest
from small_models import PIECES, small_model


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory):
    """A vocab.txt of real words."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    return path


@pytest.fixture
def make_pretrained(vocabulary):
    """`small_models.small_model` over that vocabulary."""
    return partial(small_model, vocabulary)
