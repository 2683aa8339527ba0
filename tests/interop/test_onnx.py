"""Models for ONNX Runtime: their outputs, their files, and what is refused."""

import importlib.util
import re

import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.interop import onnx, proof
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.models.encoders import head_types
from bertjax.programs import convert
from tests.helpers.closeness import LOGITS, rounding
from tests.helpers.small_models import MODERNBERT, random_model

needs = pytest.mark.needs("onnxruntime", "onnxscript", "transformers")


def test_what_is_taken_from_an_output():
    mask = np.array([[1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]]) > 0
    states = np.zeros((4, 3, 2))
    states[0, :2], states[1], states[2, 0], states[3] = (1, 0), (2, 0.1), (-1, 3), (0, 1)
    states[0, 2] = 99  # padding does not count
    assert proof.decisions("sequence", states, mask).tolist() == [1, 0, 3, 2]
    logits = np.array([[0, 3, 1], [5, 4, 9], [1, 0, 0], [2, 1, 3]], float)
    assert proof.decisions("logits", logits, mask).tolist() == [1, 2, 0, 2]
    assert proof.decisions("start", logits, mask).tolist() == [1, 2, 0, 2]
    assert proof.decisions("end", logits[::-1], mask).tolist() == [0, 0, 0, 1]
    assert proof.decisions("replaced", logits - 2, mask).sum() == 5
    pieces = np.stack([logits, 2 * np.ones_like(logits)], -1)
    assert proof.decisions("masked_lm", pieces, mask).tolist() == [1, 0, 0, 0, 0, 1, 0, 1, 0]
    numbers = np.array([[0.5], [0.1], [0.7], [0.6]])
    changed = proof.decisions("logits", numbers, mask) != proof.decisions("logits", -numbers, mask)
    assert changed.sum() == 12  # the order of all pairs


def test_texts_and_others_that_are_like_them(make_pretrained):
    """A choice of three texts, each of which has another that shares some of its tokens."""
    batches = proof.random_pairs(make_pretrained("BertForMultipleChoice"))
    assert [batch["input_ids"].shape for batch in batches] == [(8, 3, 8), (8, 3, 13)]
    for batch in batches:
        texts, like = np.split(batch["input_ids"].reshape(24, -1), 2)
        assert 0.25 < (texts == like).mean() < 0.5 and (texts > 0).all()
        assert batch["input_mask"].all() and set(np.unique(batch["token_type_ids"])) == {0, 1}


@needs
def test_a_classifier_is_exported(make_pretrained, tmp_path, capfd):
    pretrained, exported = make_pretrained("BertForSequenceClassification"), tmp_path / "exported"
    write_hugging_face(pretrained, tmp_path)
    found = convert.run(f"hf:{tmp_path}", f"onnx:{exported}")
    assert found["ONNX Runtime"] < rounding(LOGITS) < found["ONNX Runtime, 8 bits"] < 0.5
    said = capfd.readouterr()
    (share,) = re.findall(r"Changed by 8 bits.*\n  best classes, or the order: (.+)%", said.out)
    status = "yes" if float(share) <= 5 else "no, with more than 5%: take onnx/model.onnx"
    for text in (said.out, (exported / "README.md").read_text()):
        assert re.search(rf"is model_quantized.onnx fit for use\W+{re.escape(status)}", text)
    lines = (said.out + said.err).strip().splitlines()
    assert len(lines) <= 10, lines  # nothing of PyTorch and ONNX Runtime
    assert (exported / "tokenizer.json").exists() and (exported / "model.safetensors").exists()
    # All dimensions are free: rows and lengths with which nothing was traced.
    inputs = {name: array[:5, :7] for name, array in proof.random_inputs(pretrained).items()}
    result = proof.outputs(pretrained.model(), pretrained.params, inputs)
    (reference,) = onnx.outputs(exported, onnx.WHOLE, [inputs], ("logits",))
    assert proof.greatest_difference(result, reference, inputs) < rounding(LOGITS)
    sizes = [(exported / "onnx" / name).stat().st_size for name in onnx.FILES]
    assert sizes[1] < sizes[0]


@needs
@pytest.mark.slow
@pytest.mark.parametrize(
    "head_spec",
    [
        *("BertModel", "BertForPreTraining", "BertForMultipleChoice"),
        *("BertForTokenClassification", "BertForQuestionAnswering", "ModernBertForMaskedLM"),
    ],
)
def test_every_head(make_pretrained, vocabulary, tmp_path, head_spec):
    if head_spec.startswith("Modern"):
        pretrained = random_model(vocabulary, head_types.MASKED_LM, MODERNBERT)
    else:
        pretrained = make_pretrained(head_spec)
    write_hugging_face(pretrained, tmp_path)
    inputs = proof.random_inputs(pretrained)
    onnx.write(tmp_path, pretrained.class_name, inputs)
    result = proof.outputs(pretrained.model(), pretrained.params, inputs)
    (reference,) = onnx.outputs(tmp_path, onnx.WHOLE, [inputs], tuple(result))
    assert proof.greatest_difference(result, reference, inputs) < rounding(LOGITS)


def test_what_is_missing_is_named(make_pretrained, monkeypatch, tmp_path):
    write_hugging_face(make_pretrained(), tmp_path)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if "onnx" in name else find(name)
    )
    with pytest.raises(InputError, match=r"needs .*onnxruntime: pip install -e '\.\[onnx\]'"):
        convert.run(f"hf:{tmp_path}", f"onnx:{tmp_path / 'out'}")
    assert not (tmp_path / "out").exists()
