"""SQuAD: its files, refused content, its scores and the files of predictions."""

import gzip
import json

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.tasks.question_answering import Answer, Span, Spans
from bertjax.tasks.squad import Squad
from bertjax.tasks.squad_scores import normalized
from bertjax.tasks.task import TRAIN
from bertjax.text.tokenizer import Tokenizer

CONTEXT = 'In \u201cCaf\u00e9 \u4e2d\u6587\u201d, Ren\u00e9 said: "N\u2082O, 5\u00a0kg".'


def entry(id_: str, question: str, *answers: str, **fields) -> dict:
    found = [{"text": text, "answer_start": CONTEXT.index(text)} for text in answers]
    return {"id": id_, "question": question, "answers": found} | fields


ENTRIES = [
    entry("1", "Where\u2026?", "\u201cCaf\u00e9 \u4e2d\u6587\u201d", "Caf\u00e9 \u4e2d\u6587"),
    entry("2", "Who, \t\u201csaid\u201d it?", "Ren\u00e9", "Ren\u00e9 said"),
    entry("3", "How much?", "5\u00a0kg"),
]
IMPOSSIBLE = entry("4", "Why?", is_impossible=True, plausible_answers=[{"text": "x"}])


def write(path, entries, context=CONTEXT, opener=open):
    articles = [
        {"title": "A", "paragraphs": [{"context": context, "qas": entries[:2]}]},
        {"title": "B", "paragraphs": [{"context": context, "qas": entries[2:]}]},
    ]
    with opener(path, "wt", encoding="utf-8") as file:
        json.dump({"version": "1.1", "data": articles}, file, ensure_ascii=len(entries) % 2 == 0)
    return path


def test_read(tmp_path):
    write(tmp_path / "train-v1.1.json", ENTRIES)
    write(tmp_path / "dev-v1.1.json.gz", ENTRIES, opener=gzip.open)
    task = Squad(str(tmp_path))
    questions = task.read(TRAIN)
    assert [each.id for each in questions] == ["1", "2", "3"]
    assert all(each.context == CONTEXT and not each.impossible for each in questions)
    assert questions[0].question == "Where\u2026?"
    assert questions[2].answers == (Answer("5\u00a0kg", CONTEXT.index("5")),)
    assert questions[1].where == f"{tmp_path}/train-v1.1.json question 2"
    (dev,) = task.dev_splits
    assert [each._replace(where="") for each in task.read(dev)] == [
        each._replace(where="") for each in questions
    ]
    assert (task.name, task.metric, task.test_splits) == ("SQuAD 1.1", "f1", ())
    assert not task.family.unanswerable


def test_read_version_2(tmp_path):
    write(tmp_path / "my.json", [*ENTRIES, IMPOSSIBLE])
    task = Squad(str(tmp_path), "v2.0", train="my.json", stride=64, n_best=5)
    questions = task.read(TRAIN)
    assert [each.impossible for each in questions] == [False, False, False, True]
    assert questions[3].answers == ()
    assert (task.name, task.metric) == ("SQuAD 2.0", "f1_tuned")
    family = task.family
    assert (family.unanswerable, family.stride, family.n_best) == (True, 64, 5)


def test_places_that_are_not_exact_are_not_learned_from(tmp_path, capsys):
    entries = [ENTRIES[0] | {"answer_start_exact": False}, ENTRIES[1], ENTRIES[2]]
    for split in ("train", "dev"):
        write(tmp_path / f"{split}-v1.1.json", entries)
    assert len(Squad(str(tmp_path)).read("dev")) == 3
    assert capsys.readouterr().out == ""
    assert [each.id for each in Squad(str(tmp_path)).read(TRAIN)] == ["2", "3"]
    assert "SQuAD 1.1: 1 of 3 training questions left out" in capsys.readouterr().out


def test_answers_that_are_not_at_their_places_are_not_learned_from(tmp_path, capsys):
    """Training counts them and leaves them out, as run_squad.py does; dev needs only the texts."""
    wrong = entry("9", "Who?", "Ren\u00e9")
    wrong["answers"][0]["answer_start"] += 1
    for split in ("train", "dev"):
        write(tmp_path / f"{split}-v1.1.json", [*ENTRIES, wrong])
    assert [each.id for each in Squad(str(tmp_path)).read(TRAIN)] == ["1", "2", "3"]
    output = capsys.readouterr().out
    assert "SQuAD 1.1: 1 of 4 training questions left out: their answer is not at" in output
    assert output.endswith("train-v1.1.json question 9\n")
    assert [each.id for each in Squad(str(tmp_path)).read("dev")] == ["1", "2", "3", "9"]
    write(tmp_path / "train-v1.1.json", [wrong])
    with pytest.raises(InputError, match="no question whose answer is at its answer_start"):
        Squad(str(tmp_path)).read(TRAIN)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"question": "\ud83d?"}, r"question 9: \\ud83d is half a surrogate pair"),
        ({"question": " "}, r"dev-v1\.1\.json question 9: the question is empty"),
        ({"answers": []}, "question 9: no answers, and not marked is_impossible"),
        ({"answers": None}, "question 9: answers=None: expected `array`"),
        ({"answers": [{"text": "a"}]}, "question 9: .*missing required field `answer_start`"),
        ({"answers": [{"text": "a", "answer_start": "3"}]}, "answer_start='3': expected `int`"),
        ({"is_impossible": True}, "question 9: is_impossible is no field of SQuAD 1.1"),
        ({"is_impossible": "false"}, "question 9: is_impossible='false': expected `bool`"),
        ({"question": 5}, "question 9: question=5: expected `str`"),
        ({"id": "1"}, "question 1: duplicate id: .*question 1 has it too"),
        ({"id": 9}, r"dev-v1\.1\.json question 9: id=9: expected `str`"),
    ],
)
def test_bad_questions(tmp_path, change, message):
    write(tmp_path / "dev-v1.1.json", [*ENTRIES, entry("9", "Who?", "Ren\u00e9") | change])
    with pytest.raises(InputError, match=message):
        Squad(str(tmp_path)).read("dev")


def test_bad_files(tmp_path):
    task = Squad(str(tmp_path))
    with pytest.raises(InputError, match=r"no dev-v1\.1\.json in it"):
        task.read("dev")
    path = tmp_path / "dev-v1.1.json"
    path.write_text('{"data": [\n{"a" 5}]}')
    with pytest.raises(InputError, match=r"dev-v1\.1\.json: not JSON \(.*line 2 column 6 "):
        task.read("dev")
    path.write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"dev-v1\.1\.json: not JSON \(maximum recursion depth"):
        task.read("dev")
    path.write_text("[1, 2]")
    with pytest.raises(InputError, match=r"dev-v1\.1\.json: .1, 2.: expected .*: is this a SQuAD"):
        task.read("dev")
    path.write_text('{"data": [{"title": "a"}]}')
    with pytest.raises(InputError, match="json: data.0.=.*missing required field `paragraphs`"):
        task.read("dev")
    path.write_text('{"data": []}')
    with pytest.raises(InputError, match=r"dev: no question in it"):
        task.read("dev")
    write(path, ENTRIES, context=" \n")
    with pytest.raises(InputError, match="question 1: the context is empty"):
        task.read("dev")
    with pytest.raises(ValueError, match=r"version='2': must be one of v1\.1, v2\.0"):
        Squad("x", "2")


# --------------------------------------------------------------------------- scores and files


def spans(*texts: str, odds: float | None = None) -> Spans:
    """Spans whose best score is 3; "no answer" scores `odds` more than the best."""
    best = tuple(
        Span(text, n, n + len(text), 3.0 - n, [0.4, 0.2, 0.1][n]) for n, text in enumerate(texts)
    )
    return Spans(best, None if odds is None else 3.0 + odds)


def test_scores_of_version_1(tmp_path):
    write(tmp_path / "dev-v1.1.json", ENTRIES)
    task = Squad(str(tmp_path))
    questions = task.read("dev")
    predictions = [spans("Caf\u00e9 \u4e2d\u6587"), spans("said"), spans("6 kg")]
    assert task.tune(questions, predictions) == {}
    scores = task.score(questions, predictions, {})
    assert scores == pytest.approx({"exact": 100 / 3, "f1": 100 * (1 + 2 / 3 + 1 / 2) / 3})
    assert task.metric in scores


@pytest.fixture
def version_2(tmp_path):
    write(tmp_path / "dev-v2.0.json", [*ENTRIES, IMPOSSIBLE])
    task = Squad(str(tmp_path), "v2.0")
    predictions = [
        spans("Caf\u00e9 \u4e2d\u6587", odds=-2.0),
        spans("said", "Ren\u00e9", odds=1.0),
        spans("7", odds=2.0),
        spans("x", odds=1.5),
    ]
    return task, task.read("dev"), predictions


def test_scores_of_version_2(version_2):
    task, questions, predictions = version_2
    settings = task.tune(questions, predictions)
    # The first is between 1.0 and 1.5; exact match does not improve after the first question.
    assert settings == {"null_threshold": 1.25, "null_threshold_exact": -0.5}
    assert task.score(questions, predictions, settings) == pytest.approx(
        {
            "exact": 100 * (1 + 0 + 0 + 1) / 4,
            "f1": 100 * (1 + 0 + 0 + 1) / 4,
            "HasAns_exact": 100 * (1 + 0 + 0) / 3,
            "HasAns_f1": 100 * (1 + 0 + 0) / 3,
            "NoAns_exact": 100,
            "NoAns_f1": 100,
            "exact_tuned": 100 * (1 + 0 + 0 + 1) / 4,
            "f1_tuned": 100 * (1 + 2 / 3 + 0 + 1) / 4,
            "HasAns_exact_tuned": 100 / 3,
            "HasAns_f1_tuned": 100 * (1 + 2 / 3) / 3,
            "NoAns_exact_tuned": 100,
            "NoAns_f1_tuned": 100,
        }
    )
    assert task.score(questions, predictions, {}).keys() == {"exact", "f1"}


def _best_of_the_script(scores, odds, has_answer) -> float:
    """`find_best_thresh` of evaluate-v2.0.py, in percent; `scores` are those of the answers."""
    best = current = sum(not each for each in has_answer)
    for number in sorted(range(len(odds)), key=lambda n: odds[n]):
        current += scores[number] if has_answer[number] else -1
        best = max(best, current)
    return 100 * best / len(odds)


def test_exact_match_has_a_threshold_of_its_own(tmp_path):
    """The threshold of the best F1 may not give the best exact match, as in the official script."""
    gold = "Caf\u00e9 \u4e2d\u6587"
    numbers, tried = np.random.default_rng(0), 0
    for trial in range(20):
        has_answer = numbers.random(12) < 0.6
        entries = [
            entry(str(n), "Where?", gold) if there else entry(str(n), "Why?", is_impossible=True)
            for n, there in enumerate(has_answer)
        ]
        write(tmp_path / f"{trial}.json", entries)
        texts = numbers.choice([gold, f"In {gold}, Ren\u00e9", "said"], 12)
        odds = numbers.normal(size=12)
        predictions = [spans(text, odds=odd) for text, odd in zip(texts, odds, strict=True)]
        task = Squad(str(tmp_path), "v2.0", dev=f"{trial}.json")
        questions = task.read("dev")
        settings = task.tune(questions, predictions)
        found = task.score(questions, predictions, settings)
        exact = [float(text == gold) for text in texts]
        f1 = [{gold: 1.0, "said": 0.0}.get(text, 2 / 3) for text in texts]
        assert found["f1_tuned"] == pytest.approx(_best_of_the_script(f1, odds, has_answer))
        assert found["exact_tuned"] == pytest.approx(_best_of_the_script(exact, odds, has_answer))
        tried += settings["null_threshold"] != settings["null_threshold_exact"]
    assert tried > 5


def test_write(version_2, tmp_path):
    task, questions, predictions = version_2
    task.write(tmp_path, "dev", questions, predictions, {"null_threshold": 1.0})
    answers, nbest, odds = (
        json.loads((tmp_path / f"squad-dev{name}.json").read_text(encoding="utf-8"))
        for name in ("", "-nbest", "-null_odds")
    )
    assert answers == {"1": "Caf\u00e9 \u4e2d\u6587", "2": "said", "3": "", "4": ""}
    assert odds == {"1": -2.0, "2": 1.0, "3": 2.0, "4": 1.5}
    assert [each["text"] for each in nbest["2"]] == ["", "said", "Ren\u00e9"]
    assert nbest["2"][0] == {"text": "", "score": 4.0, "probability": pytest.approx(0.4)}
    assert nbest["1"][0] == predictions[0].answers[0]._asdict()

    one = [each._replace(null_score=None) for each in predictions]
    Squad("x").write(tmp_path, "other", questions, one, {})
    assert not (tmp_path / "squad-other-null_odds.json").exists()
    assert json.loads((tmp_path / "squad-other.json").read_text(encoding="utf-8"))["4"] == "x"


# ------------------------------------------------------------------------------------- tfds


@pytest.fixture(scope="module")
def tfds_name(tmp_path_factory):
    """A data set with the features of squad/v2.0, made by this fixture."""
    tfds = pytest.importorskip("tensorflow_datasets")
    features = tfds.features
    answers = features.Sequence({"text": features.Text(), "answer_start": np.int32})

    class FewQuestions(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        name = "few_questions"

        def _info(self):
            texts = {name: features.Text() for name in ("title", "context", "question")}
            flags = {"id": np.str_, "is_impossible": np.bool_, "answers": answers}
            return tfds.core.DatasetInfo(
                builder=self, features=features.FeaturesDict(texts | flags)
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(), "validation": self._generate_examples()}

        def _generate_examples(self):
            for each in [*ENTRIES, IMPOSSIBLE]:
                record = {"title": "", "context": CONTEXT, "is_impossible": False} | each
                del record["answers"]
                record.pop("plausible_answers", None)
                record["answers"] = {
                    name: [answer[name] for answer in each["answers"]]
                    for name in ("text", "answer_start")
                }
                yield each["id"], record

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path_factory.mktemp("tfds")))
        yield "few_questions"


def test_tfds(tfds_name, tmp_path):
    write(tmp_path / "dev-v2.0.json", [*ENTRIES, IMPOSSIBLE])
    expected = Squad(str(tmp_path), "v2.0").read("dev")
    for split in (TRAIN, "dev"):
        questions = Squad(f"tfds:{tfds_name}", "v2.0").read(split)
        assert sorted(each._replace(where="") for each in questions) == [
            each._replace(where="") for each in expected
        ]
    assert questions[0].where.startswith(f"tfds:{tfds_name} validation example 0 (id ")
    with pytest.raises(InputError, match="no such split; it has train, validation"):
        Squad(f"tfds:{tfds_name}", "v2.0", dev="test").read("dev")


# -------------------------------------------------------------------------------- real data


def test_real_training_questions(shared_data, capsys):
    """The counts are those of the data's README; nearly all labelled spans equal the answers."""
    task = Squad(str(shared_data / "squad"), train="train-v1.1.partial.json")
    questions = task.read(TRAIN)
    assert len(questions) == 3547
    assert "453 of 4,000 training questions" in capsys.readouterr().out
    tokenizer = Tokenizer.open(shared_data / "vocab/bert-base-uncased-vocab.txt")
    encoded = task.family.encode(questions, tokenizer, 384, labelled=True)
    starts, ends = (encoded.labels[f"{name}_positions"] for name in ("start", "end"))
    shift = encoded.begin - encoded.first
    same, seen = set(), set()
    for window in np.flatnonzero(starts):
        number = encoded.question[window]
        span, example = encoded.spans[number], questions[number]
        first, last = starts[window] + shift[window], ends[window] + shift[window]
        text, answer = example.context[span[first, 0] : span[last, 1]], example.answers[0].text
        assert answer in text
        seen.add(number)
        if normalized(text) == normalized(answer):
            same.add(number)
    assert len(seen) == 3547  # each has a window with its whole answer
    assert len(same) == 3544  # the other three end within a word of one piece ("Indirect|ly")


def test_real_development_questions(shared_data):
    """If gold answers are the predictions, all scores are the highest possible."""
    for version, count, impossible in [("v1.1", 10570, 0), ("v2.0", 11873, 5945)]:
        task = Squad(str(shared_data / "squad"), version)
        questions = task.read("dev")
        assert (len(questions), sum(each.impossible for each in questions)) == (count, impossible)
        unanswerable = version == "v2.0"
        gold = [
            spans(each.answers[0].text if each.answers else "x")._replace(
                null_score=(4.0 if each.impossible else 2.0) if unanswerable else None
            )
            for each in questions
        ]
        settings = task.tune(questions, gold)
        scores = task.score(questions, gold, settings)
        assert set(scores.values()) == {100.0}
