"""The scores of a task as the program prints them."""

from bertjax.runs.fine_tuning.scores import by_type, in_a_line
from bertjax.tasks.entity_scores import entity_scores

GOLD = [("B-PER", "I-PER", "O", "B-LOC"), ("O", "B-LOC")]


def test_entity_types_have_lines_of_their_own():
    """Next to scores whose names only look like those of a type."""
    predicted = [("B-PER", "I-PER", "O", "O"), ("O", "B-LOC")]
    dev = {"dev": entity_scores(GOLD, predicted), "test": entity_scores(GOLD, GOLD)}
    result = {"dev": dev, "degenerate": ""}
    assert in_a_line(result) == (
        "dev: f1 80.00, precision 100.00, recall 66.67, accuracy 83.33; "
        "test: f1 100.00, precision 100.00, recall 100.00, accuracy 100.00"
    )
    assert by_type(result) == [
        "dev LOC: f1 66.67, precision 100.00, recall 50.00",
        "dev PER: f1 100.00, precision 100.00, recall 100.00",
        "test LOC: f1 100.00, precision 100.00, recall 100.00",
        "test PER: f1 100.00, precision 100.00, recall 100.00",
    ]
    other = {"dev": {"dev": {"f1": 1.5, "f1_tuned": 2.25}}, "degenerate": ""}
    assert (in_a_line(other), by_type(other)) == ("dev: f1 1.50, f1_tuned 2.25", [])


def test_what_learned_nothing_comes_with_advice():
    result = {"dev": {"dev": {"f1": 0.0}}, "degenerate": "all tags are 'O'"}
    assert in_a_line(result) == (
        "dev: f1 0.00  DEGENERATE: all tags are 'O': nothing is learned that tells examples apart: "
        "take more config.grid.epochs, or another config.grid.learning_rate"
    )
    result = {"dev": {}, "degenerate": "diverged: step 3: lower the learning rate"}
    assert in_a_line(result).endswith("DEGENERATE: diverged: step 3: lower the learning rate")
