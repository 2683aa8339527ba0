"""Turns the Cranfield collection of SMART into a folder of BEIR, for `bertjax.tasks.similarity`.

  python tests/benchmarks/cranfield.py --source=DIR --output=FOLDER

DIR has cran.all.1400, cran.qry and cranqrel, perhaps compressed. The texts are as follows.

* The judgements number the queries by their order, 1 to 225, not by the number after `.I`. Here
  they are q1 to q225, because the document with a query's number is not the query.
* A document's text repeats its title, which stands only in the title here. Documents 471 and 995
  are empty and stay, because 995 is judged.
* Copies of the collection have further documents and queries at the end of their files, without a
  judgement. They are left out.

Cleverdon's codes count down: 1 is a complete answer, 2 highly relevant, 3 useful, 4 of minimum
interest, and 5 not relevant. (The package ir_datasets describes them the other way round; but the
lower the code of documents, the better a search for the words of the query ranks them.) The grades
are 5 - code. The code -1, which the collection does not explain, is the grade 0: trec_eval, too,
takes it as not relevant. Each query has it for one document, which is often the nearest by words:
it may be the paper from which the query was made.
"""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

from bertjax.base.errors import InputError
from bertjax.base.files import new_folder
from bertjax.tasks import official_files

DOCUMENTS, QUERIES = 1400, 225
_GRADES = {"1": 4, "2": 3, "3": 2, "4": 1, "5": 0, "-1": 0}
_NUMBER = re.compile(r"\.I (\d+)")
_FIELD = re.compile(r"\.[TABW]")


def records(folder: Path, name: str) -> Iterator[dict[str, str]]:
    """Yields the records of a file: ".I" -> number, ".T" -> title, ".W" -> text, and others."""
    record: dict[str, list[str]] = {}
    for line in official_files.lines(folder, name):
        if number := _NUMBER.fullmatch(line):
            if record:
                yield {field: " ".join(words) for field, words in record.items()}
            record, field = {".I": [number[1]]}, ".I"
        elif _FIELD.fullmatch(line):
            field = line
        else:
            record.setdefault(field, []).extend(line.split())
    yield {field: " ".join(words) for field, words in record.items()}


def convert(source: Path, output: Path) -> None:
    """Writes corpus.jsonl, queries.jsonl and qrels/test.tsv into a new folder."""
    documents = []
    for record in records(source, "cran.all.1400"):
        title, text = record.get(".T", ""), record.get(".W", "")
        text = text.removeprefix(title).strip()
        documents.append({"_id": record[".I"], "title": title, "text": text})
    queries = [
        {"_id": f"q{number}", "text": record[".W"]}
        for number, record in enumerate(records(source, "cran.qry"), start=1)
    ]
    judgements = ["query-id\tcorpus-id\tscore"]
    for number, line in enumerate(official_files.lines(source, "cranqrel"), start=1):
        query, document, code = line.split()
        if code not in _GRADES:
            raise InputError(f"{source}/cranqrel line {number}: unknown code {code!r}")
        judgements.append(f"q{query}\t{document}\t{_GRADES[code]}")
    with new_folder(output) as folder:
        (folder / "qrels").mkdir()
        (folder / "qrels" / "test.tsv").write_text("\n".join(judgements) + "\n")
        for name, rows in (("corpus", documents[:DOCUMENTS]), ("queries", queries[:QUERIES])):
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{name}.jsonl").write_text(lines)
    print(
        f"{len(documents)} documents, {len(queries)} queries, {len(judgements) - 1} judgements; "
        f"left out: {len(documents[DOCUMENTS:])} documents, {len(queries[QUERIES:])} queries"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, required=True, help="the folder of the collection")
    parser.add_argument("--output", type=Path, required=True, help="the folder to make")
    arguments = parser.parse_args()
    convert(arguments.source, arguments.output)


if __name__ == "__main__":
    main()
