"""Finds answers that are spans of a paragraph (sections 4.2 and 4.3).

It follows google-research/bert `run_squad.py` with one difference: an answer is cut out of the
paragraph by the stored positions of its tokens' characters, and not rebuilt from tokens.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, NamedTuple, NotRequired

import numpy as np

from bertjax.base.errors import InputError
from bertjax.base.limits import Count, Few, check_limits
from bertjax.base.progress import tracked
from bertjax.base.validation import record
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.probabilities import LOGITS, combined, logarithm, softmax
from bertjax.tasks.rows import json_object
from bertjax.tasks.task import Outputs
from bertjax.text.tokenizer import Tokenizer

NULL_THRESHOLD = "null_threshold"  # in a task's settings: see `Spans.answer`
_TEXTS = ("question", "context")
_LINE = record(question=str, context=str, id=NotRequired[str])
_SHOWN = 5  # the number of answers that `show` lists


class Answer(NamedTuple):
    """An answer's text, and the index of its first character in the paragraph."""

    text: str
    start: int


class Question(NamedTuple):
    """A question about a paragraph; training uses the first of the annotators' answers."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False
    where: str = ""


class Span(NamedTuple):
    """The characters start..end-1 of a paragraph, with their score.

    Attributes:
      score: the start logit of the first token plus the end logit of the last token; of several
        models together, the logarithm of their probability.
      probability: the softmax over the scores of all spans in `Spans`.
    """

    text: str
    start: int
    end: int
    score: float
    probability: float


class Spans(NamedTuple):
    """The prediction for a question.

    Attributes:
      answers: at least one answer, the best first; their texts are distinct.
      null_score: the score of "no answer", whose start and end are the first token; the
        softmax includes it. It is None if every question has an answer.
    """

    answers: tuple[Span, ...]
    null_score: float | None = None

    @property
    def null_odds(self) -> float:
        """The score of "no answer" minus the score of the best answer."""
        return -np.inf if self.null_score is None else self.null_score - self.answers[0].score

    @property
    def null_probability(self) -> float:
        """The probability of "no answer"; 0.0 if every question has an answer."""
        return max(0.0, 1.0 - sum(span.probability for span in self.answers))

    def answer(self, threshold: float) -> str:
        """The text of the best answer, or "" if `null_odds` is above the threshold."""
        return "" if self.null_odds > threshold else self.answers[0].text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Windows(Encoded):
    """Encoded questions: N windows, each with the whole question and a slice of its paragraph.

    Attributes:
      question: int32 [N], ascending: the number of each window's question.
      begin: int32 [N], the index in the paragraph of the first paragraph token in each window.
      first: int32 [N], its index in the window.
      size: int32 [N], how many paragraph tokens each window has.
      spans: int32 [P, 2] of each question, where the P tokens of its paragraph start and end in it.
    """

    question: np.ndarray
    begin: np.ndarray
    first: np.ndarray
    size: np.ndarray
    spans: list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class QuestionAnswering:
    """The family of tasks; the defaults are those of `run_squad.py`.

    Attributes:
      unanswerable: whether a question may have no answer in its paragraph (SQuAD 2.0).
      max_query_length: the most tokens of a question; the rest is cut off.
      stride: the tokens of the paragraph between the starts of two windows.
      max_answer_length: the most tokens of an answer.
      n_best: the most answers of a prediction.
    """

    unanswerable: bool = False
    max_query_length: Count = 64
    stride: Count = 128
    max_answer_length: Few = 30
    n_best: Few = 20

    objective: ClassVar[str] = "question_answering"
    fields: ClassVar[tuple[str, ...]] = ("question", "context")
    classes: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        check_limits(self)

    # ------------------------------------------------------------------------------ encode

    def encode(
        self,
        examples: Sequence[Question],
        tokenizer: Tokenizer,
        max_length: int,
        *,
        labelled: bool,
    ) -> Windows:
        """Encodes questions as windows: pairs of the question and a slice of the paragraph.

        If a window does not contain the whole answer, or the question is impossible, its label is
        position 0, where BERT has [CLS].
        """
        template = tokenizer.template
        specials = template.specials(pair=True)
        room = max_length - specials - self.max_query_length
        if room < self.stride:
            raise InputError(
                f"max_length={max_length} less {specials} and max_query_length="
                f"{self.max_query_length} leaves {max(room, 0)} tokens for a paragraph, fewer than "
                f"stride={self.stride}: windows would skip tokens: raise max_length, or lower the "
                "other two"
            )
        contexts = list(dict.fromkeys(example.context for example in examples))
        encoded = tokenizer.encode_with_offsets(contexts)
        paragraphs = dict(zip(contexts, encoded, strict=True))
        queries = tokenizer.encode([example.question for example in examples])

        sequences, places, labels = [], [], []
        pairs = zip(tracked(examples, "windows", " questions"), queries, strict=True)
        for number, (example, query) in enumerate(pairs):
            ids, spans = paragraphs[example.context]
            _require_tokens(example, query, spans)
            answer = _answer_tokens(example, spans) if labelled else None
            query = query[: self.max_query_length]
            _, first = template.begins(len(query))
            room = max_length - specials - len(query)
            for begin in range(0, max(len(ids) - room, 0) + self.stride, self.stride):
                piece = ids[begin : begin + room]
                sequences.append(template.sequence(query, piece))
                places.append((number, begin, first, len(piece)))
                labels.append(_places(answer, begin, len(piece), first))
        questions, begins, firsts, sizes = np.array(places, np.int32).reshape(-1, 4).T
        starts, ends = np.array(labels, np.int32).reshape(-1, 2).T
        return Windows.of(
            sequences,
            {"start_positions": starts, "end_positions": ends} if labelled else {},
            cut={self.max_query_length: sum(len(q) > self.max_query_length for q in queries)},
            question=questions,
            begin=begins,
            first=firsts,
            size=sizes,
            spans=[paragraphs[example.context][1] for example in examples],
        )

    # ------------------------------------------------------------------------------ decode

    def decode(
        self, examples: Sequence[Question], encoded: Windows, outputs: Outputs
    ) -> list[Spans]:
        """The spans with the highest scores of each question, over all its windows.

        A token can start an answer only in the window where its context is widest. The search is
        exact: it compares all spans of at most `max_answer_length` tokens, whereas `run_squad.py`
        combines the best starts with the best ends.
        """
        bounds = np.searchsorted(encoded.question, np.arange(len(examples) + 1))
        return [
            self._spans_of(example, encoded, range(first, stop), outputs)
            for example, first, stop in zip(
                tracked(examples, "answers", " questions"), bounds, bounds[1:], strict=False
            )
        ]

    def _spans_of(
        self, example: Question, encoded: Windows, windows: range, outputs: Outputs
    ) -> Spans:
        spans = encoded.spans[encoded.question[windows.start]]
        begins, firsts, counts = (
            each[windows.start : windows.stop]
            for each in (encoded.begin, encoded.first, encoded.size)
        )
        widest = widest_windows(begins, counts, len(spans))
        has_text = spans[:, 0] < spans[:, 1]

        logits_of = []  # for each window: its first paragraph token and the logits
        nulls = [np.inf]
        for number, window in enumerate(windows):
            start, end = outputs["start"][window], outputs["end"][window]
            shown = slice(begins[number], begins[number] + counts[number])
            place = slice(firsts[number], firsts[number] + counts[number])
            is_widest = has_text[shown] & (widest[shown] == number)
            start_of = np.where(is_widest, start[place], -np.inf)
            logits_of.append(
                (begins[number], start_of, np.where(has_text[shown], end[place], -np.inf))
            )
            nulls.append(float(start[0] + end[0]))
        null_score = min(nulls) if self.unanswerable else None

        most, scored = self.n_best, None
        while scored is None:
            scored = self._distinct(example.context, spans, logits_of, most)
            most *= 4
        rivals = [score for _, _, score in scored.values()] + [null_score] * self.unanswerable
        probabilities = softmax(np.array(rivals)).tolist()[: len(scored)]
        answers = zip(scored.items(), probabilities, strict=True)
        return Spans(tuple(Span(text, *rest, each) for (text, rest), each in answers), null_score)

    def _distinct(
        self,
        context: str,
        spans: np.ndarray,
        logits_of: Sequence[tuple[int, np.ndarray, np.ndarray]],
        most: int,
    ) -> dict[str, tuple[int, int, float]] | None:
        """The `n_best` texts of the `most` best spans -> (start, end, score); None: too few."""
        found = []
        for begin, start, end in logits_of:
            scores, first, last = self._best(start, end, most)
            found.append((scores, first + begin, last + begin))
        scores, first, last = map(np.concatenate, zip(*found, strict=True))
        best = np.lexsort((last, first, -scores))[:most]
        begins, ends = spans[first[best], 0].tolist(), spans[last[best], 1].tolist()
        texts: dict[str, tuple[int, int, float]] = {}
        for begin, end, score in zip(begins, ends, scores[best].tolist(), strict=True):
            texts.setdefault(context[begin:end], (begin, end, score))
        if len(texts) < self.n_best and len(scores) >= most:
            return None
        return dict(islice(texts.items(), self.n_best))

    def _best(self, start: np.ndarray, end: np.ndarray, most: int) -> tuple[np.ndarray, ...]:
        """The scores, first and last tokens of the `most` best spans; -inf excludes a token."""
        padded = np.concatenate([end, np.full(self.max_answer_length - 1, -np.inf, end.dtype)])
        ends = np.lib.stride_tricks.sliding_window_view(padded, self.max_answer_length)
        scores = (start[:, None] + ends).reshape(-1)  # index: first token, length - 1
        kept = max(scores.size - most, 0)
        best = np.argpartition(scores, kept)[kept:]
        best = best[scores[best] > -np.inf]
        first, further = np.divmod(best, self.max_answer_length)
        return scores[best], first, first + further

    def combine(self, members: Sequence[Sequence[Spans]], by: str) -> list[Spans]:
        """Combines, in each question, the distinct texts of all members, and "no answer".

        A text that a member does not list has the probability 0 for that member; with `LOGITS`,
        that of the member's last answer, because it cannot be likelier. A score is the logarithm of
        the combined probability plus a constant, the mean over the members of their score minus
        their logarithm. So scores can be compared between paragraphs, and one member keeps its
        scores.
        """
        return [self._averaged_spans(each, by) for each in zip(*members, strict=True)]

    def _averaged_spans(self, members: Sequence[Spans], by: str) -> Spans:
        listed = [span for member in members for span in member.answers]
        likeliest: dict[str, Span] = {}
        for span in sorted(listed, key=lambda span: -span.probability):
            likeliest.setdefault(span.text, span)  # its place becomes that of the text
        columns = {text: column for column, text in enumerate(likeliest)}
        table = np.zeros((len(members), len(columns) + self.unanswerable))
        above = 0.0
        for row, member in zip(table, members, strict=True):
            rivals = [span.score for span in member.answers]
            probabilities = softmax(np.array(rivals + [member.null_score] * self.unanswerable))
            above += (rivals[0] - np.log(probabilities[0])) / len(members)
            row[:] = probabilities[: len(rivals)].min() if by == LOGITS else 0.0
            row[[columns[span.text] for span in member.answers]] = probabilities[: len(rivals)]
            if self.unanswerable:
                row[-1] = probabilities[-1]

        scores = logarithm(combined(table, by)) + above
        best = np.argsort(-scores[: len(columns)], kind="stable")[: self.n_best]
        kept = np.concatenate([scores[best], scores[len(columns) :]])  # and "no answer"
        spans = [list(likeliest.values())[column] for column in best]
        answers = tuple(
            span._replace(score=score, probability=probability)
            for span, score, probability in zip(
                spans, kept.tolist(), softmax(kept).tolist(), strict=False
            )
        )
        return Spans(answers, float(scores[-1]) if self.unanswerable else None)

    # ----------------------------------------------------------------------------- the rest

    def degenerate(self, predictions: Sequence[Spans], settings: Mapping[str, Any]) -> str:
        """Says so if no question has an answer, or if all answers begin at the same character."""
        threshold = settings.get(NULL_THRESHOLD, 0.0)
        if not any(prediction.answer(threshold) for prediction in predictions):
            return "all are without an answer"
        starts = {prediction.answers[0].start for prediction in predictions}
        if len(starts) == 1 and len(predictions) > 1:
            return f"all answers begin at character {starts.pop()}"
        return ""

    def parse(self, line: str, where: str) -> Question:
        """Parses {"question": …, "context": …}, which may have an "id"."""
        form = '{"question": "...", "context": "..."}'
        fields = json_object(line, where, form, _LINE)
        for name in _TEXTS:
            if not fields[name].strip():
                raise InputError(f"{where}: {name!r} is empty")
        return Question(fields.get("id", ""), fields["question"], fields["context"], where=where)

    def show(
        self, example: Question, prediction: Spans, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The best answer, and the next best answers.

        "start" and "end" are characters of the paragraph; for "no answer" (""), they are None.
        """
        shown: dict[str, Any] = {"id": example.id} if example.id else {}
        shown["question"] = example.question
        shown |= _as_json(prediction.answers[0])
        if not prediction.answer(settings.get(NULL_THRESHOLD, 0.0)):
            shown |= {"answer": "", "start": None, "end": None, "score": prediction.null_score}
            shown["probability"] = prediction.null_probability
        shown["answers"] = [_as_json(span) for span in prediction.answers[:_SHOWN]]
        if prediction.null_score is not None:
            shown["no_answer_score"] = prediction.null_score
            shown["no_answer_probability"] = prediction.null_probability
        return shown


def _as_json(span: Span) -> dict[str, Any]:
    text, *rest = span
    return {"answer": text, **dict(zip(Span._fields[1:], rest, strict=True))}


def widest_windows(begins: np.ndarray, counts: np.ndarray, size: int) -> np.ndarray:
    """The first window, int64 [size], in which the context of each token of a paragraph is widest.

    As in `run_squad.py`, the context is the smaller of the numbers of tokens before and after it,
    plus 0.01 of the window's length. Of W windows, `begins` has the first token, and `counts` the
    number of paragraph tokens.
    """
    before = np.arange(size) - begins[:, None]
    after = counts[:, None] - 1 - before
    narrower = np.minimum(before, after)
    context = np.where(narrower >= 0, narrower + 0.01 * counts[:, None], -np.inf)
    return context.argmax(0)


def _require_tokens(example: Question, query: list[int], spans: np.ndarray) -> None:
    has_text = np.any(spans[:, 0] < spans[:, 1])
    for name, has_tokens in (("question", len(query)), ("context", has_text)):
        if not has_tokens:
            text = getattr(example, name)
            raise InputError(f"{example.where}: {name} {text!r} is empty (it has no tokens)")


def is_in_place(example: Question) -> bool:
    """Whether the paragraph has the first answer at the answer's position; True without answers."""
    return all(
        start >= 0 and example.context[start : start + len(text)] == text
        for text, start in example.answers[:1]
    )


def _answer_tokens(example: Question, spans: np.ndarray) -> tuple[int, int] | None:
    """The first and the last token of the paragraph that have characters of the answer."""
    if example.impossible:
        return None
    if not example.answers:
        raise InputError(f"{example.where}: no answer to learn from, and not marked impossible")
    text, start = example.answers[0]
    if not is_in_place(example):
        found = example.context[max(start, 0) : max(start, 0) + len(text)]
        raise InputError(
            f"{example.where}: the answer {text!r} is not at character {start} of the context, "
            f"where {found!r} is: correct the position (in characters, from 0)"
        )
    begins, ends = spans.T
    inside = (begins < start + len(text)) & (ends > start) & (begins < ends)
    tokens = np.flatnonzero(inside)
    if not len(tokens):
        raise InputError(f"{example.where}: the answer {text!r} is empty (it has no tokens)")
    return tokens[0], tokens[-1]


def _places(answer: tuple[int, int] | None, begin: int, count: int, first: int) -> tuple[int, int]:
    """The positions of the answer's first and last token in a window; 0, 0 if it is not whole."""
    if answer is None or answer[0] < begin or answer[1] >= begin + count:
        return 0, 0
    return answer[0] - begin + first, answer[1] - begin + first
