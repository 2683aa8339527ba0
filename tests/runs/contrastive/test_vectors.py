"""Vectors of new texts, scores of pairs, exact search, and what a model is worth."""

import json
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import bertjax
from bertjax.base.errors import InputError
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.models.heads.embedding import Embedding, pooled
from bertjax.programs import evaluate_similarity, predict_vectors
from bertjax.runs.contrastive.evaluation import ByVectors, of_examples, read_evaluation
from bertjax.runs.contrastive.opened import open_vectors
from bertjax.runs.contrastive.vectors import TextVectors, paired_similarities, search
from bertjax.tasks.scores import spearman
from bertjax.tasks.similarity.examples import Columns, Example
from bertjax.training.sharding.placement import data_parallel
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.small_models import PIECES, small_model

# ------------------------------------------------------------------------------- search


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean"])
def test_the_best_of_all_documents(name, monkeypatch):
    """In blocks of 64, with a document that comes twice: the first one comes first."""
    monkeypatch.setattr("bertjax.runs.contrastive.vectors._NUMBERS", 1)
    rng = np.random.default_rng(0)
    queries, documents = rng.normal(size=(7, 5)), rng.normal(size=(150, 5))
    documents[140] = documents[3]
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, documents)]
    distance = np.linalg.norm(queries[:, None] - documents, axis=-1)
    wanted = {"cosine": unit[0] @ unit[1].T, "dot": queries @ documents.T, "euclidean": -distance}
    order = np.argsort(-wanted[name].astype(np.float32), axis=1, kind="stable")[:, :9]
    sides = [TextVectors(x.astype(np.float32)) for x in (queries, documents)]
    numbers, scores = search(*sides, name, 9, data_parallel())
    found = np.take_along_axis(wanted[name], numbers, 1)
    assert_close(scores, found)
    assert_close(found, np.take_along_axis(wanted[name], order, 1))
    assert all((row == 3).any() <= ((row == 140).argmax() > (row == 3).argmax()) for row in numbers)
    own = paired_similarities(sides[0], TextVectors(sides[1].values[:7]), name)
    assert_close(own, np.diag(wanted[name]))


def test_search_among_tokens():
    """Texts with many vectors, each with another number of them; fewer documents than asked for."""
    rng = np.random.default_rng(1)

    def texts(sizes):
        starts = np.concatenate([[0], np.cumsum(sizes)])
        return TextVectors(rng.normal(size=(starts[-1], 4)).astype(np.float32), starts)

    queries, documents = texts([2, 5, 1]), texts([3, 1, 7, 2, 4])
    expected = np.zeros((3, 5))
    for i, j in np.ndindex(expected.shape):
        a, b = (x.values[x.starts[n] : x.starts[n + 1]] for x, n in ((queries, i), (documents, j)))
        expected[i, j] = (a @ b.T).max(1).sum()
    numbers, scores = search(queries, documents, "maxsim", 50, data_parallel())
    np.testing.assert_array_equal(numbers, np.argsort(-expected, axis=1))
    assert_close(scores, -np.sort(-expected, axis=1))


def test_ways_of_pooling():
    states = np.random.default_rng(2).normal(size=(2, 4, 3)).astype(np.float32)
    mask = np.array([[0, 1, 1, 0], [1, 1, 1, 1]])
    expected = {
        "mean": [states[0, 1:3].mean(0), states[1].mean(0)],
        "max": [states[0, 1:3].max(0), states[1].max(0)],
        "cls": [states[0, 1], states[1, 0]],  # the first that counts
        "last": [states[0, 2], states[1, 3]],
    }
    for name, rows in expected.items():
        found = jax.jit(pooled, static_argnums=2)(states, mask, name)
        assert_close(found, np.stack(rows))


# --------------------------------------------------------------------------- evaluation


class _ByLetters:
    """Says that texts are alike by the share of the letters that they have in common."""

    def own(self, params, pairs, what):
        return np.array([len(set(a) & set(b)) / len(set(a) | set(b)) for a, b in pairs])

    def found(self, params, queries, documents, what):
        every = np.array([self.own(None, [(q, d) for d in documents], what) for q in queries])
        order = np.argsort(-every, axis=1, kind="stable")
        return order, np.take_along_axis(every, order, 1)


class _Letters:
    """Makes vectors of the letters of texts."""

    def __init__(self):
        self.embedding, self.placement = Embedding(), data_parallel()

    def vectors(self, params, texts, *, query, what):
        return TextVectors(np.array([[c in text for c in "abxyz"] for text in texts], np.float32))


def _scores(examples):
    evaluation = of_examples("x", examples)
    return evaluation.main_metric, evaluation.scores(_ByLetters(), None)


def test_pairs_are_scored_as_fits():
    main_metric, scores = _scores([Example("ab", ("ab",), (3.0,)), Example("ab", ("xy",), (0.5,))])
    assert main_metric == "spearman" and scores["spearman"] == pytest.approx(100)
    right = [Example(q, (p,), (s,)) for q, p, s in (("ab", "ab", 1), ("cd", "xy", 0))]
    assert _scores(right)[0] == "average_precision"
    assert _scores(right)[1]["average_precision"] == 100
    # Several passages of each query: the right one of "ab" has rank 2, that of "cd" rank 1.
    listed = [Example("ab", (p,), (s,)) for p, s in (("abx", 1), ("ab", 0), ("xyz", 0))]
    listed += [Example("cd", (p,), (s,)) for p, s in (("cd", 1), ("xyz", 0))]
    main_metric, scores = _scores(listed)
    assert main_metric == "map" and scores["map"] == 75 and scores["hit_rate@1"] == 50
    triplets = [Example("ab", ("ab", "xy", "abc")), Example("cd", ("cx", "cd"))]
    main_metric, scores = _scores(triplets)
    assert main_metric == "map" and scores["accuracy"] == pytest.approx(200 / 3)
    main_metric, scores = _scores([Example("ab", ("abx",)), Example("xy", ("cd",))])
    assert main_metric == "ndcg@10"
    assert scores["mrr@10"] == 75 and scores["recall@100"] == 100


def test_a_query_does_not_find_itself(tmp_path):
    """As in ArguAna, where the queries are documents; then one document more is found."""
    documents = {"a": "ab", "b": "abx", "c": "xyz"} | {f"d{n}": "ab" for n in range(99)}
    rows = {"corpus": documents, "queries": {"a": "ab"}}
    for name, texts in rows.items():
        lines = (json.dumps({"_id": each, "text": text}) for each, text in texts.items())
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\na\tb\t1.0\n")
    evaluation = read_evaluation(f"retrieval:{tmp_path}", Columns())
    scores = evaluation.scores(ByVectors(_Letters()), None)
    assert scores["recall@100"] == 100 and scores["map@100"] == pytest.approx(1)


@pytest.mark.parametrize(
    "line",
    ['{"text": "cat"', "{'text': 'cat'}", '{text: "cat"}', '[{"text": "cat"}]', '{"a": "b"}'],
)
def test_a_line_of_broken_json_is_no_text(line, tmp_path):
    (tmp_path / "in.txt").write_text(f"cat\n{line}\n")
    arguments = "hf:none", str(tmp_path / "in.txt"), str(tmp_path / "out")
    with pytest.raises(InputError, match='in.txt line 2: .*write {"text": "..."}'):
        predict_vectors.run(*arguments, None, 1)
    (tmp_path / "in.txt").write_text("cat\n")
    with pytest.raises(InputError, match="^--documents=absent.txt: no such file"):
        predict_vectors.run(*arguments, "absent.txt", 1)


@pytest.mark.parametrize("spec", ["sts.csv", "pairs:", "likely:sts.csv"])
def test_bad_names_of_data(spec):
    with pytest.raises(InputError, match="must be pairs:DIR, similarity:FILE or retrieval:DIR"):
        read_evaluation(spec, Columns())


def test_the_earlier_name_of_similarity(tmp_path):
    (tmp_path / "sts.csv").write_text("text,text_b,score\ncat,the cat,5\ncat,blue,1\n")
    names = (f"{form}:{tmp_path}/sts.csv" for form in ("likeness", "similarity"))
    before, now = (read_evaluation(name, Columns()) for name in names)
    assert before.pairs == now.pairs and len(now.pairs) == 2


# ------------------------------------------------------------------------- the programs


@pytest.fixture
def vectors(tmp_path):
    """A folder with a model of vectors, and the model."""
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    pretrained = small_model(tmp_path / "vocab.txt", "BertModel")
    embedding = Embedding(query_prompt="the ", passage_length=8)
    model = SimpleNamespace(**{**vars(pretrained), "embedding": embedding})
    model = type(pretrained)(**vars(model))
    (tmp_path / "model").mkdir()
    write_hugging_face(model, tmp_path / "model")
    return f"hf:{tmp_path / 'model'}"


def test_the_first_numbers_of_vectors(vectors, tmp_path):
    """Of as many as are asked for, or else as the folder says."""
    texts = ["cat", "a dog .", "7", "blue of", "house"]
    (tmp_path / "in.txt").write_text("\n".join(texts))

    def predicted(dimensions=None):
        output = tmp_path / "vectors.jsonl"
        output.unlink(missing_ok=True)
        predict_vectors.run(vectors, str(tmp_path / "in.txt"), str(output), None, 1, dimensions)
        lines = map(json.loads, output.read_text().splitlines())
        return np.array([line["vector"] for line in lines])

    rows = [f"{text},the cat runs,{score}" for score, text in enumerate(texts)]
    (tmp_path / "sts.csv").write_text("\n".join(["text,text_b,score", *rows]))

    def evaluated(dimensions=None):
        on = f"similarity:{tmp_path}/sts.csv"
        ((_, found),) = evaluate_similarity.run(vectors, on, None, dimensions).items()
        return found["spearman"]

    def computed(dimensions=None):
        model = bertjax.load(vectors)
        prompted = [f"the {text}" for text in texts] + ["the cat runs"]
        return model.vectors(prompted, dimensions=dimensions)

    whole, first = predicted(), predicted()[:, :5]
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    of_whole, of_first = computed(), computed(5)
    wanted, cut = (spearman(range(5), x[:5] @ x[5]) for x in (of_whole, of_first))
    assert wanted != cut
    assert_close(predicted(5), first)
    assert_close(of_first[:5], first)
    assert (evaluated(), evaluated(5)) == (wanted, cut)
    with pytest.raises(InputError, match="--dimensions=25: must be from 1 to 24"):
        open_vectors(vectors, 25)
    settings = Path(vectors[3:], "config_sentence_transformers.json")
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"truncate_dim": 5}))
    assert_close(predicted(), first)
    assert_close(predicted(24), whole)
    assert_close(computed(), of_first)
    assert evaluated() == cut


@pytest.mark.slow
def test_nearest_documents_and_scores(vectors, tmp_path, capsys):
    (tmp_path / "in.txt").write_text('cat\n\n{"text": "a dog .", "id": 7}\n')
    documents = {1: "house", 2: "{cat} of the house", 3: "blue"}
    rows = (f"{text},d{number}\n" for number, text in documents.items())
    (tmp_path / "docs.csv").write_text("text,id\n" + "".join(rows))
    output = tmp_path / "out.jsonl"
    predict_vectors.run(
        vectors, str(tmp_path / "in.txt"), str(output), str(tmp_path / "docs.csv"), 2
    )
    first, empty, last = map(json.loads, output.read_text().splitlines())
    assert empty == {} and [x["text"] for x in (first, last)] == ["cat", "a dog ."]
    assert (last["id"], set(first)) == (7, {"text", "nearest"})
    assert [len(x["nearest"]) for x in (first, last)] == [2, 2]
    for each in first["nearest"]:
        assert (each["text"], each["id"]) == (documents[each["line"]], f"d{each['line']}")
    one, two = (each["score"] for each in first["nearest"])
    assert one >= two
    whole = tmp_path / "vectors.jsonl"
    predict_vectors.run(vectors, str(tmp_path / "in.txt"), str(whole), None, 10)
    vector = np.array(json.loads(whole.read_text().splitlines()[0])["vector"])
    assert vector.shape == (24,) and abs(np.linalg.norm(vector) - 1) < rounding(1.0)
    # The same by hand: the prompt stands before queries, and not before documents.
    opened = open_vectors(vectors)
    by_hand = opened.comparer.own(
        opened.params, [("cat", each["text"]) for each in first["nearest"]], "x"
    )
    assert_close(list(by_hand), [one, two])
    (tmp_path / "sts.csv").write_text("text,text_b,score\ncat,the cat,5\ncat,blue,1\ndog,7,2\n")
    found = evaluate_similarity.run(
        vectors, f"similarity:{tmp_path}/sts.csv", str(tmp_path / "scores.json")
    )
    ((name, scores),) = found.items()
    assert json.loads((tmp_path / "scores.json").read_text())["scores"][name] == scores
    assert f"{name}: spearman {scores['spearman']:.2f}" in capsys.readouterr().out
