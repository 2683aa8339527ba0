"""Says which texts are of one language and domain, by their frequent words.

  python tests/benchmarks/text_words.py CORPUS CORPUS ...

Each row is a text: of a band on file, or of a CORPUS folder that launch/prepare_corpus.py made.
Each column is a CORPUS. A cell says how much of the row's frequent words the column has, as the
verdict on a run measures it (`bertjax.corpus.frequencies.common_share`).
"""

import argparse
from collections.abc import Sequence

from bertjax.base.errors import InputError
from bertjax.corpus.frequencies import common_share, frequent_words, word_frequencies
from bertjax.corpus.store import TokenStore, open_tokenizer
from bertjax.runs.health import read_bands


def words_of(corpus: str) -> dict[str, float]:
    """The frequent words of a corpus folder.

    Raises:
      InputError: no corpus, or a damaged one.
    """
    tokenizer, store = open_tokenizer(corpus), TokenStore.open(corpus)
    return frequent_words(word_frequencies(store, tokenizer.special_ids), tokenizer)


def table(corpora: Sequence[str]) -> str:
    """The rows in Markdown, in percent."""
    columns = {name: words_of(name) for name in corpora}
    bands = {
        f"{band['text']}, {band['vocabulary_size']:,}": band["words"]
        for band in read_bands()["bands"]
    }
    lines = [["text", *columns], ["---"] * (1 + len(columns))]
    for name, words in (bands | columns).items():
        shares = (common_share(words, others) for others in columns.values())
        lines.append([name, *(f"{share:.1%}" for share in shares)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", nargs="+", metavar="CORPUS", help="a corpus folder")
    try:
        print(table(parser.parse_args().corpora))
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
