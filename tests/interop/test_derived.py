"""Some layers of a model, and the weights of a relative."""

import dataclasses

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.interop.derived import as_family, with_layers
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.interop.proof import outputs, random_inputs
from bertjax.models.encoders import head_types
from bertjax.runs.source import open_model
from tests.helpers.small_models import MODERNBERT, SPEC, random_model

THREE = dataclasses.replace(SPEC, num_hidden_layers=3)
DISTILLED = dataclasses.replace(SPEC, layer_norm_eps=1e-12)  # DistilBERT has no other


def test_some_layers(make_pretrained, tmp_path):
    pretrained = make_pretrained(spec=THREE)
    some = with_layers(pretrained, (0, 2))
    assert some.spec == SPEC and some.head_type == pretrained.head_type
    result, reference = (each.params["bert"]["encoder"] for each in (some, pretrained))
    assert result == {"layer_0": reference["layer_0"], "layer_1": reference["layer_2"]}
    inputs = random_inputs(some)
    turned = with_layers(pretrained, (2, 0))
    states, others = (
        outputs(each.model(head_types.ENCODER), each.params, inputs)["sequence"]
        for each in (some, turned)
    )
    assert np.abs(others - states).max() > 0.1

    write_hugging_face(pretrained, tmp_path)
    again = open_model(f"hf:{tmp_path}#0,2")
    assert again.origin == f"layers 0, 2 of hf:{tmp_path}" and again.spec == SPEC
    jax.tree.map(np.testing.assert_array_equal, again.params, dict(some.params))
    with pytest.raises(InputError, match=r"no layer 3: there are 0 to 2"):
        open_model(f"hf:{tmp_path}#0,3")


def test_a_layer_with_other_parameters_than_its_place(vocabulary):
    """The first layer of a ModernBERT has no norm before its attention."""
    pretrained = random_model(vocabulary, head_types.MASKED_LM, MODERNBERT)
    pretrained = dataclasses.replace(
        pretrained, spec=dataclasses.replace(pretrained.spec, global_attn_every_n_layers=1)
    )
    with pytest.raises(InputError, match="layer 1 has other parameters than layer 0"):
        with_layers(pretrained, (1,))


def test_a_layer_of_another_kind_than_its_place(vocabulary):
    pretrained = random_model(vocabulary, head_types.MASKED_LM, MODERNBERT)
    kinds_of = [
        pretrained.spec.layer_type(each) for each in range(pretrained.spec.num_hidden_layers)
    ]
    assert kinds_of[:2] == ["global", "local"]
    layer = kinds_of.index("global", 1)
    with pytest.raises(InputError, match=f"layer {layer} is global, and place 1 is for a local"):
        with_layers(pretrained, (0, layer))
    assert with_layers(pretrained, (0, 2)).spec.num_hidden_layers == 2


def test_a_distilbert_of_a_bert(make_pretrained):
    """It is the BERT of texts without token types whose embedding is 0; its epsilon is fixed."""
    pretrained = make_pretrained(spec=DISTILLED)
    params = jax.tree.map(np.copy, dict(pretrained.params))
    params["bert"]["embeddings"]["segment"][:] = 0
    pretrained = dataclasses.replace(pretrained, params=params)
    found = as_family(pretrained, "distilbert")
    assert (found.family.name, found.head_type) == ("distilbert", head_types.MASKED_LM)
    assert found.spec.hidden_act == SPEC.hidden_act and found.missing == ()
    assert {name.split("/")[0] for name in found.left_out} == {
        *("distilbert", "pooler", "next_sentence_head")
    }
    assert "distilbert/embeddings/segment" in found.left_out
    inputs = random_inputs(pretrained)
    np.testing.assert_array_equal(
        outputs(found.model(), found.params, inputs)["masked_lm"],
        outputs(pretrained.model(head_types.MASKED_LM), pretrained.params, inputs)["masked_lm"],
    )


@pytest.mark.parametrize("name", ["modernbert", "roberta", "electra"])
def test_weights_that_another_family_cannot_have(make_pretrained, name):
    pretrained = make_pretrained(spec=DISTILLED)
    assert as_family(pretrained, name) is pretrained
    assert as_family(as_family(pretrained, "distilbert"), "bert").family.name == "distilbert"


def test_a_distilbert_has_one_epsilon(make_pretrained):
    message = "layer_norm_eps=0.001: a distilbert has 1e-12: set config.model.encoder='bert'"
    with pytest.raises(InputError, match=message):
        as_family(make_pretrained(), "distilbert")
