"""The family of question answering: windows over a paragraph in, spans of it out."""

import dataclasses
import json

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.tasks.question_answering import (
    Answer,
    Question,
    QuestionAnswering,
    Span,
    Spans,
    widest_windows,
)
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from bertjax.text.vocabulary import learn

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """An uncased tokenizer with a piece for each letter: a word of n letters has n tokens."""
    pieces = [*SPECIAL_TOKENS, *LETTERS, *(f"##{each}" for each in LETTERS), *"?.,\u4e2d\u6587"]
    return Tokenizer("wordpiece", "\n".join(pieces).encode(), "here", cased=False)


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("model") / "learned.model"
    texts = [
        f"Who sat on mat {n % 7}? The cat number {n} did, in caf\u00e9 {n}." for n in range(99)
    ]
    learn("sentencepiece", texts, path, size=80, cased=True)
    return Tokenizer.open(path)


@pytest.fixture(scope="module")
def bpe(tmp_path_factory) -> Tokenizer:
    """A byte-level BPE, in which rare characters are several tokens."""
    path = tmp_path_factory.mktemp("model") / "bpe.json"
    learn("bpe", [f"Who sat on mat {n % 7}?" for n in range(9)], path, size=275, cased=True)
    return Tokenizer.open(path)


def question(text: str, context: str, *answers: str, **fields) -> Question:
    found = tuple(Answer(answer, context.index(answer)) for answer in answers)
    return Question("q", text, context, found, where="a.json question q", **fields)


def tokens(tokenizer, encoded) -> list[str]:
    """The pieces of each window."""
    bounds = zip(encoded.starts, encoded.starts[1:], strict=False)
    return [" ".join(tokenizer.tokens[i] for i in encoded.ids[a:b]) for a, b in bounds]


def labels(encoded) -> list[tuple[int, int]]:
    ends = (encoded.labels[f"{name}_positions"].tolist() for name in ("start", "end"))
    return list(zip(*ends, strict=True))


def labelled_text(example, encoded, window: int = 0) -> str:
    """The text of the paragraph that the labels of a window mark."""
    start, end = np.array(labels(encoded)[window]) + encoded.begin[window] - encoded.first[window]
    spans = encoded.spans[encoded.question[window]]
    return example.context[spans[start, 0] : spans[end, 1]]


def random_outputs(encoded, seed: int = 0):
    numbers = np.random.default_rng(seed)
    logits = numbers.normal(size=(2, len(encoded.ids))).astype(np.float32)
    start, end = (np.split(each, encoded.starts[1:-1]) for each in logits)
    return {"start": start, "end": end}


# ------------------------------------------------------------------------------------ encode


def test_windows_and_their_labels(tokenizer):
    """If the border of a window cuts an answer, the window has no answer."""
    family = QuestionAnswering(max_query_length=2, stride=2)
    examples = [question("Abc?", "de f g hi.", "f g"), question("x", "y z", "z")]
    encoded = family.encode(examples, tokenizer, 9, labelled=True)
    assert tokens(tokenizer, encoded) == [
        "[CLS] a ##b [SEP] d ##e f g [SEP]",
        "[CLS] a ##b [SEP] f g h ##i [SEP]",
        "[CLS] a ##b [SEP] h ##i . [SEP]",
        "[CLS] x [SEP] y z [SEP]",
    ]
    assert labels(encoded) == [(6, 7), (4, 5), (0, 0), (4, 4)]
    assert encoded.question.tolist() == [0, 0, 0, 1]
    assert encoded.begin.tolist() == [0, 2, 4, 0]
    assert encoded.first.tolist() == [4, 4, 4, 3]
    assert len(encoded) == 4 and encoded.lengths.tolist() == [9, 9, 8, 6]
    assert encoded.cut == {2: 1}  # the first question
    longer = QuestionAnswering(max_query_length=4, stride=2)
    assert longer.encode(examples, tokenizer, 9, labelled=False).cut == {4: 0}

    cut = family.encode([question("Abc?", "de f g hi.", "e f g h")], tokenizer, 9, labelled=True)
    assert labels(cut) == [(0, 0)] * 3

    batch = encoded.batch(
        TASK_LOSSES["question_answering"].fields, np.array([1, 3]), 3, 9, tokenizer.pad_id
    )
    assert batch["start_positions"].tolist() == [4, 4, 0]
    assert batch["end_positions"].tolist() == [5, 4, 0]
    assert batch["token_type_ids"].tolist() == [
        [0] * 4 + [1] * 5,
        [0] * 3 + [1] * 3 + [0] * 3,
        [0] * 9,
    ]

    unlabelled = family.encode(examples, tokenizer, 9, labelled=False)
    assert unlabelled.labels == {} and unlabelled.ids.tolist() == encoded.ids.tolist()


def reference_windows(size: int, room: int, stride: int) -> list[tuple[int, int]]:
    """The starts and lengths of the windows of `run_squad.py`."""
    found, start = [], 0
    while start < size:
        length = min(size - start, room)
        found.append((start, length))
        if start + length == size:
            break
        start += min(length, stride)
    return found


def test_windows_are_those_of_the_reference(tokenizer):
    for size in range(1, 40):
        for stride in (1, 3, 7):
            for room in (stride, stride + 1, stride + 5):
                family = QuestionAnswering(max_query_length=1, stride=stride)
                context = "".join(np.random.default_rng(size).choice(list("abc "), size=3 * size))
                context = " ".join(context.split())[:size].strip() or "a"
                encoded = family.encode(
                    [question("?", context)], tokenizer, room + 4, labelled=False
                )
                (ids,) = tokenizer.encode([context])
                expected = reference_windows(len(ids), room, stride)
                assert encoded.begin.tolist() == [start for start, _ in expected]
                for window, (start, length) in enumerate(expected):
                    piece = encoded.ids[slice(*encoded.starts[window : window + 2])]
                    assert piece[3:-1].tolist() == ids[start : start + length]
                covered = {t for start, length in expected for t in range(start, start + length)}
                assert covered == set(range(len(ids)))


HARD_PARAGRAPHS = {
    "accents": ("In Cafe\u0301 Ren\u00e9 he sat.", "Cafe\u0301 Ren\u00e9"),
    "an accent at the end": ("he sat in a cafe\u0301.", "cafe\u0301"),
    "Chinese": ("the \u4e2d\u6587\u4e2d is x", "\u6587"),
    "no-break spaces": ("a\u00a0bc\u2003d e", "bc\u2003d"),
    "control characters": ("ab\x00c d\u200b e", "ab\x00c"),
    "unknown words": ("\u3053\u3093 \U0001f600 z", "\U0001f600"),
    "longer in lower case": ("a \u0130\u0130 b", "\u0130\u0130"),
    "white space around": ("a  bc  d", " bc "),
}


@pytest.mark.parametrize("name", HARD_PARAGRAPHS)
@pytest.mark.parametrize("fixture", ["tokenizer", "sentencepiece", "bpe"])
def test_labels_of_hard_paragraphs(request, fixture, name):
    """The labelled tokens are those of the answer: the text at their characters is the answer."""
    context, answer = HARD_PARAGRAPHS[name]
    example = question("Who?", context, answer)
    encoded = QuestionAnswering().encode(
        [example], request.getfixturevalue(fixture), 384, labelled=True
    )
    text = labelled_text(example, encoded)
    assert text in context and answer.strip() in text
    if not (fixture == "sentencepiece" and encoded.ids.tolist().count(1)):  # [UNK] may cover more
        assert text == answer.strip()


def test_an_answer_within_a_token_takes_the_whole_of_it(sentencepiece):
    example = question("Who?", "The cat number 5", "umbe")
    encoded = QuestionAnswering().encode([example], sentencepiece, 384, labelled=True)
    assert "umbe" in labelled_text(example, encoded)
    assert labelled_text(example, encoded) in "number"


def test_impossible_questions(tokenizer):
    family = QuestionAnswering(unanswerable=True)
    examples = [question("a", "b c", "c", impossible=True), question("a", "b c", impossible=True)]
    assert labels(family.encode(examples, tokenizer, 384, labelled=True)) == [(0, 0)] * 2


@pytest.mark.parametrize(
    "example, message",
    [
        (question(" ", "a"), r"a\.json question q: question ' ' is empty"),
        (question("\u200b", "a"), r"question '\\u200b' is empty \(it has no tokens\)"),
        (question("a", "\n"), r"question q: context '\\n' is empty"),
        (question("a", "b"), "no answer to learn from, and not marked impossible"),
        (
            question("a", "bcd")._replace(answers=(Answer("cd", 0),)),
            "the answer 'cd' is not at character 0 of the context, where 'bc' is",
        ),
        (
            question("a", "bcd")._replace(answers=(Answer("cd", -2),)),
            "not at character -2 of the context",
        ),
        (
            question("a", "bcd")._replace(answers=(Answer("d", 7),)),
            "not at character 7 of the context, where '' is",
        ),
        (question("a", "b c", " "), "the answer ' ' is empty"),
        (question("a", "b c", ""), "the answer '' is empty"),
    ],
)
def test_bad_examples(tokenizer, example, message):
    with pytest.raises(InputError, match=message):
        QuestionAnswering().encode([example], tokenizer, 384, labelled=True)


def test_no_room_for_the_stride(tokenizer):
    with pytest.raises(InputError, match="leaves 127 tokens for a paragraph, fewer than stride=1"):
        QuestionAnswering().encode([], tokenizer, 194, labelled=True)
    assert len(QuestionAnswering().encode([], tokenizer, 195, labelled=True)) == 0
    with pytest.raises(ValueError, match="stride=0: must be at least 1"):
        QuestionAnswering(stride=0)


# ------------------------------------------------------------------------------------ decode


def reference_is_widest(windows: list[tuple[int, int]], which: int, token: int) -> bool:
    """`_check_is_max_context` of `run_squad.py`."""
    best_score, best = None, None
    for number, (start, length) in enumerate(windows):
        end = start + length - 1
        if token < start or token > end:
            continue
        score = min(token - start, end - token) + 0.01 * length
        if best_score is None or score > best_score:
            best_score, best = score, number
    return which == best


def test_the_widest_context_is_that_of_the_reference():
    for size, room, stride in [(1, 5, 2), (40, 9, 4), (41, 10, 3), (300, 100, 64), (200, 50, 50)]:
        windows = reference_windows(size, room, stride)
        begins, counts = np.array(windows).T
        widest = widest_windows(begins, counts, size)
        for token in range(size):
            assert reference_is_widest(windows, widest[token], token)


def test_a_window_that_is_longer_by_a_hundred_tokens_wins_by_one():
    """A token with 60 - n tokens before it in one window, and 60 after it in the other."""
    for fewer, longer, first in [(1, 101, 0), (1, 99, 1), (2, 201, 0), (2, 199, 1), (0, 0, 0)]:
        begins = np.array([fewer, 0])
        counts = np.array([121 + longer, 121])
        assert widest_windows(begins, counts, 400)[60] == first


def naive_spans(example, encoded, outputs, longest, n_best):
    """Scores every pair of tokens of every window in plain loops: (score, text), best first."""
    count = len(encoded.first)
    size = np.diff(encoded.starts) - encoded.first - 1
    windows = list(zip(encoded.begin.tolist(), size.tolist(), strict=True))
    spans = encoded.spans[0].tolist()
    found = []
    for window in range(count):
        begin, length = windows[window]
        for i in range(begin, begin + length):
            for j in range(i, begin + length):
                empty = spans[i][0] == spans[i][1] or spans[j][0] == spans[j][1]
                widest = reference_is_widest(windows, window, i)
                if j - i + 1 <= longest and widest and not empty:
                    place = encoded.first[window] - begin
                    score = outputs["start"][window][i + place] + outputs["end"][window][j + place]
                    found.append((score, example.context[spans[i][0] : spans[j][1]]))
    found.sort(key=lambda each: -each[0])
    texts = {}
    for score, text in found:
        texts.setdefault(text, float(score))
    return dict(list(texts.items())[:n_best])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fixture", ["tokenizer", "sentencepiece", "bpe"])
def test_decode_is_the_naive_search(request, fixture, seed):
    numbers = np.random.default_rng(seed)
    letters = list("abcd  .\u00e9\u00bd")
    context = "".join(numbers.choice(letters, size=int(numbers.integers(5, 90)))) + " end"
    example = question("Who?", context)
    unanswerable = bool(seed % 2)
    family = QuestionAnswering(unanswerable, 2, stride=5, max_answer_length=6, n_best=20)
    encoded = family.encode([example], request.getfixturevalue(fixture), 17, labelled=False)
    outputs = random_outputs(encoded, seed)
    (got,) = family.decode([example], encoded, outputs)
    expected = naive_spans(example, encoded, outputs, longest=6, n_best=20)
    assert {span.text: span.score for span in got.answers} == expected
    assert [span.text for span in got.answers] == list(expected)
    assert all(context[span.start : span.end] == span.text for span in got.answers)

    scores = list(expected.values())
    if unanswerable:
        sums = [s[0] + e[0] for s, e in zip(outputs["start"], outputs["end"], strict=True)]
        assert got.null_score == min(sums)
        scores.append(got.null_score)
    else:
        assert got.null_score is None and got.null_odds == -np.inf
    powers = np.exp(np.array(scores))
    expected_probabilities = (powers / powers.sum())[: len(got.answers)]
    np.testing.assert_allclose([s.probability for s in got.answers], expected_probabilities)
    rest = powers[-1] / powers.sum() if unanswerable else 0.0
    assert got.null_probability == pytest.approx(rest, abs=1e-12)


def test_texts_that_are_repeated_take_no_places(tokenizer):
    """The n_best texts are distinct, as in run_squad.py, even if the best spans repeat texts."""
    family = QuestionAnswering(max_query_length=4, stride=8, max_answer_length=1, n_best=3)
    example = question("who", "a " * 11 + "c e")
    encoded = family.encode([example], tokenizer, 40, labelled=False)
    outputs = random_outputs(encoded)
    (spans,) = family.decode([example], encoded, outputs)
    assert sorted(span.text for span in spans.answers) == ["a", "c", "e"]
    assert {s.text: s.score for s in spans.answers} == naive_spans(example, encoded, outputs, 1, 3)


def test_decode_gives_back_the_labels(tokenizer):
    """The best span of each question is in the window where its token's context is widest."""
    family = QuestionAnswering(max_query_length=4, stride=4)
    context = "ab cd ef gh ij kl mn"
    examples = [question("who", context, answer) for answer in ("cd", "gh ij", "n", "ab", "ef gh")]
    encoded = family.encode(examples, tokenizer, 18, labelled=True)
    outputs = random_outputs(encoded)
    for window, (start, end) in enumerate(labels(encoded)):
        if start:
            outputs["start"][window][start] += 20
            outputs["end"][window][end] += 20
    answers = [each.answers[0].text for each in family.decode(examples, encoded, outputs)]
    assert answers == ["cd", "gh ij", "n", "ab", "ef gh"]


def test_a_short_paragraph_has_few_answers(tokenizer):
    family = QuestionAnswering()
    example = question("who", "a b")
    encoded = family.encode([example], tokenizer, 384, labelled=False)
    (spans,) = family.decode([example], encoded, random_outputs(encoded))
    assert sorted(span.text for span in spans.answers) == ["a", "a b", "b"]
    assert sum(span.probability for span in spans.answers) == pytest.approx(1)


# ---------------------------------------------------------------------------------- the rest


def spans(*scored: tuple[str, int, float], null: float | None = None) -> Spans:
    return Spans(tuple(Span(text, at, at + len(text), s, 0.25) for text, at, s in scored), null)


def test_the_threshold_decides():
    prediction = spans(("a", 3, 2.0), ("b", 5, 1.0), null=2.5)
    assert prediction.null_odds == 0.5
    assert prediction.answer(0.5) == "a" and prediction.answer(0.4) == ""
    assert spans(("a", 3, 2.0)).answer(-99) == "a"


def test_degenerate():
    family = QuestionAnswering()
    some = [spans(("a", 3, 2.0)), spans(("a", 4, 2.0))]
    assert family.degenerate(some, {}) == ""
    assert family.degenerate(some[:1], {}) == ""
    assert family.degenerate(some[:1] * 3, {}) == "all answers begin at character 3"
    none = [each._replace(null_score=5.0) for each in some]
    assert family.degenerate(none, {}) == "all are without an answer"
    assert family.degenerate(none, {"null_threshold": 3.0}) == ""
    assert family.degenerate(some[:1], {"null_threshold": -np.inf}) == ""
    rejected = [each._replace(null_score=1.0) for each in some]
    settings = {"null_threshold": -1.5}
    assert family.degenerate(rejected, settings) == "all are without an answer"
    assert family.degenerate([*none, some[0]], {}) == ""


def test_parse_and_show():
    family = QuestionAnswering()
    example = family.parse('{"question": "Wer?", "context": "A\\nb", "x": 1}', "stdin line 1")
    assert example == Question("", "Wer?", "A\nb", where="stdin line 1")
    prediction = spans(*((letter, n, 9.0 - n) for n, letter in enumerate("abcdefg")))
    first = {"answer": "a", "start": 0, "end": 1, "score": 9.0, "probability": 0.25}
    shown = family.show(example, prediction, {})
    assert shown["answers"][0] == first and len(shown["answers"]) == 5
    del shown["answers"]
    assert shown == {"question": "Wer?"} | first

    example = family.parse('{"id": "7", "question": "Wer?", "context": "A"}', "stdin line 1")
    prediction = prediction._replace(null_score=10.0)
    shown = family.show(example, prediction, {"null_threshold": 0.5})
    assert (shown["id"], shown["answer"], shown["start"], shown["score"]) == ("7", "", None, 10.0)
    assert shown["answers"][0] == first and shown["no_answer_score"] == 10.0
    assert family.show(example, prediction, {"null_threshold": 1.5})["answer"] == "a"
    json.dumps(shown)


@pytest.mark.parametrize(
    "line, message",
    [
        ("Who?", r"line 3: not JSON \("),
        ("[1]", r"line 3: \[1\]: expected `object`, got `array`: write"),
        ('{"question": 5, "context": "a"}', 'write {"question"'),
        ('{"question": "a"}', "line 3: .*: object missing required field `context`: write"),
        ('{"question": " ", "context": "a"}', "line 3: 'question' is empty"),
    ],
)
def test_bad_lines(line, message):
    with pytest.raises(InputError, match=message):
        QuestionAnswering().parse(line, "a.jsonl line 3")


def test_it_is_a_family():
    family = QuestionAnswering()
    assert (family.objective, family.classes) == ("question_answering", ())
    names = {field.name for field in dataclasses.fields(family)}
    assert names == {"unanswerable", "max_query_length", "stride", "max_answer_length", "n_best"}


# ------------------------------------------------------------------------- several models


def said(null: float | None, **scores: float) -> Spans:
    """A member's prediction; an answer's text is its name, and begins at its length."""
    rivals = [*scores.values(), *([] if null is None else [null])]
    powers = np.exp(rivals) / np.exp(rivals).sum()
    ranked = sorted(zip(scores.items(), powers, strict=False), key=lambda each: -each[0][1])
    spans = [Span(name, len(name), 2 * len(name), score, p) for (name, score), p in ranked]
    return Spans(tuple(spans), null)


def test_answers_of_several_models():
    """Each span's probability is the mean; a span that a member does not list has 0 there."""
    one = said(np.log(2.0), a=np.log(4.0), bb=np.log(3.0), c=0.0)  # 4, 3, 1 and 2 of 10
    two = said(5 + np.log(6.0), bb=5 + np.log(2.0), ddd=5 + np.log(2.0))  # 2, 2 and 6 of 10
    family = QuestionAnswering(unanswerable=True, n_best=20)
    (spans,) = family.combine([[one], [two]], "probabilities")
    found = {span.text: span.probability for span in spans.answers}
    assert list(found) == ["bb", "a", "ddd", "c"]
    np.testing.assert_allclose(list(found.values()), [0.25, 0.2, 0.1, 0.05])
    assert spans.null_probability == pytest.approx(0.4)
    assert spans.null_odds == pytest.approx(np.log(0.4 / 0.25))
    # The members' scores are above the logarithms of their probabilities by log(10), and 5 more.
    logarithms = np.log(list(found.values()))
    scores = [span.score for span in spans.answers]
    np.testing.assert_allclose(scores, logarithms + np.log(10) + 2.5)
    assert (spans.answers[2].start, spans.answers[2].end) == (3, 6)
    assert spans.answer(threshold=0.0) == "" and spans.answer(threshold=0.5) == "bb"

    # By logits, what a member does not list is as likely there as the last that it lists.
    (spans,) = family.combine([[one], [two]], "logits")
    powers = np.sqrt([0.3 * 0.2, 0.4 * 0.2, 0.1 * 0.2, 0.1 * 0.2, 0.2 * 0.6])  # bb a ddd c null
    found = {span.text: span.probability for span in spans.answers}
    expected = dict(zip(("bb", "a", "ddd", "c"), powers / powers.sum(), strict=False))
    assert found == pytest.approx(expected) and list(found)[0] == "a"
    assert spans.null_odds == pytest.approx(np.log(powers[4] / powers[1]))

    # By votes: one for a, one for "no answer", and a third divided as the mean.
    (spans,) = family.combine([[one], [two]], "votes")
    found = {span.text: span.probability for span in spans.answers}
    assert found == pytest.approx({"a": 1.2 / 3, "bb": 0.25 / 3, "ddd": 0.1 / 3, "c": 0.05 / 3})
    assert spans.null_probability == pytest.approx(1.4 / 3)

    # The list is as long as a member's, and a sum of probabilities is 1 again.
    few = QuestionAnswering(unanswerable=True, n_best=2)
    (spans,) = few.combine([[one], [two]], "probabilities")
    assert [span.text for span in spans.answers] == ["bb", "a"]
    total = 0.25 + 0.2 + 0.4
    assert [s.probability for s in spans.answers] == pytest.approx([0.25 / total, 0.2 / total])


@pytest.mark.parametrize("by", ["probabilities", "logits"])
def test_answers_of_a_model_and_its_copy(by):
    """Also where a probability is too small to be added to the others."""
    spans = said(-800.0, a=3.0, bb=2.5, ccc=-50.0)
    (twice,) = QuestionAnswering(unanswerable=True).combine([[spans], [spans]], by)
    assert [span[:3] for span in twice.answers] == [span[:3] for span in spans.answers]
    assert [s.probability for s in twice.answers] == pytest.approx(
        [s.probability for s in spans.answers]
    )
    assert twice.null_odds < -700 and np.isfinite(twice.null_odds)
    always = said(None, a=3.0, bb=2.5)
    (twice,) = QuestionAnswering().combine([[always], [always]], by)
    assert twice.null_score is None and twice.null_probability == 0.0
    assert [span.text for span in twice.answers] == ["a", "bb"]
