"""Probes: their losses and predictions by other means, and that they find a tree that is there."""

import jax
import numpy as np
import pytest

from bertjax.lab.probes.probe import DEPTH, DISTANCE, Words, l1_loss, predicted, predictions, train
from bertjax.lab.probes.trees import Tree
from tests.helpers.closeness import assert_close, rounding


def _trees(number, seed=0):
    random, trees = np.random.default_rng(seed), []
    for _ in range(number):
        n = int(random.integers(3, 12))
        heads = np.array([-1, *(random.integers(0, k) for k in range(1, n))])
        order = random.permutation(n)  # so that the root stands anywhere
        place = np.argsort(order)
        moved = np.where(heads[order] < 0, -1, place[heads[order]])
        trees.append(Tree([f"w{k}" for k in range(n)], moved, np.zeros(n, bool), "here"))
    return trees


@pytest.mark.peers
def test_losses_and_gradients_are_those_of_torch():
    """Sums over a padded batch, each sentence divided by its words, or their square."""
    import torch

    random = np.random.default_rng(1)
    vectors = random.normal(size=(3, 7, 5)).astype(np.float32)
    projection = random.normal(size=(5, 4)).astype(np.float32)
    lengths = [7, 4, 2]
    for kind, shape in ((DISTANCE, (3, 7, 7)), (DEPTH, (3, 7))):
        labels = random.integers(0, 6, shape).astype(np.float32)
        for row, n in enumerate(lengths):
            labels[row, n:] = -1
            if kind == DISTANCE:
                labels[row, :, n:] = -1
        weight = torch.tensor(projection, requires_grad=True)
        x = torch.tensor(vectors) @ weight
        reference = torch.cdist(x, x).pow(2) if kind == DISTANCE else x.pow(2).sum(-1)
        total = torch.tensor(0.0)
        for row, n in enumerate(lengths):
            own = (slice(n),) * (len(shape) - 1)
            wrong = (reference[row][own] - torch.tensor(labels[row][own])).abs().sum()
            total = total + wrong / n ** (len(shape) - 1)
        total.backward()
        found = jax.jit(predicted, static_argnums=0)(kind, projection, vectors)
        assert_close(found, reference.detach())
        both = jax.jit(jax.value_and_grad(l1_loss, argnums=1), static_argnums=0)
        loss, gradient = both(kind, projection, vectors, labels)
        assert float(loss) == pytest.approx(total.item(), rel=rounding(1))
        assert_close(gradient, weight.grad)


def test_a_probe_finds_the_tree():
    """Vectors whose squared distances are a tree's, turned and next to noise of other directions.

    A word's vector is the sum of a unit vector for itself and for each word above it but the root.
    """
    random = np.random.default_rng(2)
    turn, _ = np.linalg.qr(random.normal(size=(20, 20)))

    def words(trees):
        rows = []
        for tree in trees:
            own = np.zeros((len(tree.words), 20))
            for word in range(len(own)):
                above = word
                while tree.heads[above] >= 0:
                    own[word, above] = 1
                    above = tree.heads[above]
            own[:, 12:] = random.normal(size=(len(own), 8))
            rows.append(own @ turn)
        return Words(trees, np.concatenate(rows).astype(np.float16))

    taught, dev = words(_trees(1000)), words(_trees(30, seed=1))
    for kind in (DISTANCE, DEPTH):
        projection, loss = train(kind, taught, dev, rank=20, epochs=20)
        assert loss < 0.35
        for tree, found in zip(dev.trees, predictions(kind, projection, dev), strict=True):
            gold = tree.distances if kind == DISTANCE else tree.depths
            assert found.shape == gold.shape and np.abs(found - gold).mean() < 1
    again, _ = train(DEPTH, taught, dev, rank=20, epochs=20)
    np.testing.assert_array_equal(again, projection)
