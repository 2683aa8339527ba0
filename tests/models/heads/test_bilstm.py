"""The BiLSTM, of the tagger and of an encoder: padding, gradients, and PyTorch's LSTM."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bertjax.models.encoders import head_types
from bertjax.models.heads import bilstm
from bertjax.models.heads.bilstm import BiLstm, BiLstmTagger
from bertjax.models.heads.head_specs import HEAD_SPECS
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow

ROWS, WORDS, LAYERS, WIDTH, HIDDEN, CLASSES = 5, 7, 3, 4, 6, 9


@pytest.fixture
def inputs():
    """Makes activations of rows with 1 to `WORDS` words, random values after them, and the mask."""
    rng = np.random.default_rng(0)
    activations = rng.normal(size=(ROWS, WORDS, LAYERS, WIDTH)).astype(np.float16)
    lengths = np.array([WORDS, 1, 3, 6, 2])
    mask = (np.arange(WORDS) < lengths[:, None]).astype(np.int32)
    return {"activations": activations, "word_mask": mask}


def init(tagger, inputs):
    """Makes new parameters."""
    init = jax.jit(lambda key: tagger.init(key, inputs, deterministic=True))
    return nn.unbox(init(jax.random.key(0)))["params"]


def build(combine: str, inputs, **fields):
    """Makes a small tagger, and parameters without zeros."""
    tagger = BiLstmTagger(CLASSES, combine, hidden=HIDDEN, **fields)
    rng = np.random.default_rng(1)
    random = lambda x: np.asarray(x + rng.normal(0, 0.3, x.shape), np.float32)  # noqa: E731
    return tagger, jax.tree.map(random, jax.device_get(init(tagger, inputs)))


@partial(jax.jit, static_argnums=0)
def logits(tagger, params, activations, mask, key=None):
    rngs = None if key is None else {"dropout": key}
    inputs = {"activations": activations, "word_mask": mask}
    return tagger.apply({"params": params}, inputs, deterministic=key is None, rngs=rngs)["logits"]


@pytest.mark.parametrize("combine", others_slow(bilstm.COMBINE, "mix"))
def test_padding_changes_nothing(combine, inputs):
    activations, mask = inputs.values()
    tagger, params = build(combine, inputs)
    batched = np.asarray(logits(tagger, params, activations, mask))
    assert batched.shape == (ROWS, WORDS, CLASSES)
    for row, length in enumerate(mask.sum(1)):
        words = activations[row : row + 1, :length]
        alone = logits(tagger, params, words, np.ones((1, length), np.int32))
        assert_close(batched[row, :length], alone[0])


def test_both_directions_see_all_words(inputs):
    activations, mask = inputs.values()
    tagger, params = build("concat", inputs)
    before = logits(tagger, params, activations, mask)
    for place in (0, WORDS - 1):
        other = activations.copy()
        other[0, place] += 1
        changed = np.abs(logits(tagger, params, other, mask) - before).max(-1)
        assert (changed[0] > 1e-5).all()
        assert (changed[1:] == 0).all()


def test_weighted_sum(inputs):
    """At first the sum is the mean; with one weight far above the others it is that layer."""
    activations, mask = inputs.values()
    tagger, params = build("weighted_sum", inputs)
    for scale, layers in ((np.array([0, 50, 0.0]), [1]), (np.zeros(3), [0, 1, 2])):
        found = logits(tagger, params | {"scale": scale}, activations, mask)
        one = activations.astype(np.float32)[:, :, layers].mean(2, keepdims=True)
        expected = logits(tagger, params | {"scale": np.zeros(1)}, one, mask)
        assert_close(found, expected)
    assert init(tagger, inputs)["scale"].tolist() == [0, 0, 0]


def test_the_penalty_of_mixes(inputs):
    """Of both mixes, at each row, and only where there are labels to learn from."""
    tagger = BiLstmTagger(CLASSES, "mix_twice", hidden=HIDDEN, depth=1)
    shapes = jax.eval_shape(lambda: tagger.init(jax.random.key(0), inputs, deterministic=True))
    rng = np.random.default_rng(2)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape), nn.unbox(shapes)["params"])
    labels = np.zeros(inputs["word_mask"].shape, np.int32)
    apply = jax.jit(lambda inputs: tagger.apply({"params": params}, inputs, deterministic=True))
    penalty = apply(inputs | {"label_ids": labels})["penalty"]
    wanted = sum((params[f"mix_{i}"]["s"] ** 2).sum() for i in (0, 1))
    assert_close(penalty, [wanted] * ROWS)
    assert "penalty" not in jax.eval_shape(apply, inputs)


def test_shapes_and_beginning(inputs):
    tagger = BiLstmTagger(CLASSES)
    boxed = jax.eval_shape(lambda: tagger.init(jax.random.key(0), inputs, deterministic=True))
    params = nn.unbox(boxed)["params"]
    assert params["lstm_0"]["forward"]["kernel"].shape == (LAYERS * WIDTH, 4 * 768)
    assert params["lstm_1"]["backward"]["kernel"].shape == (2 * 768, 4 * 768)
    assert params["kernel"].shape == (2 * 768, CLASSES)

    lstm = init(BiLstmTagger(CLASSES, hidden=HIDDEN), inputs)["lstm_0"]["forward"]
    assert lstm["bias"].reshape(4, HIDDEN).mean(1).tolist() == [0, 1, 0, 0]
    for gate in np.split(np.asarray(lstm["recurrent"]), 4, 1):
        assert_close(gate.T @ gate, np.eye(HIDDEN))


def test_gradient_is_that_of_autodiff(inputs, monkeypatch):
    activations, mask = inputs.values()
    tagger, params = build("weighted_sum", inputs)

    def gradient():
        def loss(params, activations):
            batch = inputs | {"activations": activations}
            found = tagger.apply({"params": params}, batch, deterministic=True)
            return (jnp.sin(found["logits"]) * mask[..., None]).sum()

        return jax.jit(jax.grad(loss, argnums=(0, 1)))(params, activations.astype(np.float32))

    result = gradient()
    monkeypatch.setattr(bilstm, "_recurrence", bilstm._states)
    assert_close(result, gradient())
    assert all(np.abs(leaf).max() > 1e-4 for leaf in jax.tree.leaves(result))


def test_dropout(inputs):
    tagger, params = build("concat", inputs, dropout=0.5)
    keys = [jax.random.key(seed) for seed in (0, 0, 1)]
    first, again, other = (
        np.asarray(logits(tagger, params, *inputs.values(), key)) for key in keys
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-2


def pytorch(params, x, mask):
    """PyTorch's states at every place, and the last of both directions, over packed sequences."""
    import torch

    x = torch.tensor(np.array(x, np.float32))
    lstm = torch.nn.LSTM(x.shape[-1], HIDDEN, 2, bidirectional=True, batch_first=True)
    for layer in (0, 1):
        for direction, suffix in (("forward", ""), ("backward", "_reverse")):
            result = jax.tree.map(np.array, params[f"lstm_{layer}"][direction])
            reference = {
                f"weight_ih_l{layer}{suffix}": result["kernel"].T,
                f"weight_hh_l{layer}{suffix}": result["recurrent"].T,
                f"bias_ih_l{layer}{suffix}": result["bias"],
                f"bias_hh_l{layer}{suffix}": np.zeros_like(result["bias"]),
            }
            for name, value in reference.items():
                getattr(lstm, name).data = torch.tensor(value)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        x, torch.tensor(mask.sum(1)), batch_first=True, enforce_sorted=False
    )
    with torch.no_grad():
        states, (last, _) = lstm(packed)
    states = torch.nn.utils.rnn.pad_packed_sequence(states, batch_first=True)[0]
    return states.numpy(), np.concatenate(last.numpy()[-2:], -1)


@pytest.mark.peers
def test_as_pytorch(inputs):
    activations, mask = inputs.values()
    tagger, params = build("concat", inputs)
    states, _ = pytorch(params, activations.reshape(ROWS, WORDS, -1), mask)
    expected = states @ np.asarray(params["kernel"]) + np.asarray(params["bias"])
    found = np.asarray(logits(tagger, params, activations, mask))
    assert_close(found[mask > 0], expected[mask > 0])


@pytest.mark.peers
@pytest.mark.parametrize(
    "kind", [head_types.SEQUENCE_CLASSIFICATION, head_types.TOKEN_CLASSIFICATION]
)
def test_over_an_encoder_as_pytorch(spec, make_batch, kind):
    """A class of a text is read from the last states, those of tokens from the state at each."""
    model = HEAD_SPECS[kind].build(dataclasses.replace(spec, causal=True), CLASSES)
    model, batch = model.clone(bilstm=BiLstm(HIDDEN, 2, 0.0)), make_batch()
    init = jax.jit(partial(model.init, deterministic=True))
    variables = nn.unbox(init(jax.random.key(0), batch))
    params, mask = variables["params"], batch["input_mask"]
    assert params.keys() == {"bert", "bilstm", "classifier"}
    run = partial(model.apply, deterministic=True)
    encode = lambda model, inputs, **options: model.encoder(inputs, **options)  # noqa: E731
    encoded = jax.jit(partial(run, method=encode))(variables, batch)
    states, last = pytorch(params["bilstm"], encoded, mask)
    output = params["classifier"]
    if kind == head_types.SEQUENCE_CLASSIFICATION:
        states, mask = last, mask[:, 0]
    expected = states @ np.asarray(output["kernel"]) + np.asarray(output["bias"])
    found = np.asarray(jax.jit(run)(variables, batch)["logits"])
    assert_close(found[mask > 0], expected[mask > 0])
