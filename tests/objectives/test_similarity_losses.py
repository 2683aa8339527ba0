"""Losses of contrastive training: by their definitions, and next to sentence-transformers' own."""

import jax
import numpy as np
import pytest

from bertjax.models.heads.embedding import Embedding
from bertjax.models.layers.similarity import SIMILARITIES, Vectors
from bertjax.objectives.similarity import PASSAGE, QUERY, SimilarityObjective
from bertjax.objectives.similarity_losses import (
    LOSSES,
    Binary,
    CoSent,
    Distribution,
    MarginSquared,
    Ranking,
    Squared,
    Triplet,
)
from tests.helpers.closeness import assert_close

B, K, D = 7, 3, 10


def _vectors(passages=K, seed=0):
    rng = np.random.default_rng(seed)
    query, passage = rng.normal(size=(B, D)), rng.normal(size=(B, passages, D))
    passage += 0.7 * query[:, None]
    return query.astype(np.float32), passage.astype(np.float32)


def _batch(passages=K, seed=1, **changes):
    """Texts that all differ, with scores of which two are equal."""
    scores = np.random.default_rng(seed).uniform(0, 1, (B, passages)).round(1)
    batch = {
        "is_real_example": np.ones(B, np.float32),
        "query_key": np.arange(B),
        "passage_key": B + np.arange(B * passages).reshape(B, passages),
        "scores": scores.astype(np.float32),
    }
    return batch | changes


def _loss(objective, vectors, batch):
    """The loss of a batch, divided as the step divides it."""

    @jax.jit
    def loss(vectors, batch):
        query, passage = vectors
        found = objective.values({QUERY: query, PASSAGE: passage}, {**batch, **_MASKS})
        weights, total = objective.weights(batch), 0.0
        for name, factor in objective.loss_weights.items():
            values, weight = found[name][name], weights[name]
            over = values.sum() if isinstance(weight, int) else (values * weight).sum()
            total += factor * (over if isinstance(weight, int) else over / weight.sum())
        return total

    return loss(vectors, batch)


_MASKS = {
    QUERY + "counted_mask": np.ones((B, 1), np.float32),
    PASSAGE + "counted_mask": np.ones((B, K, 1), np.float32),
}


def _objective(loss, similarity="", **settings):
    return SimilarityObjective(embedding=Embedding(similarity=similarity), loss=loss, **settings)


# ------------------------------------------------------------------- by their definitions


def _scores(vectors):
    query, passage = (np.asarray(x, np.float64) for x in vectors)
    query, passage = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (query, passage))
    return np.einsum("bd,ckd->bck", query, passage)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("margin", [-1.0, 0.05])
def test_only_other_texts_are_wrong(symmetric, margin):
    """Equal passages, equal queries, passages that are queries, absent ones, and filled-up rows."""
    vectors = _vectors()
    query, passage = np.arange(B), B + np.arange(B * K).reshape(B, K)
    passage[2, 0] = passage[0, 0]  # the same right passage
    passage[3, 2] = passage[1, 0]  # a hard negative that is another's right passage
    query[5] = query[4]  # the same query
    passage[1, 1] = query[0]  # a passage that is the query itself
    passage[0, 2] = -1
    real = np.ones(B, np.float32)
    real[6], passage[6] = 0, -1
    batch = _batch(query_key=query, passage_key=passage, is_real_example=real)
    loss = Ranking(scale=7.0, symmetric=symmetric, false_negative_margin=margin)
    scores, expected = _scores(vectors), []

    def is_wrong(i, j, k):
        alike = passage[j, k] in (passage[i, 0], query[i], -1)
        alike |= k == 0 and query[i] == query[j]
        return not alike and (margin < 0 or scores[i, j, k] <= scores[i, i, 0] + margin)

    for i in range(6):
        others = [scores[i, j, k] for j in range(B) for k in range(K) if is_wrong(i, j, k)]
        each = -np.log(1 / (1 + sum(np.exp(7 * (s - scores[i, i, 0])) for s in others)))
        if symmetric:
            queries = [scores[j, i, 0] for j in range(6) if is_wrong(j, i, 0)]
            back = np.log(1 + sum(np.exp(7 * (s - scores[i, i, 0])) for s in queries))
            each = (each + back) / 2
        expected.append(each)
    assert_close(_loss(_objective(loss), vectors, batch), np.mean(expected))


def test_absent_passages_count_nowhere():
    """With its last passages absent, a query has the loss of a batch without them."""
    vectors = _vectors()
    batch = _batch()
    absent = _batch(passage_key=np.where(np.arange(K) == 2, -1, batch["passage_key"]))
    two = (vectors[0], vectors[1][:, :2])
    fewer = {n: x[:, :2] if x.ndim == 2 else x for n, x in batch.items()}
    for loss in (Ranking(), Squared(), Triplet(), MarginSquared(), Distribution(), Binary()):
        objective = _objective(loss)
        assert_close(_loss(objective, vectors, absent), _loss(objective, two, fewer))


def test_the_learned_scale_has_a_gradient():
    batch, (query, passage) = _batch(), _vectors()

    @jax.jit
    def of(scale):
        objective = _objective(Ranking(learned_scale=True))
        outputs = {QUERY: query, PASSAGE: passage, "scale": scale}
        values = objective.values(outputs, batch | _MASKS)["task_loss"]
        return values["task_loss"].mean(), values["scale"].mean()

    (loss, scale), slope = jax.jit(jax.value_and_grad(of, has_aux=True))(5.0)
    assert scale == 5.0
    assert_close(loss, _loss(_objective(Ranking(scale=5.0)), _vectors(), batch))
    np.testing.assert_allclose(slope, (of(5.01)[0] - of(4.99)[0]) / 0.02, rtol=1e-2)


def test_tokens_that_are_most_alike():
    """Late interaction by loops, for pairs and for all."""
    rng = np.random.default_rng(2)
    query, passage = rng.normal(size=(B, 4, D)), rng.normal(size=(B, K, 5, D))
    of_query, of_passage = rng.random((B, 4)) < 0.7, rng.random((B, K, 5)) < 0.6
    of_passage[:, :, 0] = True
    expected = np.zeros((B, B, K))
    for i, j, k in np.ndindex(expected.shape):
        for token in query[i][of_query[i]]:
            expected[i, j, k] += max(passage[j, k][of_passage[j, k]] @ token)
    maxsim = SIMILARITIES["maxsim"]
    queries = Vectors(query, of_query)
    own = jax.jit(maxsim.own)(queries, Vectors(passage, of_passage))
    assert_close(own, expected[np.arange(B), np.arange(B)])
    flat = Vectors(passage.reshape(-1, 5, D), of_passage.reshape(-1, 5))
    assert_close(jax.jit(maxsim.every)(queries, flat), expected.reshape(B, -1))


def test_bad_settings():
    for name, fields in (("ranking", dict(scale=0.0)), ("kl", dict(temperature=-1.0))):
        (field,) = fields
        with pytest.raises(ValueError, match=f"{field}=.*: must be above 0"):
            LOSSES[name](**fields)


# ------------------------------------------------------------- next to sentence-transformers


def _reference():
    """{case: (objective, sentence-transformers' loss, passages, whether and which labels)}."""
    from sentence_transformers import util
    from sentence_transformers.sentence_transformer import losses

    both = dict(directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction")
    ranking = losses.MultipleNegativesRankingLoss
    return {
        "ranking": (_objective(Ranking(scale=13.0)), ranking(None, 13.0), 3, None),
        "ranking by dot": (
            _objective(Ranking(scale=1.0), "dot"),
            ranking(None, 1.0, util.dot_score),
            2,
            None,
        ),
        "symmetric": (_objective(Ranking(symmetric=True)), ranking(None, **both), 3, None),
        "squared": (_objective(Squared()), losses.CosineSimilarityLoss(None), 1, "pair"),
        "cosent": (_objective(CoSent()), losses.CoSENTLoss(None), 1, "pair"),
        "angle": (_objective(CoSent(), "angle"), losses.AnglELoss(None), 1, "pair"),
        "triplet": (
            _objective(Triplet(margin=5.0), "euclidean"),
            losses.TripletLoss(None),
            2,
            None,
        ),
        "margin_mse": (_objective(MarginSquared(), "dot"), losses.MarginMSELoss(None), 3, "all"),
        "kl": (
            _objective(Distribution(temperature=2.0), "dot"),
            losses.DistillKLDivLoss(None, temperature=2.0),
            3,
            "all",
        ),
    }


_CASES = (
    *("ranking", "ranking by dot", "symmetric", "squared", "cosent", "angle", "triplet"),
    *("margin_mse", "kl"),
)


@pytest.mark.needs("sentence_transformers")
@pytest.mark.parametrize("case", _CASES)
def test_losses_and_gradients_of_sentence_transformers(case):
    import torch

    objective, reference, passages, labels = _reference()[case]
    vectors, batch = _vectors(passages), _batch(passages)
    loss, gradients = jax.jit(jax.value_and_grad(lambda v: _loss(objective, v, batch)))(vectors)
    query, passage = (torch.tensor(np.asarray(x), requires_grad=True) for x in vectors)
    labels_of_pairs = torch.tensor(np.asarray(batch["scores"])) if labels else None
    labels_of_pairs = labels_of_pairs[:, 0] if labels == "pair" else labels_of_pairs
    expected = reference.compute_loss_from_embeddings([query, *passage.unbind(1)], labels_of_pairs)
    expected.backward()
    assert_close(loss, expected.item())
    for found, tensor in zip(gradients, (query, passage), strict=True):
        assert_close(found, tensor.grad)


@pytest.mark.needs("sentence_transformers")
def test_matryoshka_of_sentence_transformers():
    """Their loss truncates what a model returns, and so it gets one that returns the vectors."""
    import torch
    from sentence_transformers.sentence_transformer import losses

    vectors, sizes = _vectors(), (2, 5, D)
    objective = _objective(Ranking(scale=9.0), dimensions=sizes)
    query, passage = (torch.tensor(np.asarray(x)) for x in vectors)
    each = [
        losses.MultipleNegativesRankingLoss(None, 9.0).compute_loss_from_embeddings(
            [
                torch.nn.functional.normalize(x[..., :n], dim=-1)
                for x in (query, *passage.unbind(1))
            ],
            None,
        )
        for n in sizes
    ]
    assert_close(_loss(objective, vectors, _batch()), sum(each).item())


@pytest.mark.needs("sentence_transformers")
def test_the_regularizer_of_sentence_transformers():
    import torch
    from sentence_transformers.sparse_encoder import losses

    query, passage = (np.maximum(x, 0) for x in _vectors())
    embedding = Embedding(kind="sparse")
    objective = SimilarityObjective(embedding=embedding, loss=Ranking(), sparsity=(0.3, 0.2))
    values = jax.jit(objective.values)({QUERY: query, PASSAGE: passage}, _batch() | _MASKS)
    regularizer = losses.FlopsLoss(None)
    for name, x in (("query_flops", query), ("passage_flops", passage.reshape(-1, D))):
        expected = regularizer.compute_loss_from_embeddings(torch.tensor(np.asarray(x)))
        assert_close(values[name][name], expected.item())
