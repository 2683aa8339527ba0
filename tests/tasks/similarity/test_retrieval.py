"""Collections of retrieval: BEIR's form, TREC's form, and what is wrong with a file."""

import gzip
import json
import lzma

import pytest

from bertjax.base.errors import InputError
from bertjax.tasks.similarity.retrieval import read_retrieval

CORPUS = [
    {"_id": "d1", "title": "Tides", "text": " rise twice "},
    {"_id": "d2", "title": "", "text": "Wind é"},
    {"_id": "d3", "text": "Rain"},
    {"_id": "4", "title": "", "text": ""},
]
QUERIES = [
    {"_id": "q2", "text": "when? "},
    {"_id": "q1", "text": "why?"},
    {"_id": "q0", "text": "x"},
]
HEAD = "query-id\tcorpus-id\tscore\n"
QRELS = HEAD + "q1\td3\t2\nq2\td1\t-1\nq1\t4\t0\n"


def write(folder, corpus=CORPUS, queries=QUERIES, qrels=QRELS, split="test.tsv"):
    (folder / "qrels").mkdir(exist_ok=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)
    (folder / "qrels" / split).write_text(qrels)
    return str(folder)


def test_a_folder_of_beir(tmp_path, capsys):
    found = read_retrieval(write(tmp_path))
    assert found.documents == {"d1": "Tides  rise twice", "d2": "Wind é", "d3": "Rain", "4": ""}
    assert list(found.queries.items()) == [("q2", "when?"), ("q1", "why?")]
    assert found.judgements == {"q1": {"d3": 2, "4": 0}, "q2": {"d1": -1}}
    assert capsys.readouterr().out == (
        f"{tmp_path}: 1 of 3 queries have no judgement in 'test': they are not searched\n"
        f"{tmp_path}: 1 of 4 documents are empty\n"
    )


def test_the_split_is_chosen_and_files_may_be_compressed(tmp_path):
    write(tmp_path)
    (tmp_path / "qrels" / "dev.tsv.gz").write_bytes(gzip.compress((HEAD + "q1\td3\t2\n").encode()))
    for name in ("corpus", "queries"):
        path = tmp_path / f"{name}.jsonl"
        path.with_suffix(".jsonl.xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()
    assert read_retrieval(f"{tmp_path}:dev").judgements == {"q1": {"d3": 2}}
    assert read_retrieval(f"{tmp_path}:test").judgements.keys() == {"q1", "q2"}
    colon = tmp_path / "a:b"
    colon.mkdir()
    write(colon)
    assert len(read_retrieval(str(colon)).queries) == 2


def test_files_of_the_user_with_judgements_of_trec(tmp_path):
    (tmp_path / "documents.tsv").write_text('id\ttext\ttitle\nA\tsay "a"\tT\nB\tb\t\nC\tc\td\n')
    (tmp_path / "queries.csv").write_text('id;text\n7;"one; two"\n')
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "2019.txt").write_text("7 0  B 3\n\n7\tQ0\tA\t-2\n7 0 B 3\n")
    found = read_retrieval(f"{tmp_path}:2019")
    assert found.documents == {"A": 'T say "a"', "B": "b", "C": "d c"}
    assert (found.queries, found.judgements) == ({"7": "one; two"}, {"7": {"B": 3, "A": -2}})


def test_what_published_collections_have(tmp_path, capsys):
    """Grades with a point, a judged document that is not there, a document that is a query."""
    documents = [*CORPUS, {"_id": "q1", "text": "why?"}]
    judgements = HEAD + "q1\td3\t2.0\nq1\td9\t1\nq2\td1\t1e0\n"
    found = read_retrieval(write(tmp_path, documents, QUERIES[:2], judgements))
    assert found.judgements == {"q1": {"d3": 2, "d9": 1}, "q2": {"d1": 1}}
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}: 1 of 3 judgements are of documents that are not there, such as 'd9': the "
        "relevant ones count as not found",
        f"{tmp_path}: 1 of 5 documents are empty",
        f"{tmp_path}: 1 of 2 queries have the id of a document, which is not counted as found, "
        "unless it is judged relevant",
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"qrels": HEAD + "q1\td9\t1\n"},
            "no judged document is among the documents .'d9' is not.: take texts",
        ),
        ({"qrels": HEAD + "q9\td3\t1\n"}, "test.tsv line 2: 'q9' is not among the queries"),
        ({"qrels": HEAD + "q1\td3\t1.5\n"}, "test.tsv line 2: the grade '1.5' is not a whole num"),
        ({"qrels": HEAD + "q1\td3\t1_0\n"}, "the grade '1_0' is not a whole number"),
        ({"qrels": HEAD + f"q1\td3\t{'9' * 5000}\n"}, "the grade '9{79} is not a whole number"),
        ({"qrels": HEAD + "q1\td3\n"}, "test.tsv line 2: 2 columns, but the first line has 3"),
        ({"qrels": HEAD + "q1\td3\t\n"}, "test.tsv line 2: 'score' is empty"),
        (
            {"qrels": HEAD + "q1\td3\t1\nq1\td3\t0\n"},
            "line 3: .*'q1'.*'d3' have the grade 0, but 1",
        ),
        ({"qrels": "q1\td3\t1\nq1\td1\t1\n"}, "test.tsv line 2: no column 'query-id'"),
        ({"qrels": HEAD}, "no judgement in the split 'test'"),
        (
            {"qrels": "q1 d3 1\n", "split": "test.txt"},
            "test.txt line 1: 3 columns, but TREC's form",
        ),
        ({"split": "dev.tsv"}, "qrels: no test.tsv or test.txt in it"),
        ({"corpus": [*CORPUS, CORPUS[1]]}, "corpus.jsonl line 5: '_id' is 'd2', as in an earlier"),
        (
            {"queries": [QUERIES[1]] * 2},
            "queries.jsonl line 2: '_id' is 'q1', as in an earlier row",
        ),
        ({"queries": [{"_id": "q1", "text": " "}]}, "queries.jsonl line 1: 'text' is empty"),
        ({"corpus": [{"_id": "d3"}]}, "corpus.jsonl line 1: no column 'text'"),
        ({"corpus": [{"_id": "d3", "text": None}]}, "line 1: 'text' is None, not a text"),
        ({"corpus": [{"_id": "d3", "title": 3, "text": ""}]}, "line 1: 'title' is 3, not a text"),
        ({"corpus": [{"text": "a"}]}, "corpus.jsonl line 1: no column 'id'"),
    ],
)
def test_errors_name_the_place(tmp_path, changed, message):
    with pytest.raises(InputError, match=message):
        read_retrieval(write(tmp_path, **changed))


def test_errors_of_the_source(tmp_path):
    with pytest.raises(
        InputError, match="nowhere: no such folder: name the folder that has corpus"
    ):
        read_retrieval(f"{tmp_path}/nowhere")
    for source in (f"{tmp_path}:", ":test"):
        with pytest.raises(InputError, match="write FOLDER:SPLIT"):
            read_retrieval(source)
    with pytest.raises(InputError, match="mount the bucket"):
        read_retrieval("gs://bucket/scifact:test")
