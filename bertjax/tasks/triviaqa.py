"""TriviaQA-Wiki (section 4.2, footnote 12): questions, with documents that may have the answer.

The data set does not say where the answers are. Training takes the first occurrence of a right
answer in the first 400 words of a document, and leaves out documents without one.
"""

import dataclasses
import os
import string
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NotRequired

import numpy as np

from bertjax.base.checks import converted_with_hint
from bertjax.base.errors import InputError
from bertjax.base.limits import Count, Free
from bertjax.base.progress import tracked
from bertjax.base.validation import record
from bertjax.tasks import official_files, squad
from bertjax.tasks.question_answering import Answer, Question, QuestionAnswering, Spans
from bertjax.tasks.rows import check_characters
from bertjax.tasks.squad_scores import exact_and_f1, without_articles
from bertjax.tasks.task import TRAIN, Task

WORDS = 400  # of a document; the rest is not read
DEV, TEST = "dev", "test"
_FILES = {
    TRAIN: "qa/wikipedia-train.json",
    DEV: "qa/wikipedia-dev.json",
    TEST: "qa/wikipedia-test-without-answers.json",
}
_DOCUMENTS = "evidence/wikipedia"
_PIECE = 4096  # characters of a document that are read together: more than most 400 words have
_LONGEST = 100_000  # characters of the first 400 words; text has about 2,500

# The fields that are read of a question; the answer has other fields in training than in dev.
_PAGE: Any = record(Filename=str)
_QUESTION = dict(QuestionId=str, Question=str, EntityPages=list[_PAGE])
_KINDS = {
    TRAIN: record(**_QUESTION, Answer=record(Value=str, Aliases=list[str])),
    DEV: record(
        **_QUESTION,
        Answer=record(NormalizedAliases=list[str], HumanAnswers=NotRequired[list[str] | None]),
    ),
    TEST: record(**_QUESTION),
}

_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))
# Characters -> the one that replaces them in the search for an answer. Only the last one becomes
# two characters in lower case.
_ALIKE = {"-_‐‑–": " ", "‘’´`": "'", "İ": "i"}


@dataclasses.dataclass(frozen=True)
class TriviaQa(Task):
    """The data set TriviaQA, of which it takes the documents from Wikipedia.

    Attributes:
      data: the folder of the official files, with qa/ and evidence/. The test file may be missing.
      max_query_length, stride: see `QuestionAnswering`.
    """

    data: Free[str]
    max_query_length: Count = 64
    stride: Count = 128

    name = "TriviaQA-Wiki"
    metric = "f1"
    dev_splits = (DEV,)

    @property
    def family(self) -> QuestionAnswering:
        return QuestionAnswering(max_query_length=self.max_query_length, stride=self.stride)

    @cached_property
    def test_splits(self) -> tuple[str, ...]:
        return (TEST,) if official_files.exists(Path(self.data), _FILES[TEST]) else ()

    def read(self, split: str) -> list[Question]:
        """The pairs of a question and the beginning of a document, each with the question's id.

        In training, a pair has one answer, with its start. In dev, it has all right answers, whose
        start is not known (-1).
        """
        folder = Path(self.data)
        _require_files(folder)
        path, value = official_files.json_value(folder, _FILES[split])
        records = _records(path, value, _KINDS[split])
        names = [
            page["Filename"] for question in records.values() for page in question["EntityPages"]
        ]
        contexts = _beginnings(folder / _DOCUMENTS, names, path)
        pairs = [
            pair
            for where, question in tracked(list(records.items()), "answers", " questions")
            for pair in _pairs(where, question, contexts, split)
        ]
        if split == TRAIN:
            if not pairs:
                raise InputError(
                    f"{path}: none of its {len(names):,} documents has an answer in its first "
                    f"{WORDS} words: is {folder / _DOCUMENTS} of the same data set?"
                )
            print(
                f"{self.name}: {len(pairs):,} of {len(names):,} training documents have an answer "
                f"in their first {WORDS} words; the others are left out",
                flush=True,
            )
        return pairs

    def tune(self, examples: Sequence[Question], predictions: Sequence[Spans]) -> dict[str, Any]:
        """See `Task`: this task has no settings."""
        return {}

    def score(
        self,
        examples: Sequence[Question],
        predictions: Sequence[Spans],
        settings: Mapping[str, Any],
    ) -> dict[str, float]:
        """Exact match and F1 in percent, as the official triviaqa_evaluation.py counts them."""
        scores = [
            exact_and_f1(
                prediction.answers[0].text,
                [answer.text for answer in example.answers],
                unanswerable=False,
                normal=normalized,
            )
            for example, prediction in zip(*best_documents(examples, predictions), strict=True)
        ]
        exact, f1 = 100 * np.mean(scores, axis=0)
        return {"exact": float(exact), "f1": float(f1)}

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Question],
        predictions: Sequence[Spans],
        settings: Mapping[str, Any],
    ) -> None:
        """Writes triviaqa-SPLIT.json, {question id: answer}, and triviaqa-SPLIT-nbest.json."""
        best = best_documents(examples, predictions)
        squad.write(folder, f"triviaqa-{split}", *best, settings)


def best_documents(
    examples: Sequence[Question], predictions: Sequence[Spans]
) -> tuple[list[Question], list[Spans]]:
    """For each question, the document whose best answer has the highest score, and its prediction.

    Scores are sums of logits, which can be compared between documents; probabilities cannot.
    """
    best: dict[str, tuple[Question, Spans]] = {}
    for example, prediction in zip(examples, predictions, strict=True):
        _, rival = best.setdefault(example.id, (example, prediction))
        if prediction.answers[0].score > rival.answers[0].score:
            best[example.id] = example, prediction
    chosen, answers = zip(*best.values(), strict=True)
    return list(chosen), list(answers)


def normalized(text: str) -> str:
    """The text as the official script compares it.

    It is in lower case, without articles and superfluous white space. Punctuation, with hyphens and
    underscores, becomes white space.
    """
    return without_articles(text.lower().translate(_PUNCTUATION))


# -------------------------------------------------------------------------------- the readers


def _require_files(folder: Path) -> None:
    missing = [
        name for name in (_FILES[TRAIN], _FILES[DEV]) if not official_files.exists(folder, name)
    ]
    missing += [] if (folder / _DOCUMENTS).is_dir() else [f"{_DOCUMENTS}/"]
    if missing:
        raise InputError(
            f"{folder}: no {' and no '.join(missing)} in it: name the folder with qa/ and "
            "evidence/ of the official triviaqa-rc.tar.gz"
        )


def _records(path: Path, value: Any, type_: Any) -> dict[str, Mapping[str, Any]]:
    """The place of each question of a file -> its fields, which are checked to be of `type_`."""
    hint = "is this the official file?"
    questions = converted_with_hint(value, record(Data=list[type_]), path, hint)["Data"]
    records: dict[str, Mapping[str, Any]] = {}
    for number, question in enumerate(tracked(questions, "questions", " questions")):
        where = f"{path} question {question['QuestionId']}"
        check_characters(question["QuestionId"] + question["Question"], f"{path} Data[{number}]")
        if where in records:
            raise InputError(f"{where}: a duplicate: Data[{number}] has the id of an earlier one")
        if not question["Question"].strip():
            raise InputError(f"{where}: 'Question' is empty")
        records[where] = question
    return records


def _beginnings(folder: Path, names: Iterable[str], origin: Path) -> dict[str, str]:
    places = _places(folder)
    paths = {name: places.get(name) or places.get(_normalized_name(name)) for name in names}
    found = {name: place for name, place in paths.items() if place is not None}
    missing = [name for name in paths if name not in found]
    if missing:
        shown = ", ".join(map(repr, missing[:3])) + (", ..." if len(missing) > 3 else "")
        raise InputError(
            f"{origin}: {len(missing):,} of its {len(paths):,} documents are not in {folder}: "
            f"{shown}: unpack the whole archive"
        )
    documents = tracked(list(found.items()), "documents", " documents")
    return {name: _beginning(place) for name, place in documents}


def _places(folder: Path) -> dict[str, str]:
    """The path of each document under its name, and under `_normalized_name` of it."""
    files = {
        os.path.relpath(os.path.join(parent, name), folder): os.path.join(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
    }
    return {_normalized_name(name): path for name, path in files.items()} | files


def _normalized_name(name: str) -> str:
    """A file name in lower case and one Unicode form: the JSON files and the folder differ."""
    return unicodedata.normalize("NFC", name).casefold()


def _beginning(path: str) -> str:
    """The first `WORDS` words of a document, with a space between them; the rest is not read."""
    if not os.path.isfile(path):
        raise InputError(f"{path}: not a file that can be read: unpack the archive again")
    text = ""
    words: list[str] = []
    try:
        with open(path, encoding="utf-8-sig") as file:
            while len(words) <= WORDS and (piece := file.read(max(_PIECE, len(text)))):
                text += piece
                words = text.split(None, WORDS)
                if len(" ".join(words[:WORDS])) > _LONGEST:
                    raise InputError(
                        f"{path}: its first {WORDS} words have more than {_LONGEST:,} characters: "
                        "is this text? Remove the document from the questions that name it"
                    )
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}): unpack it again") from error
    return " ".join(words[:WORDS])


# -------------------------------------------------------------------------------- the pairs


def _pairs(
    where: str, question: Mapping[str, Any], contexts: Mapping[str, str], split: str
) -> Iterator[Question]:
    names = dict.fromkeys(page["Filename"] for page in question["EntityPages"])
    named = {name: contexts[name] for name in names if contexts[name]}
    if split == TRAIN:
        sought = _searchable(question["Answer"])
        answers = {name: _first_occurrence(context, sought) for name, context in named.items()}
        named = {name: context for name, context in named.items() if answers[name]}
    elif not named:
        raise InputError(f"{where}: has no document with words in it: remove the question")
    else:
        right = _right_answers(question["Answer"], where) if split == DEV else ()
        answers = dict.fromkeys(named, right)
    for name, context in named.items():
        place = f"{where} document {name}"
        yield Question(
            question["QuestionId"], question["Question"], context, answers[name], where=place
        )


def _right_answers(answer: Mapping[str, Any], where: str) -> tuple[Answer, ...]:
    """All right answers, as the official script knows them."""
    texts = [*answer["NormalizedAliases"], *(answer.get("HumanAnswers") or ())]
    if not texts:
        raise InputError(f"{where}: 'NormalizedAliases' is empty: no answer would be right")
    return tuple(Answer(text, -1) for text in texts)


def _searchable(answer: Mapping[str, Any]) -> set[str]:
    """The answers to search for, folded; without those that have no word, such as "The" or "?"."""
    texts = (answer["Value"], *answer["Aliases"])
    return {" ".join(_folded(text).split()) for text in texts if normalized(text)}


def _folded(text: str) -> str:
    """A text in the form that is searched: in lower case, hyphens as spaces, of the same length."""
    for characters, one in _ALIKE.items():
        for other in characters:  # faster than `translate`, because most texts have none of them
            text = text.replace(other, one)
    return text.lower()


def _first_occurrence(context: str, sought: Iterable[str]) -> tuple[Answer, ...]:
    """The first occurrence of any of `sought` as whole words (at one place the longest), or ()."""
    text = _folded(context)
    found = []
    for answer in sought:
        start = text.find(answer)
        while start >= 0 and (_in_word(text, start) or _in_word(text, start + len(answer))):
            start = text.find(answer, start + 1)
        if start >= 0:
            found.append((start, -len(answer)))
    if not found:
        return ()
    start, length = min(found)
    return (Answer(context[start : start - length], start),)


def _in_word(text: str, place: int) -> bool:
    """Whether the characters before and at a place are both letters or digits."""
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()
