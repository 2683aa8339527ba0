"""The serving artifact, run by JAX alone in a process that cannot import this package."""

import dataclasses
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict
from safetensors.numpy import load_file

from bertjax.base.errors import InputError
from bertjax.base.fields import TEXT
from bertjax.base.files import new_folder
from bertjax.interop import serving
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.serving import write_serving
from bertjax.models.encoders import head_types
from bertjax.models.encoders.presets import BertSpec
from bertjax.models.encoders.storage import to_canonical
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.text.tokenizer import Tokenizer
from tests.helpers.closeness import LOGITS, assert_close, rounding
from tests.helpers.slow_cases import others_slow
from tests.helpers.small_models import KINDS

# All sizes are odd.
SPEC = BertSpec(
    vocab_size=91,
    hidden_size=24,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=56,
    max_position_embeddings=17,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.0,
)
RUN = dataclasses.replace(SPEC, num_hidden_layers=2, scan_layers=True, vocab_multiple=8)
SHAPES = ((3, 13), (7, 5))  # B, S
CHOICES = 2
CLASSES = ("x", "y", "z")

# Executes the code in the folder's README, and runs its model on more inputs.
PROGRAM = """
import importlib.abc, os, pathlib, re, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("bertjax", "flax"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
for folder in sys.argv[1:]:
    os.chdir(folder)
    code = re.search("```python\\n(.*?)```", pathlib.Path("README.md").read_text(), re.S)[1]
    there = {}
    exec(code, there)
    np = there["np"]
    results = {f"readme/{name}": output for name, output in there["outputs"].items()}
    results |= {f"readme/{i}": np.array(x) for i, x in enumerate(there["inputs"])}
    for case in sorted(pathlib.Path("../inputs").glob(f"{pathlib.Path(folder).name}.*.npy")):
        outputs = there["model"](there["weights"], *np.load(case))
        results |= {f"{case.suffixes[0]}/{name}": output for name, output in outputs.items()}
    np.savez("../results." + pathlib.Path(folder).name, **results)
assert not {"bertjax", "flax"} & {name.split(".")[0] for name in sys.modules}
"""


DEFAULT = ("BertForMultipleChoice", "BertForMaskedLM", "run")
COMPUTED = ("BertForMultipleChoice", "run")
NAMES = others_slow([*KINDS, "fused", "run", "run_bfloat16"], *DEFAULT)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """A tokenizer with as many pieces as the model; padding is not the first."""
    words = "a an and another answer longer of one or question text the .".split()
    pieces = ["the", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words[:-2], words[-1]]
    pieces += [f"##{i}" for i in range(SPEC.vocab_size - len(pieces))]
    file = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    file.write_text("\n".join(pieces) + "\n")
    return Tokenizer.open(file)


def random_params(class_name: str, spec: BertSpec) -> dict:
    """Random values for all parameters of a module with `spec`, in its storage."""
    module = HEAD_SPECS[KINDS[class_name]].build(spec, len(CLASSES))
    inputs = dict.fromkeys(TEXT, np.zeros(shape(class_name, 1, 4), np.int32))
    init = partial(module.init, deterministic=True)
    shapes = nn.unbox(jax.eval_shape(init, jax.random.key(0), inputs))
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda leaf: np.float32(0.2) * rng.standard_normal(leaf.shape, np.float32),
        shapes["params"],
    )


def make(class_name: str, tokenizer: Tokenizer, spec: BertSpec = SPEC) -> Pretrained:
    return Pretrained(
        origin="it",
        head_type=KINDS[class_name],
        spec=dataclasses.replace(spec, scan_layers=False, vocab_multiple=1),
        params=to_canonical(random_params(class_name, spec), spec),
        tokenizer=tokenizer,
        classes=CLASSES if "Classification" in class_name else (),
    )


def shape(class_name: str, batch: int, length: int) -> tuple[int, ...]:
    choices = (CHOICES,) if class_name == "BertForMultipleChoice" else ()
    return (batch, *choices, length)


def random_inputs(shape: tuple[int, ...]) -> np.ndarray:
    """Makes int32 [3, *shape]: ids, mask, segments."""
    rng = np.random.default_rng(shape)
    ids = rng.integers(0, SPEC.vocab_size, shape)
    mask = np.arange(shape[-1]) < rng.integers(1, shape[-1] + 1, (*shape[:-1], 1))
    return np.stack([ids, mask, rng.integers(0, 2, shape)]).astype(np.int32)


def run(pretrained: Pretrained, inputs: np.ndarray) -> dict[str, jax.Array]:
    module = pretrained.model()
    infer = jax.jit(partial(module.apply, deterministic=True))
    return infer({"params": pretrained.params}, dict(zip(TEXT, inputs, strict=True)))


@pytest.fixture(scope="module")
def models(tokenizer, request) -> dict[str, Pretrained]:
    """Models by name: every head, and models with another storage and dtype.

    In the default tier, some of them.
    """
    models = {name: make(name, tokenizer) for name in KINDS}
    causal = dataclasses.replace(SPEC, causal=True, hidden_act="gelu_tanh")
    models["BertLMHeadModel"] = make("BertLMHeadModel", tokenizer, causal)
    fused = dataclasses.replace(causal, attention="fused")
    models["fused"] = make("BertLMHeadModel", tokenizer, fused)
    models["run"] = make("BertForPreTraining", tokenizer, RUN)
    half = dataclasses.replace(RUN, compute_dtype="bfloat16")
    models["run_bfloat16"] = make("BertForPreTraining", tokenizer, half)
    if request.config.getoption("--slow"):
        return models
    return {name: models[name] for name in DEFAULT}


@pytest.fixture(scope="module")
def artifacts(models, tmp_path_factory) -> Path:
    """A folder for each model, and `results.NAME.npz` from a process without this package."""
    root = tmp_path_factory.mktemp("artifacts")
    (root / "inputs").mkdir()
    for name, pretrained in models.items():
        with new_folder(root / name) as folder:
            assert write_serving(pretrained, folder) <= rounding(LOGITS)
        for case in SHAPES:
            inputs = random_inputs(shape(pretrained.class_name, *case))
            np.save(root / "inputs" / f"{name}.{case[0]}x{case[1]}.npy", inputs)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, *(root / name for name in models)],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    return root


@pytest.mark.parametrize("name", others_slow([*KINDS, "fused", "run", "run_bfloat16"], *COMPUTED))
def test_outputs_are_the_modules(artifacts, models, name):
    pretrained = models[name]
    with np.load(artifacts / f"results.{name}.npz") as results:
        for batch, length in SHAPES:
            inputs = random_inputs(shape(pretrained.class_name, batch, length))
            expected = run(pretrained, inputs)
            prefix = f".{batch}x{length}/"
            assert {f"{prefix}{key}" for key in expected} == {
                key for key in results.files if key.startswith(prefix)
            }
            for key, output in expected.items():
                found = results[prefix + key]
                assert found.dtype == np.float32
                assert_close(found, output, err_msg=key)


def test_outputs_are_those_of_the_storage_it_was_trained_in(artifacts):
    """The storage has scanned layers and a padded vocabulary."""
    module = HEAD_SPECS[head_types.PRE_TRAINING].build(RUN, 0)
    params = random_params("BertForPreTraining", RUN)
    infer = jax.jit(partial(module.apply, deterministic=True))
    inputs = dict(zip(TEXT, random_inputs((3, 13)), strict=True))
    expected = infer({"params": params}, inputs)
    with np.load(artifacts / "results.run.npz") as results:
        found = results[".3x13/masked_lm"]
        assert found.shape == (3, 13, SPEC.vocab_size)
        assert_close(found, expected["masked_lm"][..., : SPEC.vocab_size])


@pytest.mark.parametrize(
    "name",
    others_slow(
        ["BertForSequenceClassification", "BertForMultipleChoice"], "BertForMultipleChoice"
    ),
)
def test_the_readme_is_right(artifacts, models, tokenizer, name):
    """Its code, run above, has the tokenizer's ids, and gives the module's outputs for them."""
    pretrained = models[name]
    texts = [["one text.", "another, a longer one."]]
    if pretrained.class_name == "BertForMultipleChoice":
        texts = [["a question", "one answer"], ["a question", "another answer"]]
        rows = [tokenizer.encode(pair) for pair in texts]
        ids = [[tokenizer.cls_id, *a, tokenizer.sep_id, *b, tokenizer.sep_id] for a, b in rows]
    else:
        ids = [[tokenizer.cls_id, *a, tokenizer.sep_id] for a in tokenizer.encode(texts[0])]
    with np.load(artifacts / f"results.{name}.npz") as results:
        found = [results[f"readme/{i}"] for i in range(3)]
        for row, mask, wanted in zip(found[0], found[1], ids, strict=True):
            assert row[mask == 1].tolist() == wanted
            assert set(row[mask == 0]) <= {tokenizer.pad_id}
        inputs = np.array(found, np.int32)
        if pretrained.class_name == "BertForMultipleChoice":
            assert found[2].max() == 1
            inputs = inputs[:, None]
        for key, output in run(pretrained, inputs).items():
            assert_close(results[f"readme/{key}"], output)


ANSWERS = {
    "BertForSequenceClassification": "classes, in this order: `x`, `y`, `z`.",
    "BertForTokenClassification": "classes, in this order: `x`, `y`, `z`.",
    "BertForMultipleChoice": "choices.",
    "BertForMaskedLM": None,
}


@pytest.mark.parametrize(
    "name, what",
    [
        pytest.param(name, what, marks=() if name in DEFAULT else pytest.mark.slow)
        for name, what in ANSWERS.items()
    ],
)
def test_the_readme_says_what_logits_are(artifacts, name, what):
    text = (artifacts / name / "README.md").read_text()
    line = f'\n\n`jax.nn.softmax(outputs["logits"])` are the probabilities of the {what}\n\n'
    assert (line in text) if what else ("softmax" not in text)


def test_the_readme_of_a_classification_and_of_a_regression(tokenizer):
    model = make("BertForSequenceClassification", tokenizer)
    assert serving._answer(model) == (
        '\n`jax.nn.softmax(outputs["logits"])` are the probabilities of the '
        f"{ANSWERS['BertForSequenceClassification']}\n"
    )
    one = dataclasses.replace(model, classes=("score",))
    assert serving._answer(one) == '\n`outputs["logits"][:, 0]` is the predicted number.\n'


@pytest.mark.parametrize("thresholds", [None, {"x": 0.25}])
def test_the_readme_of_several_labels_at_once(tokenizer, thresholds):
    """One class is no number here."""
    task = {"problem_type": "multi_label_classification", "thresholds": thresholds}
    model = make("BertForSequenceClassification", tokenizer)
    answer = serving._answer(dataclasses.replace(model, classes=("x",), task=task))
    assert answer == (
        '\n`jax.nn.sigmoid(outputs["logits"])` are the probabilities of the labels, in this '
        f"order: `x`. A text has those above `{thresholds or 0.5}`.\n"
    )


@pytest.mark.parametrize("name", NAMES)
def test_signature(artifacts, models, name):
    """The signature has the shapes of the outputs and the fields of the model."""
    pretrained = models[name]
    signature = json.loads((artifacts / name / "signature.json").read_text())
    sizes = dict(
        zip(
            signature["inputs"]["input_ids"]["shape"],
            shape(pretrained.class_name, 3, 13),
            strict=True,
        )
    )
    with np.load(artifacts / f"results.{name}.npz") as results:
        shapes = {
            key: tuple(sizes.get(each, each) for each in output["shape"])
            for key, output in signature["outputs"].items()
        }
        assert shapes == {
            key.partition("/")[2]: results[key].shape
            for key in results.files
            if key.startswith(".3x13/")
        }
    assert signature["architecture"] == pretrained.class_name
    assert signature["longest"] == SPEC.max_position_embeddings
    assert signature["pad_id"] == pretrained.tokenizer.pad_id == 1
    assert signature["classes"] == list(pretrained.classes)
    assert signature["compute_dtype"] == pretrained.spec.compute_dtype
    assert signature["platforms"] == ["cpu", "cuda", "tpu"]
    assert signature["call"] == "model(weights, input_ids, input_mask, token_type_ids)"


def test_the_weights_are_not_in_the_program(artifacts):
    """The weights have the names and values of the parameters; the program contains no weights."""
    weights = load_file(artifacts / "BertForMaskedLM" / "weights.safetensors")
    assert weights["bert/embeddings/token"].shape == (SPEC.vocab_size, SPEC.hidden_size)
    assert not [name for name in weights if name.startswith("pooler")]
    program = (artifacts / "BertForMaskedLM" / "model.stablehlo").read_bytes()
    assert not [name for name, array in weights.items() if array.tobytes()[:64] in program]


def test_a_text_that_is_too_long(artifacts):
    folder = artifacts / "BertForMaskedLM"
    model = jax.export.deserialize((folder / "model.stablehlo").read_bytes())
    weights = load_file(folder / "weights.safetensors")
    longest = random_inputs((2, SPEC.max_position_embeddings))
    logits = model.call(weights, *longest)["masked_lm"]
    assert logits.shape == (2, SPEC.max_position_embeddings, SPEC.vocab_size)
    with pytest.raises(ValueError, match="refining shapes"):
        model.call(weights, *random_inputs((2, SPEC.max_position_embeddings + 1)))


def test_weights_in_any_order_of_memory(tokenizer, tmp_path):
    model = make("BertModel", tokenizer)
    params = jax.tree.map(np.asfortranarray, model.params)
    write_serving(dataclasses.replace(model, params=params), tmp_path)
    written = load_file(tmp_path / "weights.safetensors")
    for name, array in flatten_dict(model.params, sep="/").items():
        np.testing.assert_array_equal(written[name], array, err_msg=name)


def test_missing_part(tokenizer, tmp_path):
    whole = make("BertForPreTraining", tokenizer)
    params = {part: leaves for part, leaves in whole.params.items() if part != "pooler"}
    with pytest.raises(InputError, match="^it: BertForPreTraining weights without pooler"):
        with new_folder(tmp_path / "artifact") as folder:
            write_serving(dataclasses.replace(whole, params=params), folder)
    assert list(tmp_path.iterdir()) == []


def test_target_that_exists(tokenizer, tmp_path):
    (tmp_path / "artifact").mkdir()
    with pytest.raises(InputError, match="artifact: is there already"):
        with new_folder(tmp_path / "artifact") as folder:
            write_serving(make("BertModel", tokenizer), folder)


def test_what_was_written_wrongly_is_found(tokenizer, tmp_path, monkeypatch):
    save = serving.save

    def spoil(weights):
        name = "pooler/dense/bias"
        return save(weights | {name: weights[name] + np.float32(0.01)})

    monkeypatch.setattr(serving, "save", spoil)
    with pytest.raises(RuntimeError, match="gives another 'pooled'"):
        with new_folder(tmp_path / "artifact") as folder:
            write_serving(make("BertModel", tokenizer), folder)
    assert list(tmp_path.iterdir()) == []
