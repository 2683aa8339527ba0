"""The softmax over drawn words: on average the whole one, and exactly it if all are drawn."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bertjax.base.fields import UNKNOWN_WORD
from bertjax.models.heads.next_words import DrawnWords, NextWord, draw_words
from tests.helpers.closeness import assert_close
from tests.helpers.small_elmo import small_elmo

SPEC = dataclasses.replace(small_elmo().spec, vocab_size=23, vocab_multiple=8)
WIDTH = SPEC.projection_size
draw_some = jax.jit(draw_words, static_argnums=(1, 2))


@pytest.fixture(scope="module")
def softmax():
    """The module, random parameters, vectors [2, 3, P], and the next words."""
    rng = np.random.default_rng(0)
    module = NextWord(SPEC)
    params = {
        "kernel": jnp.asarray(rng.normal(0, 0.6, (24, WIDTH)), jnp.float32),
        "bias": jnp.asarray(rng.normal(0, 0.5, 24), jnp.float32),
    }
    x = rng.normal(size=(2, 3, WIDTH)).astype(np.float32)
    initial = jax.eval_shape(module.init, jax.random.key(0), x, np.zeros((2, 3), int))
    assert jax.tree.map(np.shape, nn.unbox(initial)["params"]) == jax.tree.map(np.shape, params)
    return module, params, x, np.array([[0, 5, 22], [11, 40, 1]])


def _loss(softmax, drawn=None, params=None):
    module, own, x, ids = softmax
    return module.apply({"params": params or own}, x, ids, drawn)


def _and_gradient(losses, params):
    """The losses, and the gradient of their sum."""

    def total(params):
        each = losses(params)
        return each.sum(), each

    gradient, each = jax.jit(jax.grad(total, has_aux=True))(params)
    return each, gradient


def _direct(softmax, params):
    """The cross-entropy by hand, without the row that pads the table."""
    _, _, x, ids = softmax
    ids = np.where(ids < 23, ids, UNKNOWN_WORD)
    logits = x @ params["kernel"][:23].T + params["bias"][:23]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), ids[..., None], -1)[..., 0]


@pytest.mark.slow
def test_loss_and_gradient_of_all_words(softmax):
    """Also if all are drawn once; a word after the last is predicted as the unknown one."""
    params = softmax[1]
    wanted = _and_gradient(lambda p: _direct(softmax, p), params)
    everything = draw_some(jax.random.key(0), 23, 23)
    for drawn in (None, everything):
        assert_close(_and_gradient(partial(_loss, softmax, drawn), params), wanted)


def test_loss_and_gradient_of_some_words(softmax):
    """By hand: the drawn words that are not the right one, less the logarithm of their count."""
    params, drawn = softmax[1], draw_some(jax.random.key(3), 9, 23)
    _, _, x, ids = softmax
    ids, words = np.where(ids < 23, ids, UNKNOWN_WORD), np.asarray(drawn.drawn)
    assert np.isin(ids, words).any() and not np.isin(ids, words).all()

    def direct(params):
        logits = x @ params["kernel"].T + params["bias"]
        losses = []
        for place in np.ndindex(ids.shape):
            right = logits[place][ids[place]]
            others = jnp.exp(logits[place][words] - drawn.log_count)[words != ids[place]]
            losses.append(jnp.log(jnp.exp(right) + others.sum()) - right)
        return jnp.stack(losses).reshape(ids.shape)

    wanted = _and_gradient(direct, params)
    assert_close(_and_gradient(partial(_loss, softmax, drawn), params), wanted)


def test_the_mean_of_many_draws_is_the_whole_softmax(softmax):
    """exp(loss) is a sum over all words divided by one of them, and its mean is exact."""
    keys = jax.random.split(jax.random.key(1), 4000)
    each = jax.jit(jax.vmap(lambda key: jnp.exp(_loss(softmax, draw_words(key, 7, 23)))))(keys)
    each, whole = np.asarray(each), np.exp(jax.jit(lambda: _loss(softmax))())
    error = each.std(0) / np.sqrt(len(keys))
    np.testing.assert_array_less(np.abs(each.mean(0) - whole), 4 * error)
    assert (error < 0.05 * each.mean(0)).all()


def test_words_are_drawn_once_and_by_their_place():
    keys = jax.random.split(jax.random.key(2), 3000)
    drawn = jax.device_get(jax.jit(jax.vmap(lambda key: draw_words(key, 6, 40)))(keys))
    assert (np.diff(np.sort(drawn.drawn, 1), axis=1) > 0).all()
    counts = np.bincount(drawn.drawn.ravel(), minlength=40) / len(keys)
    assert counts.sum() == pytest.approx(6)
    # The first distinct words of independent draws.
    rng, share = np.random.default_rng(0), np.log1p(1 / np.arange(1, 41)) / np.log(41)
    wanted = np.zeros(40)
    for _ in range(1500):
        seen = dict.fromkeys(rng.choice(40, 200, p=share / share.sum()))
        wanted[list(seen)[:6]] += 1 / 1500
    np.testing.assert_allclose(counts, wanted, atol=0.06)
    expected = np.zeros(40)
    np.add.at(expected, drawn.drawn, np.exp(-drawn.log_count) / len(keys))
    np.testing.assert_allclose(expected, 1, atol=0.3)


def test_a_softmax_of_the_right_word_alone(softmax):
    drawn = DrawnWords(np.array([UNKNOWN_WORD]), np.zeros(1, np.float32))
    assert np.asarray(jax.jit(lambda: _loss(softmax, drawn))())[1, 1] == 0  # the word 40 is unknown
