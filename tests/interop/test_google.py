"""Checkpoints of google-research/bert, against a transcription of that code's graph."""

import importlib.util
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.base.fields import TEXT
from bertjax.interop.google import import_tensorflow, read_release
from tests.helpers.closeness import assert_close

# All sizes are odd, and the weights are large enough that every array matters.
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 21,
    "initializer_range": 0.2,
    "intermediate_size": 55,
    "max_position_embeddings": 17,
    "num_attention_heads": 3,
    "num_hidden_layers": 3,
    "type_vocab_size": 2,
    "vocab_size": 89,
}


@pytest.fixture(scope="module")
def tf():
    if not importlib.util.find_spec("tensorflow"):
        pytest.skip("TensorFlow not installed: pip install -e '.[tf1]'")
    return import_tensorflow().compat.v1


# ------------------------------------------------------ google-research/bert, as it computes


def variables(config: dict, heads: str = "pretraining") -> dict[str, tuple[int, ...]]:
    """The name and shape of every variable (modeling.py, run_pretraining.py, and the two tasks)."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {
        "bert/embeddings/word_embeddings": (config["vocab_size"], width),
        "bert/embeddings/token_type_embeddings": (config["type_vocab_size"], width),
        "bert/embeddings/position_embeddings": (config["max_position_embeddings"], width),
    }

    def dense(name, inputs, outputs):
        shapes[f"{name}/kernel"], shapes[f"{name}/bias"] = (inputs, outputs), (outputs,)

    def norm(name):
        shapes[f"{name}/LayerNorm/beta"] = shapes[f"{name}/LayerNorm/gamma"] = (width,)

    norm("bert/embeddings")
    for i in range(config["num_hidden_layers"]):
        layer = f"bert/encoder/layer_{i}"
        for name in ("query", "key", "value"):
            dense(f"{layer}/attention/self/{name}", width, width)
        dense(f"{layer}/attention/output/dense", width, width)
        norm(f"{layer}/attention/output")
        dense(f"{layer}/intermediate/dense", width, inner)
        dense(f"{layer}/output/dense", inner, width)
        norm(f"{layer}/output")
    dense("bert/pooler/dense", width, width)
    if heads == "pretraining":
        dense("cls/predictions/transform/dense", width, width)
        norm("cls/predictions/transform")
        shapes["cls/predictions/output_bias"] = (config["vocab_size"],)
        shapes["cls/seq_relationship/output_weights"] = (2, width)
        shapes["cls/seq_relationship/output_bias"] = (2,)
    elif heads == "classifier":
        shapes["output_weights"], shapes["output_bias"] = (5, width), (5,)
    elif heads == "squad":
        shapes["cls/squad/output_weights"], shapes["cls/squad/output_bias"] = (2, width), (2,)
    return shapes


def write_checkpoint(tf, folder: Path, shapes: dict, config: dict, slots: bool = True) -> None:
    """Writes random variables with TensorFlow 1's Saver, in the form of a real checkpoint."""
    rng = np.random.default_rng(0)
    with tf.Graph().as_default(), tf.Session() as session:
        made = []

        def variable(name, value):
            made.append(tf.get_variable(name, initializer=value))

        for name, shape in shapes.items():
            value = config["initializer_range"] * rng.standard_normal(shape, np.float32)
            variable(name, value + 1 if name.endswith("gamma") else value)
            for slot in ("adam_m", "adam_v") if slots else ():
                variable(f"{name}/{slot}", np.ones(shape, np.float32))
        variable("global_step", np.int64(1000))
        session.run(tf.global_variables_initializer())
        tf.train.Saver(made).save(session, str(folder / "bert_model.ckpt"))


def write_release(
    tf, folder: Path, config: dict, heads: str = "pretraining", slots: bool = True
) -> None:
    """Writes a release: checkpoint, bert_config.json and vocab.txt."""
    folder.mkdir(exist_ok=True)
    write_checkpoint(tf, folder, variables(config, heads), config, slots)
    (folder / "checkpoint").unlink()  # releases have none
    (folder / "bert_config.json").write_text(json.dumps(config))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces += [f"piece{i}" for i in range(config["vocab_size"] - len(pieces))]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")


def run_reference(tf, folder: Path, inputs: list[np.ndarray], heads: str) -> dict:
    """Builds modeling.py's graph, restores the checkpoint, and runs it."""
    config = json.loads((folder / "bert_config.json").read_text())
    width, count = config["hidden_size"], config["num_attention_heads"]
    shapes = variables(config, heads)
    with tf.Graph().as_default(), tf.Session() as session:
        held = {name: tf.get_variable(name, shape) for name, shape in shapes.items()}
        ids, mask, segments = (tf.constant(x) for x in inputs)
        batch, length = inputs[0].shape

        def dense(name, x):
            return tf.tensordot(x, held[f"{name}/kernel"], 1) + held[f"{name}/bias"]

        def norm(name, x):
            mean, variance = tf.nn.moments(x, [-1], keep_dims=True)
            beta, gamma = held[f"{name}/LayerNorm/beta"], held[f"{name}/LayerNorm/gamma"]
            return tf.nn.batch_normalization(x, mean, variance, beta, gamma, 1e-12)

        def gelu(x):
            return x * 0.5 * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3))))

        def split(x):  # [B, S, D] -> [B, N, S, H]
            return tf.transpose(tf.reshape(x, [batch, length, count, width // count]), [0, 2, 1, 3])

        x = tf.gather(held["bert/embeddings/word_embeddings"], ids)
        x += tf.gather(held["bert/embeddings/token_type_embeddings"], segments)
        x += held["bert/embeddings/position_embeddings"][:length]
        states = [norm("bert/embeddings", x)]
        adder = (1 - tf.cast(mask, tf.float32))[:, None, None, :] * -10000.0
        for i in range(config["num_hidden_layers"]):
            layer, x = f"bert/encoder/layer_{i}", states[-1]
            query, key, value = (
                split(dense(f"{layer}/attention/self/{name}", x))
                for name in ("query", "key", "value")
            )
            scores = tf.matmul(query, key, transpose_b=True) / np.sqrt(width // count)
            context = tf.matmul(tf.nn.softmax(scores + adder), value)
            context = tf.reshape(tf.transpose(context, [0, 2, 1, 3]), [batch, length, width])
            y = dense(f"{layer}/attention/output/dense", context)
            x = norm(f"{layer}/attention/output", x + y)
            y = gelu(dense(f"{layer}/intermediate/dense", x))
            y = dense(f"{layer}/output/dense", y)
            states.append(norm(f"{layer}/output", x + y))
        sequence = states[-1]
        pooled = tf.tanh(dense("bert/pooler/dense", sequence[:, 0]))
        outputs = {"states": states}

        def head(name, x):  # its matrix is [out, in]
            return (
                tf.tensordot(x, held[f"{name}output_weights"], [[-1], [1]])
                + (held[f"{name}output_bias"])
            )

        if heads == "pretraining":
            x = gelu(dense("cls/predictions/transform/dense", sequence))
            x = norm("cls/predictions/transform", x)
            table = held["bert/embeddings/word_embeddings"]
            outputs["masked_lm"] = (
                tf.tensordot(x, table, [[-1], [1]]) + (held["cls/predictions/output_bias"])
            )
            outputs["next_sentence"] = head("cls/seq_relationship/", pooled)
        elif heads == "classifier":
            outputs["logits"] = head("", pooled)
        elif heads == "squad":
            outputs["start"], outputs["end"] = tf.unstack(head("cls/squad/", sequence), axis=-1)
        else:
            outputs |= {"sequence": sequence, "pooled": pooled}
        tf.train.Saver(held).restore(session, str(folder / "bert_model.ckpt"))
        return session.run(outputs)


# --------------------------------------------------------------------------------- tests


def random_inputs(config: dict, batch: int, length: int) -> list[np.ndarray]:
    """Makes ids, segments, and a mask in which row n has n padding tokens."""
    rng = np.random.default_rng(length)
    ids = rng.integers(0, config["vocab_size"], (batch, length)).astype(np.int32)
    lengths = np.maximum(1, length - np.arange(batch))[:, None]
    mask = (np.arange(length) < lengths).astype(np.int32)
    segments = (np.arange(length) >= lengths // 2).astype(np.int32)
    return [ids, mask, segments]


def assert_same_function(pretrained, expected: dict, inputs: list[np.ndarray]) -> None:
    module, params = pretrained.model(), {"params": pretrained.params}
    batch = dict(zip(TEXT, inputs, strict=True))
    states = jax.jit(
        partial(
            module.apply,
            deterministic=True,
            method=lambda m, x, **k: m.encoder.hidden_states(x, **k),
        )
    )(params, batch)
    outputs = jax.jit(partial(module.apply, deterministic=True))(params, batch)
    assert {"states", *outputs} == expected.keys()
    assert len(states) == len(expected["states"])
    for i, (result, reference) in enumerate(zip(states, expected["states"], strict=True)):
        print(f"hidden state {i}: {np.abs(result - reference).max():.1e} off")
        assert_close(result, reference, err_msg=f"hidden state {i}")
    for name, result in outputs.items():
        print(f"{name}: {np.abs(result - expected[name]).max():.1e} off")
        assert_close(result, expected[name], err_msg=name)


@pytest.fixture(scope="module")
def release(tf, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "uncased_L-3_H-21_A-3"
    write_release(tf, folder, CONFIG)
    return folder


@pytest.mark.peers
@pytest.mark.parametrize("length", [1, 6, 17])
def test_the_function_is_googles(tf, release, length):
    pretrained = read_release(release, "tf1:it")
    assert pretrained.class_name == "BertForPreTraining"
    assert pretrained.spec.hidden_act == "gelu_tanh"
    assert pretrained.spec.layer_norm_eps == 1e-12
    assert pretrained.missing == ()
    inputs = random_inputs(CONFIG, 4, length)
    expected = run_reference(tf, release, inputs, "pretraining")
    assert_same_function(pretrained, expected, inputs)


@pytest.mark.peers
@pytest.mark.parametrize(
    "heads, architecture, classes",
    [
        ("classifier", "BertForSequenceClassification", 5),
        ("squad", "BertForQuestionAnswering", 0),
        ("none", "BertModel", 0),
    ],
)
def test_heads_of_fine_tuning(tf, tmp_path, heads, architecture, classes):
    write_release(tf, tmp_path, CONFIG, heads)
    pretrained = read_release(tmp_path, "tf1:it")
    assert (pretrained.class_name, len(pretrained.classes)) == (architecture, classes)
    inputs = random_inputs(CONFIG, 3, 11)
    assert_same_function(pretrained, run_reference(tf, tmp_path, inputs, heads), inputs)


@pytest.mark.peers
def test_every_variable_is_used_or_named(release):
    pretrained = read_release(release, "tf1:it")
    shapes = variables(CONFIG)
    assert pretrained.left_out == {
        "*/adam_m": f"optimizer state, {len(shapes)} arrays",
        "*/adam_v": f"optimizer state, {len(shapes)} arrays",
        "global_step": "int64: not a weight",
    }
    leaves = flatten_dict(pretrained.params).values()
    assert sum(leaf.size for leaf in leaves) == sum(int(np.prod(s)) for s in shapes.values())
    assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}
    assert len(pretrained.entries) == len(shapes)


@pytest.mark.peers
@pytest.mark.slow
def test_layers_and_heads_of_base(tf, tmp_path):
    """Twelve of each, 512 positions and the whole vocabulary, in a quarter of the width."""
    sizes = {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 12}
    sizes |= {"num_attention_heads": 12, "max_position_embeddings": 512, "vocab_size": 30522}
    config = CONFIG | sizes | {"initializer_range": 0.02}
    write_release(tf, tmp_path, config, slots=False)
    inputs = random_inputs(config, 2, 131)
    expected = run_reference(tf, tmp_path, inputs, "pretraining")
    assert_same_function(read_release(tmp_path, "tf1:it"), expected, inputs)


@pytest.mark.peers
def test_one_checkpoint_among_several(tf, release, tmp_path):
    for name in ("bert_config.json", "vocab.txt"):
        (tmp_path / name).write_bytes((release / name).read_bytes())
    for file in release.glob("bert_model.ckpt.*"):
        for step in (20, 1000):
            to = tmp_path / file.name.replace("bert_model.ckpt", f"model.ckpt-{step}")
            to.write_bytes(file.read_bytes())
    with pytest.raises(InputError, match=r"checkpoints model.ckpt-1000, model.ckpt-20: give"):
        read_release(tmp_path, "tf1:it")
    one = read_release(tmp_path / "model.ckpt-1000", "tf1:it")
    jax.tree.map(np.testing.assert_array_equal, one.params, read_release(release, "").params)


def copy(release: Path, folder: Path) -> Path:
    for file in release.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.peers
@pytest.mark.parametrize(
    "change, message",
    [
        ({"drop": "bert/encoder/layer_1/output/dense/bias"}, r"layer\.1\.output.* is missing"),
        ({"drop": "bert/encoder/layer_0/attention/self/key/kernel"}, r"self\.key.* is missing"),
        ({"bert/encoder/layer_3/output/dense/bias": (21,)}, r"layer\.3\..* no place"),
        ({"bert/embeddings_2": (7, 21)}, "embeddings_2 has no place"),
        ({"bert/pooler/dense/kernel": (20, 21)}, r"pooler.* \[21, 20\].* \[21, 21\]"),
        ({"bert/embeddings/position_embeddings": (16, 21)}, r"position.* \[16, 21\].* \[17, 21\]"),
    ],
)
def test_variables_that_do_not_fit(tf, tmp_path, change, message):
    shapes = variables(CONFIG) | {k: v for k, v in change.items() if k != "drop"}
    shapes.pop(change.get("drop"), None)
    write_release(tf, tmp_path, CONFIG)
    write_checkpoint(tf, tmp_path, shapes, CONFIG)
    with pytest.raises(InputError, match=f"^tf1:it: .*{message}"):
        read_release(tmp_path, "tf1:it")


@pytest.mark.peers
def test_another_model(tf, release, tmp_path):
    write_checkpoint(tf, copy(release, tmp_path), {"electra/embeddings": (3, 4)}, CONFIG, False)
    with pytest.raises(InputError, match="tf1:it: no variables of a BERT.*electra.embeddings"):
        read_release(tmp_path, "tf1:it")


@pytest.mark.peers
@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_damaged(release, tmp_path, ending):
    file = copy(release, tmp_path) / f"bert_model.ckpt.{ending}"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="^tf1:it: bert_model.ckpt is damaged or incomplete"):
        read_release(tmp_path, "tf1:it")
    if ending != "index":
        file.unlink()
        with pytest.raises(InputError, match="damaged or incomplete.*data-00000-of-00001"):
            read_release(tmp_path, "tf1:it")


# ------------------------------------------------------------------- without TensorFlow


@pytest.fixture
def hollow(tmp_path) -> Path:
    """All files of a release, with an empty checkpoint."""
    for name in ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"):
        (tmp_path / name).touch()
    (tmp_path / "bert_config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    return tmp_path


@pytest.mark.parametrize(
    "missing, message",
    [
        ("bert_model.ckpt.index", "no checkpoint there: give a folder with bert_model.ckpt.index"),
        ("bert_config.json", "no bert_config.json next to the checkpoint"),
        ("vocab.txt", "vocab.txt"),
    ],
)
def test_missing_file(hollow, missing, message):
    (hollow / missing).unlink()
    with pytest.raises(InputError, match=message):
        read_release(hollow, "tf1:it")


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "bert_config.json: damaged"),
        ("[]", r"\[\]: expected `object`"),
        (json.dumps(CONFIG | {"hidden_act": "relu"}), "hidden_act='relu'"),
        (json.dumps(CONFIG | {"num_attention_heads": 4}), "num_attention_heads=4"),
    ],
)
def test_bad_config(hollow, content, message):
    (hollow / "bert_config.json").write_text(content)
    with pytest.raises(InputError, match=message):
        read_release(hollow, "tf1:it")


@pytest.mark.parametrize("name", ["nowhere", "nowhere/bert_model.ckpt"])
def test_no_such_release(tmp_path, name):
    with pytest.raises(InputError, match="^tf1:it: no checkpoint there"):
        read_release(tmp_path / name, "tf1:it")


def test_without_tensorflow(hollow, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(InputError, match=r"^tf1:it: .* pip install -e '\.\[tf1\]'"):
        read_release(hollow, "tf1:it")


def test_tensorflow_is_imported_for_such_checkpoints_only():
    program = "import sys, bertjax.runs.source; print('tensorflow' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("False\n", "")


@pytest.mark.peers
@pytest.mark.needs("tensorflow")
def test_transformers_is_imported_after_tensorflow(hollow):
    """As launch/convert.py does with a checkpoint: both bring LLVM, and the process survives."""
    program = (
        "import pathlib, sys\n"
        "from bertjax.base.errors import InputError\n"
        "from bertjax.interop.google import read_release\n"
        "try:\n"
        f"    read_release(pathlib.Path({str(hollow)!r}), 'tf1:it')\n"
        "except InputError:\n"
        "    pass\n"
        "from transformers import BertModel\n"
        "print('tensorflow' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "True\n"), result.stderr
