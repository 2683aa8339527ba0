"""bertjax as a library: the examples of docs/library.md, and its answers next to the programs'."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bertjax
from bertjax import library
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
    two = filler.vectors(texts, layers=[0, -1], normalize=True)
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


def test_texts_go_on_with_what_is_most_probable(left_to_right_run, filler):
    model = bertjax.load(str(left_to_right_run))
    (text,) = model.complete(["moo"], tokens=1)
    scores = model.score([text, "moo baa", "moo woof.", "moo quack", "moo a"])
    assert text.startswith("moo") and scores.dtype == np.float64
    assert scores.argmax() == 0 and (scores < 0).all()
    with pytest.raises(InputError, match="which does not write texts token by token: take a model"):
        filler.complete(["moo"])
    right, wrong = filler.score(["moo moo moo.", "moo baa coo."], masking="word")
    assert right > wrong


def test_a_fine_tuned_model_predicts(make_pretrained, tmp_path):
    write_hugging_face(make_pretrained("BertForSequenceClassification"), tmp_path)
    model = bertjax.load(f"hf:{tmp_path}")
    assert model.classes == ("no", "maybe", "yes")
    answers = model.predict(["the cat runs", "a dog ||| a house"])
    assert [set(each) >= {"text", "label"} for each in answers] == [True, True]
    assert {each["label"] for each in answers} <= set(model.classes)
    (again,) = model.predict([{"text": "a dog", "text_b": "a house", "id": 7}])
    assert again == {"id": 7} | answers[1]


WRONG = {
    "texts='the cat': must be a list": lambda m: m.vectors("the cat"),
    "texts=7: must be a list": lambda m: m.predict(7),
    "texts={'cat'}: must be a list": lambda m: m.encode({"cat"}),
    "texts[1]=None: expected `str`": lambda m: m.vectors(["a", None]),
    "layers[0]=1.5: expected `int`": lambda m: m.vectors(["a"], layers=[1.5]),
    "--layers is empty: give one": lambda m: m.vectors(["a"], layers=[]),
    "layer: no such option: there are features, layers": lambda m: m.vectors(["a"], layer=1),
    "--compute_dtype=float16: must be": lambda m: m.vectors(["a"], compute_dtype="float16"),
    "--batch_tokens=0: must be at least 1": lambda m: m.vectors(["a"], batch_tokens=0),
    "--streams=-1: must be at least 0": lambda m: m.vectors(["a"], streams=-1),
    "text=['[MASK]']: expected `str`": lambda m: m.fill(["[MASK]"]),
    "top='5': expected `int`": lambda m: m.fill("[MASK]", top="5"),
    "tokens='5': expected `int`": lambda m: m.complete(["a"], tokens="5"),
    "--top_p=0.0: must be in (0, 1]": lambda m: m.complete(["a"], top_p=0.0),
    "--masking=pieces: must be one of": lambda m: m.score(["a"], "pieces"),
    "texts: ('a', 'b') is none: write": lambda m: m.predict([("a", "b")]),
    "texts: {} is an object without": lambda m: m.predict([{}]),
    "cannot be written as JSON": lambda m: m.predict([{"text": object()}]),
    'write {"text": ': lambda m: m.predict([{"words": ["a"]}]),
    "length=True: expected `int": lambda m: m.encode(["a"], length=True),
    "length=14: must be from 2 to 13": lambda m: m.encode(["a"], length=14),
    "length=0: must be from 2 to 13": lambda m: m.encode(["a"], length=0),
    "kind=['encoder']: must be one of": lambda m: m.function(["encoder"]),
    "data='1': expected `int`": lambda m: m.shardings(data="1"),
    "layout=7: expected `str`": lambda m: m.shardings(7),
    "params=7: must be a dict": lambda m: m.function()(7, {}),
    "params: no pooler and no classifier": lambda m: m.function()({"bert": m.params["bert"]}, {}),
    "params['pooler']=7: must be a dict of dense": lambda m: m.function()(
        {**m.params, "pooler": 7}, {}
    ),
    "inputs: no input_mask and no token_type_ids": lambda m: m.function()(
        m.params, {"input_ids": np.zeros((1, 5), int)}
    ),
    "inputs['input_mask']: must be an array of whole numbers with 2": lambda m: m.function()(
        m.params, m.encode(["a"]) | {"input_mask": np.ones((1, 3))}
    ),
    "inputs: input_ids is (1, 3), and input_mask (1, 4)": lambda m: m.function()(
        m.params, m.encode(["a"]) | {"input_mask": np.ones((1, 4), int)}
    ),
    "dropout=3: must be a key": lambda m: m.function()(m.params, m.encode(["a"]), 3),
}


def test_wrong_arguments_are_said(make_pretrained, tmp_path):
    """tests/campaigns/library.py tries many more."""
    write_hugging_face(make_pretrained("BertForSequenceClassification"), tmp_path)
    model = bertjax.load(f"hf:{tmp_path}")
    for message, call in WRONG.items():
        with pytest.raises(InputError, match=re.escape(message)) as error:
            call(model)
        assert "\n" not in str(error.value)
    for source in (None, 7, "", "a\0b", b"hf:a", tmp_path):
        with pytest.raises(InputError, match="source="):
            bertjax.load(source)


def test_libtpu_is_told_that_there_is_no_tpu(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(library, "tell_libtpu_where_none_is", lambda: told.append(True))
    with pytest.raises(InputError, match=re.escape(str(tmp_path))):
        bertjax.load(str(tmp_path))
    assert told


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
    result, reference = (
        jax.jit(function)(each, inputs)["sequence"] for each in (params, filler.params)
    )
    assert_close(result, reference)


@pytest.mark.slow
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
