"""Answers that are spans of a paragraph (sections 4.2 and 4.3): windows in, the best spans out.

As google-research/bert `run_squad.py`, but for characters: each token knows those of the paragraph
it was made of, so an answer is cut from the paragraph itself and no text is put together again.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bertjax.errors import InputError
from bertjax.progress import tracked
from bertjax.tasks.classification import softmax
from bertjax.tasks.encoded import Encoded
from bertjax.tasks.rows import json_object
from bertjax.tasks.task import Outputs
from bertjax.text.tokenizer import Tokenizer

NULL_THRESHOLD = "null_threshold"  # in a task's settings: see `Spans.answer`
_TEXTS = ("question", "context")
_SHOWN = 5  # answers that `show` lists


class Answer(NamedTuple):
    """A text, and the character of the paragraph it starts at."""

    text: str
    start: int


class Question(NamedTuple):
    """A question about a paragraph.

    Attributes:
      context: the paragraph.
      answers: as people gave them; training takes the first.
      impossible: the paragraph does not answer it (SQuAD 2.0).
      where: it stands, for messages.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False
    where: str = ""


class Span(NamedTuple):
    """Characters start..end-1 of a paragraph, and what the model gives them.

    Attributes:
      score: the start logit of the first token plus the end logit of the last.
      probability: by softmax over the scores of all spans in `Spans`.
    """

    text: str
    start: int
    end: int
    score: float
    probability: float


class Spans(NamedTuple):
    """A prediction.

    Attributes:
      answers: at least one, the best first; no text twice.
      null_score: that of no answer, start and end at [CLS], which takes part in the softmax; None
        where every question has an answer.
    """

    answers: tuple[Span, ...]
    null_score: float | None = None

    @property
    def null_odds(self) -> float:
        """How far the score of no answer is above that of the best one."""
        return -np.inf if self.null_score is None else self.null_score - self.answers[0].score

    @property
    def null_probability(self) -> float:
        """Of no answer; 0.0 where every question has one."""
        return max(0.0, 1.0 - sum(span.probability for span in self.answers))

    def answer(self, threshold: float) -> str:
        """The text of the best answer, or "" if `null_odds` are above the threshold."""
        return "" if self.null_odds > threshold else self.answers[0].text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Windows(Encoded):
    """Encoded questions: N windows, each the whole question and a part of its paragraph.

    Attributes:
      question: int32 [N], ascending: the number of each window's question.
      begin: int32 [N], the token of the paragraph each window's part begins with; in the window it
        stands at `first`.
      spans: for each question int32 [P, 2], the characters of the paragraph's P tokens.
    """

    question: np.ndarray
    begin: np.ndarray
    spans: list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class QuestionAnswering:
    """The family of tasks; the defaults are those of `run_squad.py`.

    Attributes:
      unanswerable: whether a question may have no answer in its paragraph (SQuAD 2.0).
      max_query_length: tokens of a question; the rest is cut off.
      stride: tokens of the paragraph from the begin of one window to that of the next.
      max_answer_length: tokens of an answer.
      n_best: answers of a prediction, at most.
    """

    unanswerable: bool = False
    max_query_length: int = 64
    stride: int = 128
    max_answer_length: int = 30
    n_best: int = 20

    objective = "question_answering"
    classes = ()

    def __post_init__(self):
        for name in ("max_query_length", "stride", "max_answer_length", "n_best"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)}: must be at least 1")

    # ------------------------------------------------------------------------------ encode

    def encode(
        self,
        examples: Sequence[Question],
        tokenizer: Tokenizer,
        max_length: int,
        *,
        labelled: bool,
    ) -> Windows:
        """Questions in windows: [CLS] question [SEP] part of the paragraph [SEP].

        A window without the whole answer, and each one of an impossible question, has [CLS], place
        0, for an answer.

        Raises:
          InputError: no room for `stride` tokens of a paragraph; a question or paragraph without
            tokens; with `labelled`, an answer that is missing or not at its place.
        """
        room = max_length - 3 - self.max_query_length
        if room < self.stride:
            raise InputError(
                f"max_length={max_length} less 3 and max_query_length={self.max_query_length} "
                f"leaves {max(room, 0)} tokens for a paragraph, fewer than stride={self.stride}: "
                "some would be in no window: raise max_length, or lower the other two"
            )
        contexts = list(dict.fromkeys(example.context for example in examples))
        encoded = tokenizer.encode_with_offsets(contexts)
        paragraphs = dict(zip(contexts, encoded, strict=True))
        queries = tokenizer.encode([example.question for example in examples])

        sequences, question, begins, labels = [], [], [], []
        pairs = zip(tracked(examples, "windows", " questions"), queries, strict=True)
        for number, (example, query) in enumerate(pairs):
            ids, spans = paragraphs[example.context]
            _require_tokens(example, query, spans)
            answer = _answer_tokens(example, spans) if labelled else None
            head = [tokenizer.cls_id, *query[: self.max_query_length], tokenizer.sep_id]
            room = max_length - len(head) - 1
            for begin in range(0, max(len(ids) - room, 0) + self.stride, self.stride):
                part = ids[begin : begin + room]
                sequences.append(([*head, *part, tokenizer.sep_id], len(head)))
                question.append(number)
                begins.append(begin)
                labels.append(_places(answer, begin, len(part), len(head)))
        places = np.array(labels, np.int32).reshape(-1, 2)
        return Windows.of(
            sequences,
            {"start_positions": places[:, 0], "end_positions": places[:, 1]} if labelled else {},
            cut={self.max_query_length: sum(len(q) > self.max_query_length for q in queries)},
            question=np.array(question, np.int32),
            begin=np.array(begins, np.int32),
            spans=[paragraphs[example.context][1] for example in examples],
        )

    # ------------------------------------------------------------------------------ decode

    def decode(
        self, examples: Sequence[Question], encoded: Windows, outputs: Outputs
    ) -> list[Spans]:
        """The spans of highest score of each question, over all its windows.

        A token starts an answer only in the window that shows it with the widest context. The
        search is exact: every span of at most `max_answer_length` tokens. (`run_squad.py` combines
        the best starts with the best ends.)

        Args:
          outputs: "start" and "end", the logits of each window's tokens.
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
        begins = encoded.begin[windows.start : windows.stop]
        heads = encoded.first[windows.start : windows.stop]
        counts = np.diff(encoded.starts[windows.start : windows.stop + 1]) - heads - 1
        widest = widest_windows(begins, counts, len(spans))
        has_text = spans[:, 0] < spans[:, 1]

        parts = []  # of the paragraph, as windows show them: the logits of its tokens
        null_score = np.inf if self.unanswerable else None
        for number, window in enumerate(windows):
            start, end = outputs["start"][window], outputs["end"][window]
            shown = slice(begins[number], begins[number] + counts[number])
            place = slice(heads[number], heads[number] + counts[number])
            mine = has_text[shown] & (widest[shown] == number)
            start_of = np.where(mine, start[place], -np.inf)
            parts.append((begins[number], start_of, np.where(has_text[shown], end[place], -np.inf)))
            if self.unanswerable:
                null_score = min(null_score, float(start[0] + end[0]))

        most, scored = self.n_best, None
        while scored is None:
            scored = self._distinct(example.context, spans, parts, most)
            most *= 4
        rivals = [score for _, _, score in scored.values()] + [null_score] * self.unanswerable
        probabilities = softmax(np.array(rivals)).tolist()[: len(scored)]
        answers = zip(scored.items(), probabilities, strict=True)
        return Spans(tuple(Span(text, *rest, each) for (text, rest), each in answers), null_score)

    def _distinct(
        self,
        context: str,
        spans: np.ndarray,
        parts: Sequence[tuple[int, np.ndarray, np.ndarray]],
        most: int,
    ) -> dict[str, tuple[int, int, float]] | None:
        """text -> (start, end, score) of the `n_best` texts among the `most` best spans.

        None if these are too few, and there are more spans.

        Args:
          parts: the first token of each, and the logits [P] of its tokens as start and as end.
        """
        found = []
        for begin, start, end in parts:
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
        """Scores, first and last tokens of the best spans, from logits [P] of all first and last.

        They are in no order. Tokens with -inf take no part.
        """
        behind = np.concatenate([end, np.full(self.max_answer_length - 1, -np.inf, end.dtype)])
        ends = np.lib.stride_tricks.sliding_window_view(behind, self.max_answer_length)
        scores = (start[:, None] + ends).reshape(-1)  # of first token, length - 1
        kept = max(scores.size - most, 0)
        best = np.argpartition(scores, kept)[kept:]
        best = best[scores[best] > -np.inf]
        first, more = np.divmod(best, self.max_answer_length)
        return scores[best], first, first + more

    # ----------------------------------------------------------------------------- the rest

    def degenerate(self, predictions: Sequence[Spans], settings: Mapping[str, Any]) -> str:
        """Whether every question has no answer, or all answers begin at the same character."""
        threshold = settings.get(NULL_THRESHOLD, 0.0)
        if not any(prediction.answer(threshold) for prediction in predictions):
            return "all are without an answer"
        starts = {prediction.answers[0].start for prediction in predictions}
        if len(starts) == 1 and len(predictions) > 1:
            return f"all answers begin at character {starts.pop()}"
        return ""

    def parse(self, line: str, where: str) -> Question:
        """A question from {"question": …, "context": …}, and "id" if it has one."""
        form = '{"question": "...", "context": "..."}'
        fields = json_object(line, where, form)
        if not all(isinstance(fields.get(name, ""), str) for name in (*_TEXTS, "id")):
            raise InputError(f"{where}: {line.strip()[:80]}: write {form}")
        for name in _TEXTS:
            if not fields.get(name, "").strip():
                raise InputError(f"{where}: no {name!r}, or an empty one")
        return Question(fields.get("id", ""), fields["question"], fields["context"], where=where)

    def show(
        self, example: Question, prediction: Spans, settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The best answer, and the next ones.

        "start" and "end" are characters of the paragraph; of no answer, "", they are None.
        """
        shown: dict[str, Any] = {"id": example.id} if example.id else {}
        shown["question"] = example.question
        best = prediction.answers[0]
        if not prediction.answer(settings.get(NULL_THRESHOLD, 0.0)):
            best = Span("", None, None, prediction.null_score, prediction.null_probability)
        shown |= _as_json(best)
        shown["answers"] = [_as_json(span) for span in prediction.answers[:_SHOWN]]
        if prediction.null_score is not None:
            shown["no_answer_score"] = prediction.null_score
            shown["no_answer_probability"] = prediction.null_probability
        return shown


def _as_json(span: Span) -> dict[str, Any]:
    text, *rest = span
    return {"answer": text, **dict(zip(Span._fields[1:], rest, strict=True))}


def widest_windows(begins: np.ndarray, counts: np.ndarray, size: int) -> np.ndarray:
    """Which window shows each token of a paragraph with the widest context; the first of equals.

    As `run_squad.py`: the fewer of the tokens before it and behind it count, and a little the
    length of the window.

    Args:
      begins: int [W], the first token of each window.
      counts: int [W], how many it shows.
      size: P, the tokens of the paragraph.

    Returns:
      int64 [P].
    """
    before = np.arange(size) - begins[:, None]
    behind = counts[:, None] - 1 - before
    narrower = np.minimum(before, behind)
    context = np.where(narrower >= 0, narrower + 0.01 * counts[:, None], -np.inf)
    return context.argmax(0)


def _require_tokens(example: Question, query: list[int], spans: np.ndarray) -> None:
    for name, there in (("question", len(query)), ("context", np.any(spans[:, 0] < spans[:, 1]))):
        if not there:
            text = getattr(example, name)
            raise InputError(f"{example.where}: {name} {text!r} is empty (it has no tokens)")


def is_in_place(example: Question) -> bool:
    """Whether the first answer, if there is one, stands at its place in the paragraph."""
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
        there = example.context[max(start, 0) : max(start, 0) + len(text)]
        raise InputError(
            f"{example.where}: the answer {text!r} is not at character {start} of the context, "
            f"where {there!r} is: correct the place (in characters, from 0)"
        )
    begins, ends = spans.T
    inside = (begins < start + len(text)) & (ends > start) & (begins < ends)
    tokens = np.flatnonzero(inside)
    if not len(tokens):
        raise InputError(f"{example.where}: the answer {text!r} is empty (it has no tokens)")
    return tokens[0], tokens[-1]


def _places(answer: tuple[int, int] | None, begin: int, count: int, head: int) -> tuple[int, int]:
    """The places of the answer's ends in a window; 0, 0 if not all of it is in there."""
    if answer is None or answer[0] < begin or answer[1] >= begin + count:
        return 0, 0
    return answer[0] - begin + head, answer[1] - begin + head
