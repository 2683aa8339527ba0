"""The Cranfield collection as a folder of BEIR."""

import sys

import pytest

from bertjax.base.errors import InputError
from bertjax.tasks.similarity.retrieval import read_retrieval
from tests.benchmarks import cranfield

DOCUMENTS = """.I 1
.T
wings in a
slipstream .
.A
brenckman,m.
.B
j. 25, 1958 .
.W
wings in a
slipstream .
.W
  a study .
.I 2
.T
.A
.B
.W
.I 3
.T
other title
.A
.B
.W
text
"""
QUERIES = ".I 004\n.W\nwhat heat\nconduction .\n.I 365\n.W\nwhich lift .\n.I 366\n.W\nno .\n"


def write(folder, judgements):
    (folder / "cran.all.1400").write_text(DOCUMENTS)
    (folder / "cran.qry").write_text(QUERIES)
    (folder / "cranqrel").write_text(judgements)


def test_a_small_collection(tmp_path, monkeypatch):
    write(tmp_path, "1 3 1\n1 2 4 \n2 1 -1\n2 3 3\n")
    monkeypatch.setattr(cranfield, "QUERIES", 2)
    output = tmp_path / "beir"
    arguments = ["cranfield.py", f"--source={tmp_path}", f"--output={output}"]
    monkeypatch.setattr(sys, "argv", arguments)
    cranfield.main()
    found = read_retrieval(f"{output}:test")
    assert found.documents == {
        "1": "wings in a slipstream . a study .",
        "2": "",
        "3": "other title text",
    }
    assert found.queries == {"q1": "what heat conduction .", "q2": "which lift ."}
    assert found.judgements == {"q1": {"3": 4, "2": 1}, "q2": {"1": 0, "3": 2}}


def test_an_unknown_code(tmp_path):
    write(tmp_path, "1 3 1\n1 2 6\n")
    with pytest.raises(InputError, match="cranqrel line 2: unknown code '6'"):
        cranfield.convert(tmp_path, tmp_path / "beir")
    assert not (tmp_path / "beir").exists()


def test_the_collection(shared_data, tmp_path):
    cranfield.convert(shared_data / "retrieval" / "cranfield", tmp_path / "beir")
    found = read_retrieval(str(tmp_path / "beir"))
    assert (len(found.documents), len(found.queries)) == (1400, 225)
    assert [name for name, text in found.documents.items() if not text] == ["471", "995"]
    assert found.queries["q3"].startswith("what problems of heat conduction")  # its number is 004
    grades = [grade for judged in found.judgements.values() for grade in judged.values()]
    assert [grades.count(grade) for grade in (4, 3, 2, 1, 0)] == [128, 387, 734, 363, 225]
    assert all(max(judged.values()) > 0 for judged in found.judgements.values())
