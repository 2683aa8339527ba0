"""Models for ONNX Runtime: their outputs, their files, and what is refused."""

import importlib.util

import pytest

from bertjax.base.errors import InputError
from bertjax.encoders import kinds
from bertjax.interop import onnx, proof
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.programs import convert
from tests.encoders import modernbert_models
from tests.helpers.closeness import LOGITS, rounding

needs = pytest.mark.needs("onnxruntime", "onnxscript", "transformers")


@needs
def test_a_classifier_is_exported(make_pretrained, tmp_path):
    given, exported = make_pretrained("BertForSequenceClassification"), tmp_path / "exported"
    write_hugging_face(given, tmp_path)
    found = convert.run(f"hf:{tmp_path}", f"onnx:{exported}")
    assert found["ONNX Runtime"] < rounding(LOGITS) < found["ONNX Runtime, 8 bits"] < 0.5
    assert (exported / "tokenizer.json").exists() and (exported / "model.safetensors").exists()
    # All dimensions are free: rows and lengths with which nothing was traced.
    inputs = {name: array[:5, :7] for name, array in proof.random_inputs(given).items()}
    ours = proof.outputs(given.model(), given.params, inputs)
    theirs = onnx.outputs(exported, onnx.WHOLE, inputs, ("logits",))
    assert proof.greatest_difference(ours, theirs, inputs) < rounding(LOGITS)
    sizes = [(exported / "onnx" / name).stat().st_size for name in onnx.FILES]
    assert sizes[1] < sizes[0]


@needs
@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture",
    [
        *("BertModel", "BertForPreTraining", "BertForMultipleChoice"),
        *("BertForTokenClassification", "BertForQuestionAnswering", "ModernBertForMaskedLM"),
    ],
)
def test_every_head(make_pretrained, vocabulary, tmp_path, architecture):
    if architecture.startswith("Modern"):
        given = modernbert_models.small_model(vocabulary, kinds.MASKED_LM)
    else:
        given = make_pretrained(architecture)
    write_hugging_face(given, tmp_path)
    inputs = proof.random_inputs(given)
    onnx.write(tmp_path, given.class_name, inputs)
    ours = proof.outputs(given.model(), given.params, inputs)
    theirs = onnx.outputs(tmp_path, onnx.WHOLE, inputs, tuple(ours))
    assert proof.greatest_difference(ours, theirs, inputs) < rounding(LOGITS)


def test_what_is_missing_is_named(make_pretrained, monkeypatch, tmp_path):
    write_hugging_face(make_pretrained(), tmp_path)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if "onnx" in name else find(name)
    )
    with pytest.raises(InputError, match=r"needs .*onnxruntime: pip install 'bertjax\[onnx\]'"):
        convert.run(f"hf:{tmp_path}", f"onnx:{tmp_path / 'out'}")
    assert not (tmp_path / "out").exists()
