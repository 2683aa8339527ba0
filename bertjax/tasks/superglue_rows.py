"""The examples of SuperGLUE's eight tasks (arXiv 1905.00537), from the rows of their JSON lines.

Each example is a text or a pair of texts for a classifier, but COPA is multiple choice:

  BoolQ, CB, RTE  the two texts of the file
  WiC      the two sentences, in which the word stands between asterisks
  WSC      the text, in which the pronoun stands between asterisks, and the noun
  MultiRC  the passage, and the question with one of its answers: each answer is classified
  ReCoRD   the passage, and the query with one of the passage's entities in its gap: of the
           entities, the most probable one is the answer
  COPA     the premise, and the question of cause or effect with each of two choices
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, NotRequired, TypedDict

from bertjax.base.validation import converted
from bertjax.tasks.choice import Choice
from bertjax.tasks.classification import TextPair
from bertjax.tasks.rows import FileRow

_MOST = 2**31  # the limit of the numbers of examples
_GAP = "@placeholder"  # in a query of ReCoRD
CHOICES = ("choice1", "choice2")
_QUESTIONS = {
    "cause": "What was the cause of this?",
    "effect": "What happened as a result?",
}


class _Target(TypedDict):  # of WSC
    span1_text: str
    span2_text: str
    span2_index: int


class _Answer(TypedDict):
    text: str
    idx: int
    label: NotRequired[int]


class _Question(TypedDict):
    question: str
    idx: int
    answers: list[_Answer]


class _Passage(TypedDict):  # of MultiRC
    text: str
    questions: list[_Question]


class _Span(TypedDict):
    start: int
    end: int  # the last character, not the one after it


class _News(TypedDict):  # of ReCoRD
    text: str
    entities: list[_Span]


class _Gold(TypedDict):
    text: str


class _Query(TypedDict):
    query: str
    idx: int
    answers: NotRequired[list[_Gold]]


class Candidate(NamedTuple):
    """A possible answer to a question, as a pair of texts that is right or wrong.

    Attributes:
      id: the question's, which all its candidates share.
      a, b, label, where, soft: as those of `TextPair`.
      passage: the number of the passage.
      number: the number of the candidate in its question.
      answer: its text.
      golds: the texts of the right answers; () if they are not known.
    """

    id: str
    a: str
    b: str
    label: str | None
    where: str
    passage: int
    number: int
    answer: str
    golds: tuple[str, ...] = ()
    soft: None = None


def of_columns(a: str, b: str) -> Callable[[FileRow, bool], Iterator[TextPair]]:
    """The examples of a task whose texts stand in two columns."""
    return lambda row, labelled: _labelled(row, labelled, row.text(a), row.text(b))


def _labelled(row: FileRow, labelled: bool, a: str, b: str) -> Iterator[TextPair]:
    label = row.label("label") if labelled else None
    yield TextPair(str(_number(row)), a, b, label, row.where)


def wic(row: FileRow, labelled: bool) -> Iterator[TextPair]:
    """The example of a row of WiC, with its label or without."""
    a, b = (_marked_characters(row, number) for number in "12")
    return _labelled(row, labelled, a, b)


def _marked_characters(row: FileRow, number: str) -> str:
    text = row.text(f"sentence{number}")
    start = row.integer(f"start{number}", len(text))
    end = row.integer(f"end{number}", len(text) + 1)
    row.require(start < end, f"end{number}", f"which is not after its start, {start}")
    return f"{text[:start]}* {text[start:end]} *{text[end:]}"


def wsc(row: FileRow, labelled: bool) -> Iterator[TextPair]:
    """The example of a row of WSC."""
    target = converted(row.value("target"), _Target, f"{row.where}: target")
    words, first = row.text("text").split(), target["span2_index"]
    row.require(0 <= first < len(words), "target", f"but the text has {len(words)} words")
    last = first + len(target["span2_text"].split())
    marked = [*words[:first], "*", *words[first:last], "*", *words[last:]]
    return _labelled(row, labelled, " ".join(marked), target["span1_text"])


def copa(row: FileRow, labelled: bool) -> Iterator[Choice]:
    """The example of a row of COPA."""
    question = row.text("question")
    row.require(question in _QUESTIONS, "question", f"not one of {', '.join(_QUESTIONS)}")
    yield Choice(
        str(_number(row)),
        row.text("premise"),
        _QUESTIONS[question],
        tuple(map(row.text, CHOICES)),
        row.integer("label", len(CHOICES)) if labelled else None,
        row.where,
    )


def multirc(row: FileRow, labelled: bool) -> Iterator[Candidate]:
    """The answers to the questions of a row of MultiRC."""
    passage = converted(row.value("passage"), _Passage, f"{row.where}: passage")
    for question in passage["questions"]:
        for answer in question["answers"]:
            yield Candidate(
                id=str(question["idx"]),
                a=passage["text"],
                b=f"{question['question']} {answer['text']}",
                label=str(answer.get("label")) if labelled else None,
                where=row.where,
                passage=_number(row),
                number=answer["idx"],
                answer=answer["text"],
            )


def record(row: FileRow, labelled: bool) -> Iterator[Candidate]:
    """The entities in the queries of a row of ReCoRD."""
    passage = converted(row.value("passage"), _News, f"{row.where}: passage")
    text = passage["text"]
    for span in passage["entities"]:
        within = 0 <= span["start"] <= span["end"] < len(text)
        row.require(within, "passage", f"whose entity {span} is not in its {len(text)} characters")
    entities = dict.fromkeys(text[x["start"] : x["end"] + 1] for x in passage["entities"])
    row.require(entities, "passage", "which has no entities")
    for query in converted(row.value("qas"), list[_Query], f"{row.where}: qas"):
        golds = tuple(answer["text"] for answer in query.get("answers", ())) if labelled else ()
        row.require(_GAP in query["query"], "qas", f"in which a query has no {_GAP}")
        row.require(golds or not labelled, "qas", "in which a query has no answers")
        for number, entity in enumerate(entities):
            yield Candidate(
                id=str(query["idx"]),
                a=text,
                b=query["query"].replace(_GAP, entity),
                label=str(entity in golds) if labelled else None,
                where=row.where,
                passage=_number(row),
                number=number,
                answer=entity,
                golds=golds,
            )


def _number(row: FileRow) -> int:
    return row.integer("idx", _MOST)
