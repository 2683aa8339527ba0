"""TriviaQA: its files, the places of answers, its scores, and SQuAD from a model warmed up"""

import json
import os
import unicodedata

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.interop.hugging_face import read_hugging_face
from bertjax.programs import finetune
from bertjax.tasks.question_answering import Answer, Span, Spans
from bertjax.tasks.task import TRAIN
from bertjax.tasks.triviaqa import WORDS, TriviaQa, normalized
from tests.helpers import task_files
from tests.helpers.task_files import tiny_finetuning


def record(id_: str, *documents: str, aliases: tuple[str, ...] = (), **fields) -> dict:
    answer = {
        "Value": aliases[0] if aliases else "",
        "Aliases": list(aliases),
        "NormalizedAliases": [normalized(alias) for alias in aliases],
    }
    pages = [{"Filename": name, "DocSource": "TagMe"} for name in documents]
    question = {"QuestionId": id_, "Question": f"Question {id_}?", "EntityPages": pages}
    return question | ({"Answer": answer} if aliases else {}) | fields


def write(folder, documents: dict[str, str], train=(), dev=(), test=None):
    """Writes the official files, whose JSON has other fields, too."""
    evidence = folder / "evidence" / "wikipedia"
    evidence.mkdir(parents=True, exist_ok=True)
    (folder / "qa").mkdir(exist_ok=True)
    for name, text in documents.items():
        (evidence / name).parent.mkdir(exist_ok=True)
        (evidence / name).write_text(text, encoding="utf-8")
    splits = {"train": train, "dev": dev, "test-without-answers": test}
    for split, records in splits.items():
        if records is not None:
            value = {"Data": list(records), "Domain": "Wikipedia", "Version": 1.0}
            (folder / "qa" / f"wikipedia-{split}.json").write_text(json.dumps(value))
    return TriviaQa(str(folder))


# ------------------------------------------------------------------------------- the places


@pytest.mark.parametrize(
    "document, aliases, start, text",
    [
        ("In PARIS, paris.", ("Paris",), 3, "PARIS"),
        ("A concatenated Cat; a cat.", ("cat",), 15, "Cat"),  # not within a word
        ("cats catty 3cat cat", ("cat",), 16, "cat"),
        ("on Sunset Boulevard", ("Sunset", "Sunset Boulevard"), 3, "Sunset Boulevard"),
        ("Sunset, Boulevard", ("Boulevard", "Sunset"), 0, "Sunset"),  # the first in the text
        ("in New\n\n York\tCity", ("New  York",), 3, "New York"),  # any white space
        ("a Spider Man", ("Spider-Man",), 2, "Spider Man"),
        ("a spider\u2013man", ("Spider Man",), 2, "spider\u2013man"),
        ("Rock \u2019n\u2019 Roll", ("Rock 'n' Roll",), 0, "Rock \u2019n\u2019 Roll"),
        ("the U.S. is", ("US", "U.S."), 4, "U.S."),
        ("US$100 (one)", ("$100",), 2, "$100"),
        ("in C++.", ("C++",), 3, "C++"),
        # The small form of this capital is two characters, and the places are still right.
        ("\u0130\u0130 \u0130zmir \u00c9vora", ("\u00e9vora",), 9, "\u00c9vora"),
        ("\ufeffBeyonc\u00c9", ("beyonc\u00e9",), 0, "Beyonc\u00c9"),  # a byte order mark
        ("\u039f\u0394\u039f\u03a3", ("\u03bf\u03b4\u03bf\u03c2",), 0, "\u039f\u0394\u039f\u03a3"),
        ("The ? an A", ("The", "?", "A"), None, None),  # no words by the official rules
        ("Parisian", ("Paris",), None, None),
        ("x " * (WORDS - 1) + "Paris x", ("Paris",), 2 * WORDS - 2, "Paris"),
        ("x\n" * WORDS + "Paris", ("Paris",), None, None),
        ("x " * (WORDS - 1) + "New York", ("New York",), None, None),  # across the end
        ("x " * (WORDS - 1) + "New York", ("New York", "New"), 2 * WORDS - 2, "New"),
    ],
)
def test_the_place_of_an_answer(tmp_path, document, aliases, start, text):
    task = write(
        tmp_path,
        {"a.txt": document, "b.txt": "Rome"},
        train=[record("1", "a.txt", aliases=aliases), record("2", "b.txt", aliases=("Rome",))],
    )
    *found, other = task.read(TRAIN)
    assert (other.id, other.answers) == ("2", (Answer("Rome", 0),))
    assert [each.answers for each in found] == ([(Answer(text, start),)] if text else [])
    for each in found:
        assert each.context == " ".join(document.removeprefix("\ufeff").split()[:WORDS])
        assert each.context[start : start + len(text)] == text


def test_training_learns_from_documents_with_an_answer(tmp_path, capsys):
    documents = {"a.txt": "Rome.", "b.txt": "Rom", "c.txt": "In Rome", "d.txt": "\n"}
    task = write(
        tmp_path,
        documents,
        train=[
            record("1", "a.txt", "b.txt", "c.txt", aliases=("Rome", "Roma")),
            record("2", "c.txt", "d.txt", aliases=("in", "Oslo")),
            record("3", aliases=("Oslo",)),
        ],
    )
    pairs = task.read(TRAIN)
    assert [(each.id, each.context, each.answers) for each in pairs] == [
        ("1", "Rome.", (Answer("Rome", 0),)),
        ("1", "In Rome", (Answer("Rome", 3),)),
        ("2", "In Rome", (Answer("In", 0),)),
    ]
    assert pairs[1].where == f"{tmp_path}/qa/wikipedia-train.json question 1 document c.txt"
    assert capsys.readouterr().out == (
        "TriviaQA-Wiki: 3 of 5 training documents have an answer in their first 400 words; the "
        "others are left out\n"
    )


def test_dev_and_test_have_every_document(tmp_path):
    dev = [
        record("1", "a.txt", "b.txt", "a.txt", aliases=("Oslo", "The Oslo")),
        record("2", "b.txt", "empty.txt", aliases=("Rome",)),
    ]
    dev[1]["Answer"]["HumanAnswers"] = ["The Eternal City"]
    documents = {"a.txt": "Rome.", "b.txt": "x " * 500, "empty.txt": " "}
    task = write(tmp_path, documents, dev=dev)
    assert task.test_splits == ()
    pairs = task.read("dev")
    assert [(each.id, each.context) for each in pairs] == [
        *(("1", "Rome."), ("1", " ".join("x" * 400)), ("2", " ".join("x" * 400))),
    ]
    assert [answer.text for answer in pairs[2].answers] == ["rome", "The Eternal City"]
    assert {answer.start for pair in pairs for answer in pair.answers} == {-1}
    task = write(tmp_path, documents, dev=dev, test=[record("3", "a.txt")])
    assert task.test_splits == ("test",)
    (asked,) = task.read("test")
    assert (asked.id, asked.question, asked.context) == ("3", "Question 3?", "Rome.")
    assert asked.answers == ()


def test_the_official_sample(shared_data, tmp_path):
    """A real question; its document is not there, so these sentences are ours."""
    text = (shared_data / "triviaqa" / "triviaqa_sample.json").read_text(encoding="utf-8")
    task = write(tmp_path, {"Andrew_Lloyd_Webber.txt": "He wrote\nsunset\nboulevard in 1993."})
    for split in ("train", "dev"):
        (tmp_path / "qa" / f"wikipedia-{split}.json").write_text(text, encoding="utf-8")
    (pair,) = task.read(TRAIN)
    assert (pair.id, pair.answers) == ("tc_33", (Answer("sunset boulevard", 9),))
    assert pair.question == "Which Lloyd Webber musical premiered in the US on 10th December 1993?"
    (asked,) = task.read("dev")
    assert [answer.text for answer in asked.answers] == [
        *("west sunset boulevard", "sunset blvd", "sunset boulevard", "sunset bulevard"),
    ]
    for answer, exact, f1 in [
        ("Sunset Blvd.", 100, 100),
        ("the_Sunset-Boulevard", 100, 100),
        ("Sunset", 0, 100 * 2 / 3),
    ]:
        scores = task.score([asked], [spans((answer, 1.0))], {})
        assert scores == pytest.approx({"exact": exact, "f1": f1})


def test_no_more_of_a_document_is_read_than_its_words_need(tmp_path):
    task = write(tmp_path, {"a.txt": "", "b.txt": ""}, dev=[record("1", "a.txt", aliases=("x",))])
    document = tmp_path / "evidence" / "wikipedia" / "a.txt"
    long = ("y" * 9_000 + " ").encode()  # a word that is longer than what is read at once
    document.write_bytes(long * 11 + b"z " * 8_000_000 + b"\xff")
    (pair,) = task.read("dev")
    assert pair.context == (long * 11 + b"z " * (WORDS - 11)).decode().strip()
    document.write_bytes(long + b"\xff")
    with pytest.raises(InputError, match=r"wikipedia/a\.txt: not UTF-8 \(invalid start byte\)"):
        task.read("dev")
    document.write_text("x " * 399 + "y" * 3400)  # the last word ends after the first 4,096
    assert task.read("dev")[0].context.rpartition(" ")[2] == "y" * 3400


@pytest.mark.parametrize("size, readable", [(100_000, True), (100_001, False), (30_000_000, False)])
def test_a_document_that_is_no_text(tmp_path, size, readable):
    documents = {"a.txt": "y" * (size - 2) + " z"}
    task = write(tmp_path, documents, dev=[record("1", "a.txt", aliases=("x",))])
    if readable:
        assert task.read("dev")[0].context == documents["a.txt"]
        return
    with pytest.raises(
        InputError, match=r"a\.txt: its first 400 words have more than 100,000 char"
    ):
        task.read("dev")


def test_a_document_that_is_no_file(tmp_path):
    task = write(tmp_path, {"a.txt": ""}, dev=[record("1", "a.txt", aliases=("x",))])
    document = tmp_path / "evidence" / "wikipedia" / "a.txt"
    document.unlink()
    for make in (os.mkfifo, lambda path: path.symlink_to("nowhere")):
        make(document)
        with pytest.raises(InputError, match=r"wikipedia/a\.txt: not a file that can be read: unp"):
            task.read("dev")
        document.unlink()


@pytest.mark.parametrize(
    "named, on_disk",
    [
        ("Beyonc\u00e9.txt", unicodedata.normalize("NFD", "Beyonc\u00e9.txt")),
        ("Ab\u00e9_x.txt", "AB\u00e9_X.txt"),
        ("AC/DC.txt", "AC/DC.txt"),
    ],
)
def test_names_of_documents_in_another_form(tmp_path, named, on_disk):
    """The official files differ in the case and the Unicode form of some names."""
    other = {"Same.txt": "upper", "same.txt": "lower"}  # an exact name comes first
    dev = [record("1", named, "same.txt", "Same.txt", aliases=("x",))]
    task = write(tmp_path, {on_disk: "found"} | other, dev=dev)
    assert [each.context for each in task.read("dev")] == ["found", "lower", "upper"]


# ------------------------------------------------------------------------------- the scores


def spans(*answers: tuple[str, float]) -> Spans:
    return Spans(tuple(Span(text, 0, len(text), score, 0.5) for text, score in answers))


def test_normalized():
    """The rules of triviaqa_evaluation.py, by hand."""
    assert normalized("The Spider-Man_2: a `Test`") == "spider man 2 test"
    assert normalized("\u2018Rock\u2019n\u00b4Roll\u2019") == "rock n roll"
    assert normalized("U.S.") == "u s" and normalized("an-a-the") == ""
    assert normalized("caf\u00c9 \u2013 5\u00a0kg") == "caf\u00e9 \u2013 5 kg"


def test_scores_and_files_have_one_answer_a_question(tmp_path):
    documents = {f"{name}.txt": name for name in "abcde"}
    dev = [
        record("1", "a.txt", "b.txt", aliases=("Spider-Man", "Peter Parker")),
        record("2", "c.txt", aliases=("The Eternal City",)),
        record("3", "d.txt", "e.txt", aliases=("Oslo",)),
        record("4", "e.txt", aliases=("A-ha",)),
    ]
    dev[1]["Answer"]["HumanAnswers"] = ["Rome, Italy"]
    task = write(tmp_path, documents, dev=dev)
    examples = task.read("dev")
    predictions = [
        *(spans(("Superman", 1.0)), spans(("the spider man", 2.5), ("man", 1.0))),  # 1: 1, 1
        spans(("in Rome", 0.0)),  # 2: 0, and 1 word of 2 and of 2
        *(spans(("Bergen", -1.0)), spans(("Oslo", -1.5))),  # 3: 0, 0
        spans(("a ha", 3.0)),  # 4: 1, 1, both are "ha"
    ]
    scores = task.score(examples, predictions, {})
    assert scores == pytest.approx({"exact": 100 * 2 / 4, "f1": 100 * (1 + 0.5 + 0 + 1) / 4})
    assert task.metric in scores
    task.write(tmp_path, "dev", examples, predictions, {})
    written = json.loads((tmp_path / "triviaqa-dev.json").read_text())
    assert written == {"1": "the spider man", "2": "in Rome", "3": "Bergen", "4": "a ha"}
    ranked = json.loads((tmp_path / "triviaqa-dev-nbest.json").read_text())
    assert [each["text"] for each in ranked["1"]] == ["the spider man", "man"]


# ------------------------------------------------------------------------------- bad input


def test_missing_files_are_named_at_once(tmp_path):
    with pytest.raises(InputError) as caught:
        TriviaQa(str(tmp_path)).read(TRAIN)
    assert str(caught.value) == (
        f"{tmp_path}: no qa/wikipedia-train.json and no qa/wikipedia-dev.json and no "
        "evidence/wikipedia/ in it: name the folder with qa/ and evidence/ of the official "
        "triviaqa-rc.tar.gz"
    )
    task = write(tmp_path, {})
    (tmp_path / "qa" / "wikipedia-dev.json").unlink()
    with pytest.raises(InputError, match=f"^{tmp_path}: no qa/wikipedia-dev.json in it: name"):
        task.read(TRAIN)


def _without(name: str, fields: dict) -> dict:
    return {key: value for key, value in fields.items() if key != name}


_GOOD = record("2", "a.txt", aliases=("Rome",))


@pytest.mark.parametrize(
    "changed, message",
    [
        (
            _without("QuestionId", _GOOD),
            r"json: Data\[1\]={.*}: .* `QuestionId`: is this",
        ),
        (
            _without("EntityPages", _GOOD),
            r"Data\[1\]={.*}: .* field `EntityPages`",
        ),
        (_without("Answer", _GOOD), r"Data\[1\]={.*}: object missing required field `Answer`"),
        (_GOOD | {"EntityPages": [{}]}, r"Data\[1\]\.EntityPages\[0\]={}: .* `Filename`"),
        (
            _GOOD | {"Answer": {"Value": "Rome"}},
            r"Answer={'Value': 'Rome'}: .* `NormalizedAl",
        ),
        (_GOOD | {"Answer": {"NormalizedAliases": [7]}}, r"Aliases\[0\]=7: expected `str`"),
        (
            _GOOD | {"Answer": _GOOD["Answer"] | {"HumanAnswers": "x"}},
            "HumanAnswers='x': expecte",
        ),
        (_GOOD | {"Answer": _GOOD["Answer"] | {"NormalizedAliases": []}}, "question 2: 'Normalize"),
        (_GOOD | {"QuestionId": "1"}, r"question 1: a duplicate: Data\[1\] has the id"),
        (_GOOD | {"Question": "\ud800"}, r"Data\[1\]: \\ud800 is half a surrogate pair"),
        (_GOOD | {"Question": " "}, "question 2: 'Question' is empty"),
        (_GOOD | {"EntityPages": []}, "question 2: has no document with words in it"),
        (record("2", "empty.txt", aliases=("x",)), "question 2: has no document with words in it"),
        (
            record("2", *"bcde", "a.txt", "../qa/wikipedia-dev.json", "/etc/hosts", aliases=("x",)),
            r"json: 6 of its 7 documents are not in .*/evidence/wikipedia: 'b', 'c', 'd', \.\.\.",
        ),
        (7, r"Data\[1\]=7: expected `object`"),
    ],
)
def test_bad_questions(tmp_path, changed, message):
    dev = [record("1", "a.txt", aliases=("Rome",)), changed]
    task = write(tmp_path, {"a.txt": "In Rome", "empty.txt": ""}, dev=dev)
    with pytest.raises(InputError, match=message) as caught:
        task.read("dev")
    assert "wikipedia-dev.json" in str(caught.value) and "\n" not in str(caught.value)


def test_bad_files(tmp_path):
    task = write(tmp_path, {"a.txt": "Oslo"}, train=[record("1", "a.txt", aliases=("Rome",))])
    with pytest.raises(InputError, match="none of its 1 documents has an answer in its first 400"):
        task.read(TRAIN)
    train = json.dumps({"Data": [_GOOD | {"Answer": _without("Aliases", _GOOD["Answer"])}]})
    (tmp_path / "qa" / "wikipedia-train.json").write_text(train)
    with pytest.raises(InputError, match=r"train\.json: Data\[0\]\.Answer={.*}: .* `Aliases`"):
        task.read(TRAIN)
    for text, message in (
        ("[", r"dev\.json: not JSON \("),
        ("[]", r"dev\.json: \[\]: expected `object`, got `array`"),
        ("{}", r"dev\.json: {}: object missing required field `Data`"),
    ):
        (tmp_path / "qa" / "wikipedia-dev.json").write_text(text)
        with pytest.raises(InputError, match=message):
            task.read("dev")


# ------------------------------------------------------------------------------ the warm-up


@pytest.mark.slow
def test_squad_goes_on_from_the_model_warmed_up_and_its_output_layer(tiny_run, tmp_path, capsys):
    def run(init_from, kind: str, rate: float):
        """One epoch, in batches of one shape for both data sets, which is compiled once."""
        data, task = tmp_path / kind, dict(kind=kind, max_query_length=4, stride=16)
        config = tiny_finetuning(init_from, data, task=task, accumulate=1)
        config.grid.update(batch_size=(8,), learning_rate=(rate,), epochs=(1,))
        assert finetune.run(config, str(tmp_path / f"{kind}-run")) == 0
        return capsys.readouterr().out, read_hugging_face(tmp_path / f"{kind}-run" / "model", kind)

    task_files.write_triviaqa(tmp_path / "triviaqa", questions=8)
    task_files.write_squad(tmp_path / "squad", paragraphs=8)
    output, warm = run(tiny_run, "triviaqa", rate=1e-2)
    assert "new in every trial: span\n" in output
    written = json.loads((tmp_path / "triviaqa-run/predictions/triviaqa-dev.json").read_text())
    assert written.keys() == {f"dev_{number}" for number in range(25)}
    # The steps are so small that the trained parameters equal those at the start.
    output, model = run(tmp_path / "triviaqa-run", "squad", rate=1e-30)
    origin = tmp_path / "triviaqa-run"
    assert f"nothing is new: every trial goes on with the output layer of {origin}\n" in output
    np.testing.assert_array_equal(model.params["span"]["kernel"], warm.params["span"]["kernel"])
    assert model.identity == warm.identity
