"""bertjax as a library: the examples of docs/library.md, and its answers beside the programs'."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bertjax
from bertjax.base.errors import InputError
from bertjax.interop.hugging_face import write_hugging_face
from tests.helpers.closeness import assert_close


@pytest.fixture(scope="module")
def filler(tiny_run):
    return bertjax.load(str(tiny_run))


def test_vectors_are_means_of_those_of_tokens(filler):
    texts = ["moo moo", "baa", "quack ||| tweet quack"]
    vectors, each = filler.vectors(texts), filler.vectors(texts, "tokens")
    assert vectors.shape == (3, filler.spec.hidden_size)
    assert len(each[1]) == 3  # [CLS] baa [SEP]
    for vector, tokens in zip(vectors, each, strict=True):
        assert_close(vector, tokens.mean(0))
    two = filler.vectors(texts, layers=(0, -1), normalize=True)
    assert two.shape == (3, 2 * filler.spec.hidden_size)
    assert_close(np.linalg.norm(two, axis=1), np.ones(3))
    with pytest.raises(InputError, match="text 1: .* tokens .* more than"):
        filler.vectors(["moo", "moo " * 600])


def test_blanks_are_filled(filler):
    (places,) = [filler.fill("moo [MASK] moo", top=3)]
    assert len(places) == 1 and len(places[0]) == 3
    assert places[0][0].probability >= places[0][1].probability > 0
    with pytest.raises(InputError, match=r"no \[MASK\]"):
        filler.fill("moo")


def test_a_fine_tuned_model_predicts(make_pretrained, tmp_path):
    write_hugging_face(make_pretrained("BertForSequenceClassification"), tmp_path)
    model = bertjax.load(f"hf:{tmp_path}")
    assert model.classes == ("no", "maybe", "yes")
    answers = model.predict(["the cat runs", "a dog ||| a house"])
    assert [set(each) >= {"text", "label"} for each in answers] == [True, True]
    assert {each["label"] for each in answers} <= set(model.classes)


def test_a_step_of_one_s_own(filler):
    """The function is pure: it is compiled, and its gradients are those of its parameters."""
    function = filler.function("encoder")
    inputs = filler.encode(["moo moo quack", "baa"], length=9)
    assert {each.shape for each in inputs.values()} == {(2, 9)}
    assert inputs["input_mask"].sum(1).tolist() == [5, 3]

    def loss(params):
        return jnp.square(function(params, inputs)["sequence"]).mean()

    value, gradients = jax.jit(jax.value_and_grad(loss))(filler.params)
    assert float(value) > 0
    assert all(np.abs(each).max() > 0 for each in jax.tree.leaves(gradients["bert"]["encoder"]))
    logits = jax.eval_shape(filler.function(), filler.params, inputs)["masked_lm"]
    assert logits.shape == (2, 9, filler.spec.vocab_size)
    with pytest.raises(InputError, match="kind='none': must be one of encoder, "):
        filler.function("none")


def test_dropout_is_by_its_key(make_pretrained, tmp_path):
    write_hugging_face(make_pretrained("BertForMaskedLM"), tmp_path)
    model = bertjax.load(f"hf:{tmp_path}")
    function, inputs = jax.jit(model.function()), model.encode(["the cat runs", "a dog"])
    kept, one, again, other = (
        function(model.params, inputs, key)["masked_lm"]
        for key in (None, jax.random.key(3), jax.random.key(3), jax.random.key(4))
    )
    assert np.abs(one - kept).max() > 0.01 and np.abs(one - other).max() > 0.01
    np.testing.assert_array_equal(one, again)


@pytest.mark.devices(4)
def test_shardings_are_those_of_the_layout(filler):
    shardings = filler.shardings("fsdp")
    params = jax.device_put(filler.params, shardings)
    shares = [
        leaf.addressable_shards[0].data.size / leaf.size
        for leaf in jax.tree.leaves(params)
        if leaf.ndim > 1
    ]
    assert min(shares) == 0.25
    function, inputs = filler.function("encoder"), filler.encode(["moo moo", "baa quack"])
    ours, theirs = (jax.jit(function)(each, inputs)["sequence"] for each in (params, filler.params))
    assert_close(ours, theirs)


@pytest.mark.devices(2)
def test_the_examples_of_the_document(make_pretrained, repository, tmp_path):
    """Each block of docs/library.md, with small models in place of the named ones."""
    for name in ("BertForPreTraining", "BertForSequenceClassification"):
        (tmp_path / name).mkdir()
        write_hugging_face(make_pretrained(name), tmp_path / name)
    text = (repository / "docs" / "library.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.+?)```", text, re.DOTALL)
    assert len(blocks) == 3 and "runs/stars" in text
    places: dict = {"bertjax": bertjax}
    for number, block in enumerate(blocks):
        if number == 1:
            classifier = tmp_path / "BertForSequenceClassification"
            places["model"] = bertjax.load(f"hf:{classifier}")
        block = block.replace("google-bert/bert-base-uncased", f"{tmp_path}/BertForPreTraining")
        exec(block.replace("length=64", "length=12"), places)
    assert places["vectors"].shape == (2, 24) and len(places["guesses"][0]) == 5
    assert len(places["labels"]) == 2 and set(places["labels"]) <= {"no", "maybe", "yes"}
    assert np.isfinite(places["value"]) and places["gradients"]["masked_lm"]
