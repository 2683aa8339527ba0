"""Pairs of texts with a gold number: formats, errors, correlations."""

import gzip

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from bertjax.base.errors import InputError
from bertjax.tasks.similarity.scored_pairs import ScoredPair, correlations, read_pairs

STS_B = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"


@pytest.mark.parametrize(
    ("form", "name", "text", "expected"),
    [
        ("", "a.csv", 'score,text,text_b\n1,"a, b",c\n', ("a, b", "c", 1, "")),
        ("", "a.tsv", "text\ttext_b\tscore\tsource\na\tb\t-2e1\tnews\n", ("a", "b", -20, "news")),
        ("", "a.jsonl", '{"text": "a", "text_b": "b", "score": 3}\n', ("a", "b", 3, "")),
        ("sts:", "a.tsv", 'MSRpar\t4.4\t"It\'s"\tb "c\n', ('"It\'s"', 'b "c', 4.4, "MSRpar")),
        ("sick:", "a.txt", SICK + "7\ta\tb\t3.7\tNEUTRAL\n\n", ("a", "b", 3.7, "")),
        ("sts-b:", "a.tsv", STS_B + '0\tg\tf\t2012\t1\t\tn\t"a\tb\t5.000\n', ('"a', "b", 5, "g")),
        ("benchmark:", "a.csv", "g\tf\t2012\t24\t2.5\ta\tb\n", ("a", "b", 2.5, "g")),
        ("benchmark:", "a.csv", "g\tf\t2012\t24\t2.5\ta\tb\tx\ty\n", ("a", "b", 2.5, "g")),
    ],
)
def test_formats(tmp_path, form, name, text, expected):
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    assert read_pairs(f"{form}{tmp_path}/{name}") == [ScoredPair(*expected)]


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("sts:", "s\t1\ta\tb\ns\t1\ta\n", "line 2: 3 columns, but the format .source, .* has 4"),
        ("benchmark:", "g\tf\ty\t1\t1\ta\n", "line 1: 6 columns, but the format .genre, .* has 9"),
        ("sts:", "s\tx\ta\tb\n", "line 1: 'score' is 'x', not a number"),
        ("sts:", "s\tnan\ta\tb\n", "line 1: 'score' is 'nan', not a number"),
        ("sts:", "s\t1_0\ta\tb\n", "line 1: 'score' is '1_0', not a number"),
        ("sts:", "s\t1\ta\t \n", "line 1: 'sentence2' is empty"),
        ("sick:", "text\ttext_b\tscore\na\tb\t1\n", "line 2: no column 'relatedness_score'"),
        ("sick:", SICK, "a.tsv: no row in it"),
        ("sick:", "", "a.tsv: no row in it"),
        ("", "text\tscore\na\t1\n", "line 2: no column 'text_b'"),
        ("other:", "", "^other:.*a.tsv: no such file: name one, or FORMAT:FILE .sts, sick, sts-b"),
    ],
)
def test_errors_name_the_place(tmp_path, form, text, message):
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_pairs(f"{form}{tmp_path}/a.tsv")


def test_correlations_with_ties_and_by_source(capsys):
    rng = np.random.default_rng(0)
    sources = rng.choice(["news", "MSRpar", ""], 41)
    gold = rng.integers(0, 6, 41) / 2
    guess = (gold + rng.normal(size=41)).round()
    pairs = [ScoredPair("a", "b", *each) for each in zip(gold, sources.tolist(), strict=True)]
    found = correlations(pairs, guess)
    assert list(found) == [
        f"{n}{s}" for s in ("", "_MSRpar", "_news") for n in ("spearman", "pearson")
    ]
    for name, rows in (("", sources == sources), *((f"_{s}", sources == s) for s in set(sources))):
        if name != "_":
            spearman, pearson = (
                f(gold[rows], guess[rows]).statistic for f in (spearmanr, pearsonr)
            )
            assert found[f"spearman{name}"] == pytest.approx(100 * spearman)
            assert found[f"pearson{name}"] == pytest.approx(100 * pearson)
    assert capsys.readouterr().out == ""


def test_what_is_not_defined_is_zero_with_a_warning(capsys):
    pairs = [ScoredPair("a", "b", score, "x" if score < 3 else "y") for score in (1, 1, 3, 4)]
    found = correlations(pairs, np.array([0.5, 0.6, 0.6, 0.7]))
    assert (found["spearman_x"], found["pearson_x"]) == (0, 0)
    assert found["spearman_y"] == pytest.approx(100)
    output = capsys.readouterr().out
    assert output.startswith("warning: spearman_x and pearson_x are not defined, and count 0")
    assert output.count("\n") == 1
    assert set(correlations(pairs, np.full(4, 0.5)).values()) == {0}


def test_published_files(shared_data):
    def count(source):
        name, _, path = source.rpartition(":")
        return len(read_pairs(f"{name}:{shared_data}/{path}"))

    years = {2012: 2358, 2014: 3750, 2015: 3000, 2016: 1186}
    assert {year: count(f"sts:sts/sts{year}.test.tsv") for year in years} == years
    assert count("sick:sick/SICK_test_annotated.txt") == 4927
    assert count("sts-b:glue/STS-B/dev.tsv") == 1500
    assert count("benchmark:glue/STS-B/sts-test.tsv") == 1379
