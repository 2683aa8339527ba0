"""The scores on samples of dev examples: seeded, paired, and drawn by questions"""

import numpy as np
import pytest

from bertjax.runs.fine_tuning.resampling import SAMPLES, read_resampled, write_resampled
from bertjax.tasks.question_answering import Answer, Question, Span, Spans
from bertjax.tasks.superglue import SuperGlue
from bertjax.tasks.superglue_rows import Candidate
from bertjax.tasks.triviaqa import TriviaQa


class _Mean:
    """A task whose score is the mean of the predictions, with the examples' mean next to it."""

    def score(self, examples, predictions, settings):
        return {"mean": np.mean(predictions), "examples": np.mean(examples)}


def _resampled(folder, task, examples, predictions, metric):
    folder.mkdir()
    write_resampled(folder, task, {"dev": examples}, {"dev": predictions}, {})
    return np.array(read_resampled(folder, "dev", metric))


def test_every_model_is_scored_on_the_same_samples(tmp_path):
    examples, rng = list(range(101)), np.random.default_rng(3)
    one, other = rng.normal(50, 9, (2, 101))
    mine, again = (_resampled(tmp_path / name, _Mean(), examples, one, "mean") for name in "ab")
    assert len(mine) == SAMPLES and len(set(mine)) > SAMPLES // 2
    np.testing.assert_array_equal(mine, again)
    drawn = read_resampled(tmp_path / "a", "dev", "examples")
    reference = _resampled(tmp_path / "c", _Mean(), examples, other, "mean")
    assert read_resampled(tmp_path / "c", "dev", "examples") == drawn
    shifted = _resampled(tmp_path / "d", _Mean(), examples, one + 2, "mean")
    np.testing.assert_allclose(shifted - mine, 2, atol=2e-3)
    assert np.std(mine, ddof=1) == pytest.approx(np.std(one) / np.sqrt(101), rel=0.3)
    assert np.std(reference - mine, ddof=1) > 0


def test_a_question_is_drawn_with_all_its_documents(tmp_path):
    """By hand: a question is right if its document with the highest score has the answer."""
    rng, examples, predictions, right = np.random.default_rng(0), [], [], []
    for number in range(301):
        documents = [
            (rng.random() < 0.3 + 0.4 * score, score)
            for score in rng.random(rng.integers(1, 6)).tolist()
        ]
        right.append(max(documents, key=lambda document: document[1])[0])
        for good, score in documents:
            examples.append(Question(f"q{number}", "Who?", "", (Answer("Rome", -1),)))
            span = Span("Rome" if good else "Oslo", 0, 4, score, 0.5)
            predictions.append(Spans((span,)))
    task = TriviaQa("")
    whole = task.score(examples, predictions, {})["exact"]
    assert whole == pytest.approx(100 * np.mean(right))
    figures = _resampled(tmp_path / "run", task, examples, predictions, "exact")
    error = 100 * np.std(right) / np.sqrt(301)  # of a share among 301 questions
    assert abs(figures.mean() - whole) < 3 * error / np.sqrt(SAMPLES)
    assert figures.std(ddof=1) == pytest.approx(error, rel=0.3)
    # Every sample has 301 questions, among which one that is drawn twice counts twice.
    counts = figures / 100 * 301
    np.testing.assert_allclose(counts, counts.round(), atol=2e-2)
    draws = np.random.default_rng(301).integers(301, size=(SAMPLES, 301))
    np.testing.assert_allclose(figures, 100 * np.array(right)[draws].mean(1), atol=1e-3)


def test_a_question_is_drawn_with_all_its_candidates(tmp_path):
    rng, examples, predictions, right = np.random.default_rng(0), [], [], []
    for number in range(101):
        scores = rng.random(rng.integers(1, 6))
        right.append(rng.random() < 0.5)
        golds = (str(scores.argmax()) if right[-1] else "none",)
        for place, score in enumerate(scores):
            about = dict(passage=0, number=place, answer=str(place), golds=golds)
            examples.append(Candidate(str(number), "A", "B", None, "", **about))
            predictions.append(np.array([1 - score, score]))
    figures = _resampled(tmp_path / "run", SuperGlue("", "ReCoRD"), examples, predictions, "exact")
    # Every sample has 101 questions, among which one that is drawn twice counts twice.
    counts = figures / 100 * 101
    np.testing.assert_allclose(counts, counts.round(), atol=2e-3)
    error = np.std(right) * np.sqrt(101)
    assert abs(counts.mean() - sum(right)) < 3 * error / np.sqrt(SAMPLES)
