"""Entities in tags: every scheme, and the scores of conlleval."""

import random

import pytest

from bertjax.tasks import entity_scores as scores
from bertjax.tasks.entity_scores import Entity, entities, entity_scores, iob2, is_entity_tag

TYPES = ("LOC", "MISC", "ORG", "PER")


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [
        ("IOB1", "I-PER I-PER O I-LOC B-LOC I-LOC I-ORG"),
        ("IOB2", "B-PER I-PER O B-LOC B-LOC I-LOC B-ORG"),
        ("IOE2", "I-PER E-PER O E-LOC I-LOC E-LOC E-ORG"),
        ("IOBES", "B-PER E-PER O S-LOC B-LOC E-LOC S-ORG"),
        ("BILOU", "B-PER L-PER O U-LOC B-LOC L-LOC U-ORG"),
        ("a model's", "I-PER I-PER O B-LOC B-LOC I-LOC I-ORG"),
    ],
)
def test_every_scheme_names_the_same_entities(scheme, tags):
    tags = tags.split()
    assert entities(tags) == [
        Entity("PER", 0, 2),
        Entity("LOC", 3, 4),
        Entity("LOC", 4, 6),
        Entity("ORG", 6, 7),
    ]
    assert iob2(tags) == "B-PER I-PER O B-LOC B-LOC I-LOC B-ORG".split()


@pytest.mark.parametrize(
    ("tags", "borders"),
    [
        ("I E I", [(0, 2), (2, 3)]),
        ("I L I", [(0, 2), (2, 3)]),
        ("L L", [(0, 1), (1, 2)]),
        ("I S I", [(0, 1), (1, 2), (2, 3)]),
        ("I U I", [(0, 1), (1, 2), (2, 3)]),
        ("U U", [(0, 1), (1, 2)]),
        ("I B I", [(0, 1), (1, 3)]),
        ("I I I", [(0, 3)]),
    ],
)
def test_what_begins_and_what_ends_an_entity(tags, borders):
    found = entities([f"{prefix}-PER" for prefix in tags.split()])
    assert found == [Entity("PER", start, stop) for start, stop in borders]


def test_tags_of_entities():
    good, bad = (
        ["O", "B-PER", "I-a-b", "S-é ", "U-x"],
        ["", "o", "B", "B-", "PER", "X-PER", "-LRB-"],
    )
    assert [tag for tag in good + bad if is_entity_tag(tag)] == good
    assert entities([]) == []
    assert entities(["B-a-b", "I-a-b", "I-a"]) == [Entity("a-b", 0, 2), Entity("a", 2, 3)]


def test_scores_by_hand():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O"], [], ["B-LOC", "B-LOC"]]
    predicted = [["B-PER", "O", "O", "B-LOC"], ["B-ORG"], [], ["B-LOC", "I-LOC"]]
    found = entity_scores(gold, predicted)
    # right: one LOC; gold: PER and three LOC; predicted: PER, two LOC, ORG
    assert found == {
        "f1": 25.0,
        "precision": 25.0,
        "recall": 25.0,
        "accuracy": pytest.approx(100 * 4 / 7),
        "f1_LOC": pytest.approx(40.0),
        "precision_LOC": 50.0,
        "recall_LOC": pytest.approx(100 / 3),
        **dict.fromkeys(["f1_ORG", "precision_ORG", "recall_ORG"], 0.0),
        **dict.fromkeys(["f1_PER", "precision_PER", "recall_PER"], 0.0),
    }
    names = ("f1", "precision", "recall", "accuracy")
    assert entity_scores([["O"]], [["O"]]) == dict(zip(names, (0, 0, 0, 100), strict=True))
    assert entity_scores([[]], [[]]) == dict.fromkeys(names, 0)
    assert scores.accuracy([["NN"], ["VB", "."]], [["NN"], ["NN", "."]]) == pytest.approx(200 / 3)


def test_different_lengths_are_a_mistake_of_the_program():
    with pytest.raises(ValueError, match="zip"):
        entity_scores([["O", "O"]], [["O"]])


def random_tags(random_: random.Random, prefixes: str) -> list[list[str]]:
    """Makes sentences with random tags, which need not be valid in a scheme."""
    names = ["O"] * 4 + [
        f"{prefix}-{entity_type}" for prefix in prefixes for entity_type in TYPES[:2]
    ]
    return [random_.choices(names, k=random_.randint(1, 12)) for _ in range(300)]


def assert_as_seqeval(gold, predicted):
    from seqeval import metrics as report

    found = entity_scores(gold, predicted)
    assert found["f1"] == pytest.approx(100 * report.f1_score(gold, predicted))
    assert found["precision"] == pytest.approx(100 * report.precision_score(gold, predicted))
    assert found["recall"] == pytest.approx(100 * report.recall_score(gold, predicted))
    assert found["accuracy"] == pytest.approx(100 * report.accuracy_score(gold, predicted))
    by_type = report.classification_report(gold, predicted, output_dict=True, zero_division=0)
    types = {name for name in by_type if not name.endswith(" avg")}
    assert types == {name.partition("_")[2] for name in found if name.startswith("f1_")}
    for entity_type in types:
        for name, reference in (
            ("f1", "f1-score"),
            ("precision", "precision"),
            ("recall", "recall"),
        ):
            assert found[f"{name}_{entity_type}"] == pytest.approx(
                100 * by_type[entity_type][reference]
            )


@pytest.mark.needs("seqeval")
@pytest.mark.parametrize("prefixes", ["BI", "BIES"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.filterwarnings("ignore::UserWarning:seqeval")
def test_as_seqeval_on_any_tags(prefixes, seed):
    random_ = random.Random(f"{prefixes} {seed}")
    gold = random_tags(random_, prefixes)
    predicted = [[tag if random_.random() < 0.7 else "O" for tag in tags] for tags in gold]
    others = random_tags(random_, prefixes)
    assert_as_seqeval(gold, predicted)
    assert_as_seqeval(gold, [(b * 12)[: len(a)] for a, b in zip(gold, others, strict=True)])


@pytest.mark.needs("seqeval")
@pytest.mark.filterwarnings("ignore::UserWarning:seqeval")
def test_as_seqeval_on_corrupted_real_tags(shared_data):
    from bertjax.tasks.conll import Conll

    task, random_ = Conll(str(shared_data / "conll2003")), random.Random(0)
    gold = [list(sentence.tags) for sentence in task.read("dev")]
    predicted = [
        [random_.choice(task.family.classes) if random_.random() < 0.1 else tag for tag in tags]
        for tags in gold
    ]
    assert_as_seqeval(gold, predicted)
