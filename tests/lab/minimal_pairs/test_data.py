"""Files of minimal pairs: BLiMP's, BabyLM's, and agreement items; and their errors."""

import json
import lzma

import pytest

from bertjax.base.errors import InputError
from bertjax.lab.minimal_pairs.data import read_pairs
from bertjax.lab.minimal_pairs.pairs import Pair

COLUMNS = "type\tn_attr\tclass\tform\tlen_prefix\tsent\n"


def line(good: str, bad: str, **more) -> str:
    return json.dumps({"sentence_good": good, "sentence_bad": bad, **more}) + "\n"


def paradigm(uid: str, pairs: int, term: str = "t", field: str = "f") -> str:
    names = {"UID": uid, "linguistics_term": term, "field": field}
    return "".join(line(f"{uid} {n} yes", f"{uid} {n} no", **names) for n in range(pairs))


@pytest.fixture
def folder(tmp_path):
    """Two paradigms of BLiMP in a compressed file, a supplement of BabyLM, and another file."""
    (tmp_path / "b.jsonl.xz").write_bytes(
        lzma.compress((paradigm("one", 3) + "\n" + paradigm("two", 2, "s-selection")).encode())
    )
    (tmp_path / "a.tricky.jsonl").write_text(line("A: Who?\nB: Me.", "A: Who?\nB: Tea.", row=7))
    (tmp_path / "README.txt").write_text("no pairs\n")
    return tmp_path


def test_a_folder(folder):
    pairs = read_pairs(str(folder))
    assert [pair.uid for pair in pairs] == ["a.tricky", "one", "one", "one", "two", "two"]
    where = f"{folder}/a.tricky.jsonl line 1"
    assert pairs[0] == Pair("A: Who?\nB: Me.", "A: Who?\nB: Tea.", "a.tricky", "", "", where)
    where = f"{folder}/b.jsonl.xz line 6"  # after an empty line
    assert pairs[-1] == Pair("two 1 yes", "two 1 no", "two", "argument_structure", "f", where)


def test_several_files_and_the_first_pairs(folder):
    names = [folder / "b.jsonl", folder / "a.tricky.jsonl"]  # the first is compressed
    pairs = read_pairs(", ".join(map(str, names)), most=2)
    assert [pair.good[:5] for pair in pairs] == ["one 0", "one 1", "two 0", "two 1", "A: Wh"]
    (folder / "c.csv").write_text("sentence_good,sentence_bad,UID\na,b,one\nc,d,\n")
    pairs = read_pairs(f"{folder / 'b.jsonl.xz'},{folder / 'c.csv'}", most=3)
    assert [pair.uid for pair in pairs] == ["one", "one", "one", "two", "two", "c"]


def test_agreement_items(tmp_path):
    """Quotes are those of CSV; the word at `len_prefix` is replaced in both sentences."""
    sentence = '"The "" toys "" near it smile . <eos>"'
    (tmp_path / "generated.tab").write_text(
        f"{COLUMNS}original\t0\tcorrect\tsmile\t6\t{sentence}\n"
        f"original\t0\twrong\tsmiles\t6\t{sentence}\n"
        "generated\t1\tcorrect\twas\t0\tX big\ngenerated\t1\twrong\twere\t0\tX big\n"
    )
    first, second = read_pairs(str(tmp_path))
    assert first[:2] == ('The " toys " near it smile .', 'The " toys " near it smiles .')
    assert first[2:5] == ("agreement_original", "attractors_0", "")
    assert first.where == f"{tmp_path}/generated.tab line 2"
    assert second[:4] == ("was big", "were big", "agreement_generated", "attractors_1")


@pytest.mark.parametrize(
    "text, message",
    [
        (line("a", "b") + '{"good": "a"}\n', "line 2: no column 'sentence_good'; it has 'good'"),
        (line("a", ""), "line 1: 'sentence_bad' is empty"),
        (line(" \n", "b"), "line 1: 'sentence_good' is empty"),
        (line("a", 7), "line 1: 'sentence_bad' is 7, not a text"),
        (line("a", "b", UID=["x"]), r"line 1: 'UID' is \['x'\], not a text"),
        ("sentence\n", "line 1: not JSON"),
        ("\n\n", "no pair in it: name a file"),
    ],
)
def test_files_that_are_no_pairs(tmp_path, text, message):
    (tmp_path / "pairs.jsonl").write_text(text)
    with pytest.raises(InputError, match=f"pairs.jsonl.*{message}"):
        read_pairs(str(tmp_path / "pairs.jsonl"))


GOOD, BAD = "o\t0\tcorrect\tis\t1\tIt X\n", "o\t0\twrong\tare\t1\tIt X\n"


@pytest.mark.parametrize(
    "rows, message",
    [
        (GOOD, "line 2: the last item has no second line"),
        (GOOD + BAD + BAD + GOOD, "line 4: 'class' is 'wrong', not 'correct'"),
        (GOOD + GOOD, "line 3: 'class' is 'correct', not 'wrong'"),
        (GOOD + BAD.replace("It", "He"), "line 3: 'sent' is not that of the line before"),
        (GOOD + BAD.replace("\t1\t", "\t0\t"), "line 3: 'len_prefix' is not that of the line"),
        ((GOOD + BAD).replace("\t1\t", "\t2\t"), "line 2: 'len_prefix' is '2', not one of 0 to 1"),
        (GOOD + BAD.replace("are", ""), "line 3: 'form' is empty"),
        (GOOD + BAD.replace("\tare", ""), "line 3: 5 columns, but the first line has 6"),
    ],
)
def test_items_that_are_no_pairs(tmp_path, rows, message):
    (tmp_path / "items.tab").write_text(COLUMNS + rows)
    with pytest.raises(InputError, match=f"items.tab {message}"):
        read_pairs(str(tmp_path / "items.tab"))


def test_a_table_without_the_columns_of_items(tmp_path):
    (tmp_path / "items.tab").write_text("sentence\tclass\na\tcorrect\nb\twrong\n")
    with pytest.raises(InputError, match="items.tab line 2: no column 'sent'; it has 'sentence'"):
        read_pairs(str(tmp_path / "items.tab"))


def test_no_files(folder):
    (folder / "empty").mkdir()
    for data, message in (
        (" , ", "names no file"),
        (folder / "nowhere.jsonl", "no file or folder .*nowhere.jsonl: check the name"),
        (folder / "empty", "empty: no file of pairs in it: their names end in .csv"),
        (folder / "README.txt", "README.txt: must end in .*.jsonl.*.tab"),
    ):
        with pytest.raises(InputError, match=message):
            read_pairs(str(data))
