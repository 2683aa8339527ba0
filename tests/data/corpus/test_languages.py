"""Sources of several languages: their codes, their shares, and a store of one of them."""

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus.languages import language_shares, split_language, table
from bertjax.data.corpus.sources import parse_sources
from bertjax.data.corpus.store import TokenStore
from bertjax.programs import prepare
from bertjax.text.tokenizer import Tokenizer


def test_a_source_may_name_its_language():
    assert split_language("sw=text:a/*.txt") == ("sw", "text:a/*.txt")
    assert split_language("zh-Hant=jsonl:x=y#text") == ("zh-Hant", "jsonl:x=y#text")
    assert split_language("text:sw=a.txt") == ("", "text:sw=a.txt")
    with pytest.raises(InputError, match="text:b names no language but another does"):
        parse_sources(["sw=text:a", "text:b"])


def test_the_shares_of_languages():
    """Two English sources of 60 and 30, and 10 of Swahili: 0.9^a next to 0.1^a (section 3.1)."""
    languages_and_tokens = ["en", "sw", "en"], [60, 10, 30]
    assert language_shares(*languages_and_tokens, 1.0) == pytest.approx([0.6, 0.1, 0.3])
    english = 0.9**0.5 / (0.9**0.5 + 0.1**0.5)
    expected = [english * 2 / 3, 1 - english, english / 3]
    assert language_shares(*languages_and_tokens, 0.5) == pytest.approx(expected)
    assert table(*languages_and_tokens, expected).splitlines()[1:] == [
        "en                    90.0%                   75.0%",
        "sw                    10.0%                   25.0%",
    ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A corpus of 200 English and 20 Swahili documents, and the folder of its texts."""
    folder = tmp_path_factory.mktemp("languages")
    for name, syllables, documents in (
        ("en", "the cat dog run see", 200),
        ("sw", "pa ka mwo na", 20),
    ):
        random = np.random.default_rng(0)
        words = ["".join(random.choice(syllables.split(), 3)) for _ in range(60)]
        texts = [" ".join(random.choice(words, 12)) + "." for _ in range(documents)]
        (folder / f"{name}.txt").write_text("\n\n".join(texts))
    sources = [f"{name}=text:{folder}/{name}.txt" for name in ("en", "sw")]
    options = dict(learn_vocabulary=120, held_out=0.2, workers=1)
    prepare.run(sources, folder / "corpus", **options, language_alpha=0.5)
    return folder


def test_a_store_draws_by_language(corpus):
    store, drawn = (TokenStore.open(corpus / "corpus", alpha=alpha) for alpha in (1.0, 0.3))
    assert store.languages == drawn.languages == ("en", "sw")
    en, sw = (source.tokens for source in store.sources)
    assert en + sw == store.token_count and en > 5 * sw
    assert [s.share for s in store.sources] == pytest.approx([en / (en + sw), sw / (en + sw)])
    assert [s.share for s in drawn.sources] == pytest.approx(
        [en**0.3, sw**0.3] / (en**0.3 + np.float64(sw**0.3))
    )
    assert store.identity != drawn.identity
    assert drawn.table_of_languages().splitlines()[2].startswith("sw ")
    swahili = drawn.of_language("sw")
    assert [(s.share, s.tokens) for s in swahili.sources] == [(1.0, sw)]
    assert len({swahili.identity, drawn.identity, drawn.of_language("en").identity}) == 3
    with pytest.raises(InputError, match="has a weight, and language_alpha=0.3"):
        TokenStore.open([f"{corpus}/corpus@2"], alpha=0.3)


def test_small_languages_count_for_more_in_the_vocabulary(corpus, tmp_path, capsys):
    sources = [f"{name}=text:{corpus}/{name}.txt" for name in ("en", "sw")]
    options = dict(learn_vocabulary=120, held_out=0.2, workers=1)
    prepare.run(sources, tmp_path / "plain", **options)
    prepare.run(sources, tmp_path / "even", **options, language_alpha=0.1)
    assert "share of what is drawn" in capsys.readouterr().out

    def pieces(folder):
        text = (corpus / "sw.txt").read_text()
        return len(Tokenizer.open(folder).encode([text])[0])

    assert pieces(tmp_path / "even") < pieces(tmp_path / "plain")
    with pytest.raises(InputError, match="names no language: write sw=text"):
        plain = [f"text:{corpus}/sw.txt"]
        prepare.run(plain, tmp_path / "none", **options, language_alpha=0.5)
    with pytest.raises(InputError, match=r"--language_alpha=1.5: must be in \(0, 1\]"):
        prepare.run(sources, tmp_path / "none", **options, language_alpha=1.5)
