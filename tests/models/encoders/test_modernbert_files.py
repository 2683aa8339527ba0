"""ModernBERT's folders of transformers: older forms, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict
from scipy.special import softmax

from bertjax.base.errors import InputError
from bertjax.base.renames import renamed, reverse
from bertjax.interop import own_folder, pretrained
from bertjax.interop.hugging_face import read_hugging_face, write_hugging_face
from bertjax.interop.proof import outputs
from bertjax.interop.serving import write_serving
from bertjax.models.encoders import head_types
from bertjax.models.encoders.renames import RENAMES
from bertjax.runs.fine_tuning.answers import numbered, predictions
from bertjax.runs.fine_tuning.fine_tuned import OneModel
from tests.helpers.closeness import rounding
from tests.helpers.small_models import CLASSES, MODERNBERT, PIECES, random_model


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def _assert_equal(params, wanted):
    params, wanted = flatten_dict(params, sep="/"), flatten_dict(wanted, sep="/")
    assert params.keys() == wanted.keys()
    for name, leaf in wanted.items():
        assert params[name].tobytes() == leaf.tobytes(), name


def test_what_was_written_with_earlier_paths_is_the_same_model(vocabulary, folder, monkeypatch):
    """A folder of ours is read with the paths of now, and the identity is the first one."""
    model = random_model(vocabulary, head_types.MASKED_LM, MODERNBERT)
    flat, pairs = flatten_dict(model.params, sep="/"), reverse(RENAMES["modernbert"])
    before = unflatten_dict({renamed(path, pairs): flat[path] for path in flat}, sep="/")
    assert before["modernbert"]["encoder"]["layer_4"].keys() >= {"feed_forward"}
    assert before["masked_lm"].keys() == {"head", "bias"}
    earlier = dataclasses.replace(model, params=before)
    own_folder.write_folder(earlier, folder)
    again = own_folder.read_folder(folder, "again")
    _assert_equal(again.params, model.params)
    monkeypatch.setattr(pretrained, "RENAMES", {})
    first, now = earlier.identity, model.identity
    monkeypatch.undo()
    assert again.identity == model.identity == first != now


def test_served_it_takes_what_it_reads(vocabulary, folder):
    """It has no token types, so its function takes ids and a mask."""
    model = random_model(vocabulary, head_types.MASKED_LM, MODERNBERT)
    assert write_serving(model, folder) < rounding(1)
    signature = json.loads((folder / "signature.json").read_text())
    assert signature["call"] == "model(weights, input_ids, input_mask)"
    assert signature["inputs"].keys() == {"input_ids", "input_mask"}
    assert 'fields = ["ids", "attention_mask"]\n' in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    "kind",
    [
        head_types.SEQUENCE_CLASSIFICATION,
        head_types.TOKEN_CLASSIFICATION,
        head_types.QUESTION_ANSWERING,
    ],
)
def test_a_task_begins_from_the_head_of_the_masked_lm(vocabulary, kind):
    model = random_model(vocabulary, head_types.MASKED_LM, MODERNBERT)
    began = model.beginning(kind)
    head = "pooler" if kind == head_types.SEQUENCE_CLASSIFICATION else "token_head"
    assert began.keys() - {"pooler"} == {"modernbert", head} - {"pooler"}
    of_lm = model.params["masked_lm"]
    _assert_equal(began[head], {"dense": of_lm["transform"], "norm": of_lm["norm"]})
    assert began["modernbert"] is model.params["modernbert"]
    again = random_model(vocabulary, kind, MODERNBERT)
    assert again.beginning(kind, again.classes).keys() >= again.params.keys()
    assert not {"classifier", "span"} & again.beginning(head_types.MASKED_LM).keys()


def test_the_layers_may_be_written_in_the_older_form(vocabulary, folder):
    """With a period and two thetas, as transformers before version 5 does."""
    result = dict(global_attn_every_n_layers=2, global_rope_theta=5e4, local_rope_theta=9e3)
    spec = dataclasses.replace(MODERNBERT, **result)
    write_hugging_face(random_model(vocabulary, head_types.MASKED_LM, spec), folder)
    config = json.loads((folder / "config.json").read_text())
    newer = {key: config.pop(key) for key in ("layer_types", "rope_parameters")}
    assert newer["layer_types"] == 2 * ["full_attention", "sliding_attention"] + ["full_attention"]
    thetas = {layer: rope["rope_theta"] for layer, rope in newer["rope_parameters"].items()}
    assert thetas == {"full_attention": 5e4, "sliding_attention": 9e3}
    assert {key: config[key] for key in result} == result  # both forms are written
    (folder / "config.json").write_text(json.dumps(config))
    assert read_hugging_face(folder, "hf:older").spec == spec
    (folder / "config.json").write_text(json.dumps(config | {"local_rope_theta": None}))
    assert read_hugging_face(folder, "hf:older").spec.local_rope_theta == 5e4


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"attention_bias": True}, "attention_bias=True: only False can be read"),
        ({"decoder_bias": False}, "decoder_bias=False: only True can be read"),
        ({"hidden_activation": "relu"}, "hidden_activation='relu': must be one of gelu"),
        ({"classifier_activation": "relu"}, "classifier_activation='relu': only that of the"),
        ({"layer_types": ["sliding_attention"] * 5}, "layer_types=.* can be read"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type='yarn'"),
        ({"rope_parameters": {"full_attention": 7}}, "rope_parameters.*=7: expected `object"),
        ({"local_attention": "128"}, "local_attention='128': expected `int"),
        ({"model_type": "modernbart"}, "only bert, modernbert, .*electra, .* can be read"),
        ({"model_type": "bert"}, "hf:model"),
    ],
)
def test_configs_that_are_refused(vocabulary, folder, changes, message):
    write_hugging_face(random_model(vocabulary, head_types.MASKED_LM, MODERNBERT), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(InputError, match=message):
        read_hugging_face(folder, "hf:model")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"positions": "learned"}, "no ModernBERT with positions='learned', only 'rotary'"),
        ({"norm": "after"}, "no ModernBERT with norm='after'"),
        ({"feed_forward": "plain"}, "no ModernBERT with feed_forward='plain'"),
        ({"causal": True}, "reads left to right"),
        ({"local_attention": 7}, "local_attention=7: must be even"),
    ],
)
def test_a_variant_that_transformers_lacks_is_not_written(vocabulary, folder, changes, message):
    model = random_model(
        vocabulary, head_types.MASKED_LM, dataclasses.replace(MODERNBERT, **changes)
    )
    with pytest.raises(InputError, match=message):
        write_hugging_face(model, folder)


@pytest.mark.slow
def test_it_takes_two_texts(vocabulary):
    """It has no token types: its input of a pair is that of one row of tokens."""
    model = random_model(vocabulary, head_types.SEQUENCE_CLASSIFICATION, MODERNBERT)
    model = dataclasses.replace(model, task={"problem_type": "single_label_classification"})
    (found,) = predictions(OneModel(model), numbered(["the cat ||| a dog runs"], "text"), "text")
    tokens = ["[CLS]", "the", "cat", "[SEP]", "a", "dog", "run", "##s", "[SEP]"]
    ids = np.array([[PIECES.index(token) for token in tokens]])
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids)}
    logits = outputs(model.model(), model.params, batch)
    assert found["probabilities"] == pytest.approx(
        dict(zip(CLASSES, softmax(logits["logits"][0]).tolist(), strict=True)), abs=rounding(1)
    )
