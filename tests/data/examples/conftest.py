"""Stores for the tests of examples."""

import numpy as np
import pytest

from tests.data.examples.places import Corpus, some_documents


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Two sources, 0.7 and 0.3, with documents of every kind; held-out documents too."""
    rng = np.random.default_rng(11)
    return Corpus(
        tmp_path_factory.mktemp("places") / "corpus",
        [
            ("a", 0.7, some_documents(rng, 150), some_documents(rng, 20)),
            ("b", 0.3, some_documents(rng, 60), some_documents(rng, 9)),
        ],
    )


@pytest.fixture(scope="session")
def long_documents(tmp_path_factory):
    """One source of long documents with sentences of 3 to 29 tokens."""
    rng = np.random.default_rng(12)
    documents = [rng.integers(3, 30, rng.integers(150, 300)).tolist() for _ in range(40)]
    folder = tmp_path_factory.mktemp("long") / "corpus"
    return Corpus(folder, [("long", None, documents, documents[:4])], continues_word=0.3)


@pytest.fixture(scope="session")
def short_documents(tmp_path_factory):
    """One source of documents of one to five sentences of 3 to 59 tokens, 40 % of them of one."""
    rng = np.random.default_rng(13)
    counts = np.where(rng.random(2000) < 0.4, 1, rng.integers(2, 6, 2000))
    documents = [rng.integers(3, 60, count).tolist() for count in counts]
    folder = tmp_path_factory.mktemp("short") / "corpus"
    return Corpus(folder, [("short", None, documents, documents[:4])])
