"""SQuAD 1.1 and 2.0 (sections 4.2 and 4.3): its files, its scores, its form of predictions."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired

import numpy as np

from bertjax.base.checks import converted_with_hint
from bertjax.base.errors import InputError
from bertjax.base.files import write_json
from bertjax.base.limits import Count, Few, Free, require
from bertjax.base.validation import record
from bertjax.data.corpus import tfds
from bertjax.tasks import official_files
from bertjax.tasks.question_answering import (
    NULL_THRESHOLD,
    Answer,
    Question,
    QuestionAnswering,
    Spans,
    is_in_place,
)
from bertjax.tasks.rows import check_characters
from bertjax.tasks.squad_scores import best_threshold, exact_and_f1
from bertjax.tasks.task import TRAIN, Task

DEV = "dev"
VERSIONS = {"v1.1": "SQuAD 1.1", "v2.0": "SQuAD 2.0"}
_TFDS_SPLITS = {TRAIN: "train", DEV: "validation"}

# A key of the settings, like `NULL_THRESHOLD`: the threshold of "exact_tuned".
EXACT_THRESHOLD = "null_threshold_exact"


@dataclasses.dataclass(frozen=True)
class Squad(Task):
    """The data set SQuAD.

    Attributes:
      data: the folder of the official files; or "tfds:", or "tfds:NAME" for a set of the same form.
      version: "v1.1", or "v2.0", in which questions may have no answer.
      train: the file (or TFDS split) for training, if it is not train-VERSION.json.
      dev: the file (or TFDS split) for scores, if it is not dev-VERSION.json.
      max_query_length, stride, max_answer_length, n_best: see `QuestionAnswering`.
    """

    data: Free[str]
    version: str = "v1.1"
    train: str = ""
    dev: str = ""
    max_query_length: Count = 64
    stride: Count = 128
    max_answer_length: Few = 30
    n_best: Few = 20

    dev_splits = (DEV,)
    test_splits = ()

    def __post_init__(self):
        known = f"must be one of {', '.join(VERSIONS)}"
        require(self.version in VERSIONS, self, "version", known)
        object.__setattr__(self, "name", VERSIONS[self.version])

    @property
    def unanswerable(self) -> bool:
        """Whether questions may have no answer."""
        return self.version == "v2.0"

    @property
    def metric(self) -> str:
        """F1; for SQuAD 2.0, F1 with the threshold that `tune` finds."""
        return "f1_tuned" if self.unanswerable else "f1"

    @property
    def family(self) -> QuestionAnswering:
        return QuestionAnswering(
            unanswerable=self.unanswerable,
            max_query_length=self.max_query_length,
            stride=self.stride,
            max_answer_length=self.max_answer_length,
            n_best=self.n_best,
        )

    def read(self, split: str) -> list[Question]:
        """The questions of `TRAIN` or `DEV`.

        Two kinds of training questions are left out and counted: those whose first answer is not at
        its position, as in `run_squad.py`, and those marked "answer_start_exact": false, for which
        the author of the file did not know the position.
        """
        name = getattr(self, split)
        if self.data.startswith(tfds.PREFIX):
            data_set = self.data.removeprefix(tfds.PREFIX) or f"squad/{self.version}"
            records = _tfds_records(data_set, name or _TFDS_SPLITS[split])
        else:
            folder = Path(self.data)
            records = _json_records(folder, name or f"{split}-{self.version}.json")
        questions: list[Question] = []
        left_out: list[Question] = []
        ids: dict[str, str] = {}  # id of a question -> its place
        for where, context, fields in records:
            question = self._question(where, context, fields)
            if question.id in ids:
                raise InputError(f"{where}: duplicate id: {ids[question.id]} has it too")
            ids[question.id] = where
            exact = fields.get("answer_start_exact") is not False and is_in_place(question)
            usable = exact or question.impossible or split != TRAIN
            (questions if usable else left_out).append(question)
        if left_out:
            print(
                f"{self.name}: {len(left_out):,} of {len(ids):,} training questions left out: "
                "their answer is not at its answer_start, or marked as not exact; the first is "
                f"{left_out[0].where}",
                flush=True,
            )
        but = " whose answer is at its answer_start" if left_out else ""
        return official_files.nonempty(questions, f"{self.data} {name or split}", f"question{but}")

    def _question(self, where: str, context: str, fields: Mapping[str, Any]) -> Question:
        impossible = fields.get("is_impossible", False)
        if impossible and not self.unanswerable:
            raise InputError(f"{where}: is_impossible is no field of SQuAD 1.1: set version v2.0")
        answers = tuple(Answer(each["text"], each["answer_start"]) for each in fields["answers"])
        if not answers and not impossible:
            raise InputError(f"{where}: no answers, and not marked is_impossible")
        question = Question(fields["id"], fields["question"], context, answers, impossible, where)
        check_characters("".join((*question[:3], *(text for text, _ in answers))), where)
        for name in ("question", "context"):
            if not getattr(question, name).strip():
                raise InputError(f"{where}: the {name} is empty")
        return question

    def tune(self, examples: Sequence[Question], predictions: Sequence[Spans]) -> dict[str, Any]:
        """See `tune`; for SQuAD 1.1 there are no settings."""
        return tune(examples, predictions) if self.unanswerable else {}

    def score(
        self,
        examples: Sequence[Question],
        predictions: Sequence[Spans],
        settings: Mapping[str, Any],
    ) -> dict[str, float]:
        return score(examples, predictions, settings)

    def write(
        self,
        folder: Path,
        split: str,
        examples: Sequence[Question],
        predictions: Sequence[Spans],
        settings: Mapping[str, Any],
    ) -> None:
        """Writes squad-SPLIT.json and the other files that `write` describes."""
        write(folder, f"squad-{split}", examples, predictions, settings)


# --------------------------------------------------------------------------- scores and files


def tune(examples: Sequence[Question], predictions: Sequence[Spans]) -> dict[str, Any]:
    """Finds the thresholds of `Spans.answer`, for questions that may have no answer.

    The threshold with the highest F1 decides what is answered. The one with the highest exact match
    is only reported, because the official script searches for it separately.
    """
    answered, unanswered = _scores(examples, predictions)
    odds = np.array([prediction.null_odds for prediction in predictions])
    exact, f1 = (best_threshold(odds, answered[:, i], unanswered[:, i]) for i in range(2))
    return {NULL_THRESHOLD: f1, EXACT_THRESHOLD: exact}


def score(
    examples: Sequence[Question], predictions: Sequence[Spans], settings: Mapping[str, Any]
) -> dict[str, float]:
    """Exact match and F1 in percent, as the official scripts count them.

    If questions may have no answer, "exact" and "f1" use the threshold 0; "exact_tuned" and
    "f1_tuned" use their thresholds in the settings (best_exact and best_f1 of evaluate-v2.0.py).
    All scores are also given for the questions with and without answers, as HasAns_ and NoAns_.
    """
    answered, unanswered = _scores(examples, predictions)
    odds = np.array([prediction.null_odds for prediction in predictions])[:, None]
    thresholds, types = {"": np.zeros(2)}, {"": np.full(len(examples), True)}
    if NULL_THRESHOLD in settings:
        thresholds["_tuned"] = np.array([settings[EXACT_THRESHOLD], settings[NULL_THRESHOLD]])
        has_answer = np.array([bool(example.answers) for example in examples])
        types |= {"HasAns_": has_answer, "NoAns_": ~has_answer}
    result = {}
    for suffix, threshold in thresholds.items():
        scores = np.where(odds > threshold, unanswered, answered)
        for prefix, of_type in types.items():
            if of_type.any():
                exact, f1 = 100 * scores[of_type].mean(0)
                result[f"{prefix}exact{suffix}"] = float(exact)
                result[f"{prefix}f1{suffix}"] = float(f1)
    return result


def _scores(
    examples: Sequence[Question], predictions: Sequence[Spans]
) -> tuple[np.ndarray, np.ndarray]:
    """Exact match and F1, each float64 [N, 2]: of the best answer, and of "no answer"."""
    answered, unanswered = [], []
    for example, prediction in zip(examples, predictions, strict=True):
        golds = [answer.text for answer in example.answers]
        unanswerable = prediction.null_score is not None
        text = prediction.answers[0].text
        answered.append(exact_and_f1(text, golds, unanswerable=unanswerable))
        unanswered.append(exact_and_f1("", golds, unanswerable=unanswerable))
    return np.array(answered), np.array(unanswered)


def write(
    folder: Path,
    name: str,
    examples: Sequence[Question],
    predictions: Sequence[Spans],
    settings: Mapping[str, Any],
) -> None:
    """Writes predictions for the official scripts, in the same form as `run_squad.py`.

    NAME.json has {id: answer}, and NAME-nbest.json has {id: [answers]}. If questions may have no
    answer, NAME-null_odds.json has {id: `Spans.null_odds`}, for --na-prob-file of evaluate-v2.0.py.
    """
    threshold = settings.get(NULL_THRESHOLD, 0.0)
    by_id = {e.id: prediction for e, prediction in zip(examples, predictions, strict=True)}
    write_json(folder / f"{name}.json", {i: p.answer(threshold) for i, p in by_id.items()})
    write_json(folder / f"{name}-nbest.json", {i: _ranked(p) for i, p in by_id.items()})
    odds = {i: p.null_odds for i, p in by_id.items() if p.null_score is not None}
    if odds:
        write_json(folder / f"{name}-null_odds.json", odds)


def _ranked(prediction: Spans) -> list[dict[str, Any]]:
    """All answers, and "no answer" if it is possible, the most probable first."""
    ranked = [span._asdict() for span in prediction.answers]
    if prediction.null_score is not None:
        null = {"score": prediction.null_score, "probability": prediction.null_probability}
        ranked.append({"text": "", **null})
    return sorted(ranked, key=lambda each: -each["score"])


# -------------------------------------------------------------------------------- the readers

_ANSWER: Any = record(text=str, answer_start=int)
_MARKS = dict(is_impossible=NotRequired[bool], answer_start_exact=NotRequired[Any])
_FIELDS = dict(id=str, question=str, **_MARKS)
_QUESTION: Any = record(**_FIELDS, answers=list[_ANSWER])
_PARAGRAPH: Any = record(context=str, qas=list[dict])
_ARTICLE: Any = record(paragraphs=list[_PARAGRAPH])
_ANSWERS: Any = record(text=list[str], answer_start=list[int])  # of TFDS, as the example
_EXAMPLE: Any = record(**_FIELDS, context=str, answers=_ANSWERS)
_HINT = "is this a SQuAD file?"

# For each question: its place in the file, its paragraph, and its fields.
_Records = Iterator[tuple[str, str, Mapping[str, Any]]]


def _json_records(folder: Path, name: str) -> _Records:
    path, value = official_files.json_value(folder, name)
    for article in converted_with_hint(value, record(data=list[_ARTICLE]), path, _HINT)["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                where = f"{path} question {question.get('id')!s:.80}"
                yield (
                    where,
                    paragraph["context"],
                    converted_with_hint(question, _QUESTION, where, _HINT),
                )


def _tfds_records(name: str, split: str) -> _Records:
    for number, example in enumerate(tfds.open_split(name, split)):
        place = f"tfds:{name} {split} example {number}"
        fields = converted_with_hint(_as_json(example), _EXAMPLE, place, _HINT)
        answers = zip(*(fields["answers"][key] for key in ("text", "answer_start")), strict=True)
        fields["answers"] = [{"text": text, "answer_start": start} for text, start in answers]
        yield f"{place} (id {fields['id']})", fields["context"], fields


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_json(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    return value.decode("utf-8") if isinstance(value, bytes) else value
