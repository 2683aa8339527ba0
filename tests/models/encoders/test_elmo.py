"""ELMo: equal to a loop over words in NumPy, and to the outputs of bilm-tf for its own test."""

import json

import jax
import numpy as np
import pytest
from scipy.special import expit

from bertjax.models.encoders.elmo.encoder import states_shape
from bertjax.models.encoders.elmo.spec import ElmoSpec
from bertjax.models.encoders.registry import make_encoder
from tests.helpers.closeness import assert_close
from tests.helpers.small_elmo import batch_of, small_elmo

TEXTS = [["The", "cat", "sat"], ["naïve", "x" * 60, "東京", "a", "."], []]


def _read(model, batch):
    """The layers and the states after the batch, as NumPy arrays."""
    encoder = make_encoder(model.spec)

    @jax.jit
    def read(params, batch):
        return encoder.apply({"params": params}, batch, deterministic=True, method="read")

    return jax.tree.map(np.asarray, read(model.params["elmo"], batch))


def _word(spec, params, ids):
    """The vector of a word by loops over its characters."""
    convolutions = params["convolutions"]
    vectors = convolutions["characters"][np.array(ids) - 1]
    found = []
    for number, (width, _) in enumerate(spec.filters):
        kernel, bias = convolutions[f"kernel_{number}"], convolutions[f"bias_{number}"]
        at = [
            sum(vectors[place + offset] @ kernel[offset] for offset in range(width)) + bias
            for place in range(50 - width + 1)
        ]
        found.append(np.max(at, 0))
    x = np.concatenate(found)
    x = np.tanh(x) if spec.hidden_act == "tanh" else np.maximum(x, 0)
    for number in range(spec.num_highways):
        high = params[f"highway_{number}"]
        gate = expit(x @ high["gate"]["kernel"] + high["gate"]["bias"])
        made = np.maximum(x @ high["transform"]["kernel"] + high["transform"]["bias"], 0)
        x = gate * made + (1 - gate) * x
    return x @ params["projection"]["kernel"] + params["projection"]["bias"]


def _direction(spec, params, xs, state):
    """The states h after each word, and the last state, of one direction of one layer."""
    c, h = np.split(state, [spec.cell_size])
    outputs = []
    for x in xs:
        gates = np.concatenate([x, h]) @ params["kernel"] + params["bias"]
        i, g, f, o = np.split(gates, 4)
        c = expit(f + 1) * c + expit(i) * np.tanh(g)
        c = np.clip(c, -spec.cell_clip, spec.cell_clip) if spec.cell_clip else c
        h = expit(o) * np.tanh(c)
        if "projection" in params:
            h = h @ params["projection"]
            h = np.clip(h, -spec.projection_clip, spec.projection_clip)
        outputs.append(h)
    return outputs, np.concatenate([c, h])


def _expected(spec, params, ids, states):
    """The layers [L + 1, S, D] of one text without padding, and the states after it."""
    words = [_word(spec, params["embeddings"], word) for word in ids]
    both, layers, after = [words, words], [np.concatenate([words, words], -1)], []
    for number in range(spec.num_hidden_layers):
        outputs, states_after = [], []
        for way, name in enumerate(("forward", "backward")):
            order = slice(None, None, -1 if way else 1)
            own = params["encoder"][f"layer_{number}"][name]
            ys, state = _direction(spec, own, both[way][order], states[number, way])
            ys = ys[order]
            if spec.skip_connections and number:
                ys = [x + y for x, y in zip(both[way], ys, strict=True)]
            outputs.append(ys)
            states_after.append(state)
        both = outputs
        layers.append(np.concatenate(both, -1))
        after.append(states_after)
    return np.array(layers), np.array(after)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        dict(cell_size=7, projection_clip=0.0, cell_clip=0.0, hidden_act="tanh", num_highways=1),
        dict(skip_connections=False, num_hidden_layers=2),
    ],
)
def test_layers_and_states_are_those_of_a_loop(changes):
    """Padding of all lengths, long words and states of earlier text are among the inputs."""
    model = small_elmo(**changes)
    batch = batch_of(TEXTS, 9)
    shape = (len(TEXTS), *states_shape(model.spec))
    batch["states"] = np.random.default_rng(2).normal(0, 0.3, shape).astype(np.float32)
    layers, after = _read(model, batch)
    params = jax.tree.map(lambda leaf: leaf.astype(np.float64), model.params["elmo"])
    for row, words in enumerate(TEXTS):
        size = len(words) + 2
        ids = batch["characters"][row, :size]
        wanted, state = _expected(model.spec, params, ids, batch["states"][row])
        found = np.stack(layers)[:, row, :size]
        # Errors go on from word to word, and large weights magnify them.
        assert_close(found, wanted, 4000)
        assert_close(after[row], state, 4000)


def test_without_states_a_text_is_a_beginning():
    model, batch = small_elmo(), batch_of(TEXTS[:1], 5)
    layers, after = _read(model, batch)
    zeros = np.zeros((1, *states_shape(model.spec)), np.float32)
    again, _ = _read(model, batch | {"states": zeros})
    later, _ = _read(model, batch | {"states": after})
    np.testing.assert_array_equal(np.stack(layers), np.stack(again))
    np.testing.assert_array_equal(layers[0], later[0])  # words know no context
    assert np.abs(layers[-1] - later[-1]).max() > 1e-3


@pytest.mark.needs("h5py")
def test_equal_to_bilm_tf_over_three_streams(shared_data):
    """30 sentences in 10 batches of 3, with the states carried; the last layer is published."""
    import h5py

    from bertjax.interop.elmo import read_elmo

    folder = shared_data / "elmo"
    model = read_elmo(folder, "elmo")
    lists = json.loads((folder / "lm_embeddings_sentences.json").read_text())
    files = [h5py.File(folder / f"lm_embeddings_{number}.hdf5") for number in range(3)]
    encoder, states = make_encoder(model.spec), np.zeros((3, *states_shape(model.spec)), "float32")

    @jax.jit
    def read(params, batch):
        return encoder.apply({"params": params}, batch, deterministic=True, method="read")

    for turn in range(10):
        texts = [sentences[turn].split() for sentences in lists]
        batch = batch_of(texts, 64) | {"states": states}
        layers, states = jax.device_get(read(model.params["elmo"], batch))
        for row, words in enumerate(texts):
            wanted = np.concatenate(list(files[row][str(turn)]), -1)  # forward, backward
            assert_close(layers[2][row, 1 : len(words) + 1], wanted, 4000)
            twice = layers[0][row]
            np.testing.assert_array_equal(twice[:, :16], twice[:, 16:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(hidden_size=15), "hidden_size=15: must be even"),
        (dict(cell_size=6), "cell_size=6: must be at least 7"),
        (dict(filters=((51, 2),)), r"\(51, 2\) must be a width from 1 to 50"),
        (dict(filters=()), "must be pairs"),
        (dict(cell_clip=-1.0), "cell_clip=-1.0: must be at least 0"),
        (dict(hidden_act="gelu"), "hidden_act='gelu': must be one of"),
        (dict(scan_layers=True), "scan_layers=True: must be one of"),
    ],
)
def test_spec_refuses(changes, message):
    with pytest.raises(ValueError, match=message):
        ElmoSpec(**dict(hidden_size=14, cell_size=11) | changes)
