"""The task in the files of a fine-tuned model, of this project and of other people."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import linen as nn

from bertjax.base.errors import InputError
from bertjax.interop.hugging_face import read_hugging_face, write_hugging_face
from bertjax.interop.own_folder import read_folder, write_folder
from bertjax.interop.published.registry import PUBLISHED
from bertjax.interop.serving import write_serving
from bertjax.models.encoders import head_types
from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.runs.fine_tuning.fine_tuned import OneModel
from bertjax.runs.fine_tuning.model import class_names, encoder_with_head
from bertjax.runs.fine_tuning.task_family import about_reranker, remembered, task_family_of
from bertjax.tasks.choice import MultipleChoice
from bertjax.tasks.classification import AnsweredPairs, Classification, Regression
from bertjax.tasks.multi_label import THRESHOLDS, MultiLabel
from bertjax.tasks.question_answering import NULL_THRESHOLD, QuestionAnswering
from bertjax.tasks.tagging import Tagging

CLASSES = ("no", "maybe", "yes")  # as the small models have


@pytest.mark.parametrize(
    "family",
    [
        Classification(CLASSES),
        Classification(CLASSES, pairs=True),
        MultiLabel(CLASSES, pairs=False),
        Regression(pairs=False),
        MultipleChoice(),
        MultipleChoice(3),
        Tagging(CLASSES),
        Tagging(CLASSES, document_context=False),
        QuestionAnswering(),
        QuestionAnswering(True, max_query_length=5, stride=3, max_answer_length=7, n_best=2),
    ],
    ids=repr,
)
def test_a_family_comes_back_from_the_folder_of_its_model(make_pretrained, tmp_path, family):
    model = make_pretrained(PUBLISHED["bert"].classes[TASK_LOSSES[family.objective].head_type])
    if isinstance(family, Regression):
        model = _with_one_output(model)
    assert class_names(family) == model.classes
    more = {NULL_THRESHOLD: -1.5, "name": "a task", "trial": "batch8"}
    more[THRESHOLDS] = {"no": 0.25, "maybe": 0.0, "yes": 1e-9}
    model = dataclasses.replace(model, task=remembered(family, 11) | more)
    write_hugging_face(model, tmp_path)
    again = read_hugging_face(tmp_path, "again")
    assert again.task == model.task
    assert task_family_of(again) == (family, 11)


@pytest.mark.slow
def test_an_answer_network_comes_back_from_a_folder_of_ours(make_pretrained, tmp_path):
    """With its steps, and it predicts as before; transformers and servers have none."""
    family = AnsweredPairs(CLASSES, True, steps=3, step_dropout=0.25)
    pretrained, kind = make_pretrained("BertModel"), head_types.ANSWER_NETWORK
    params = nn.unbox(jax.jit(encoder_with_head(family, pretrained.spec).init)(jax.random.key(0)))
    about = dict(head_type=kind, classes=CLASSES, task=remembered(family, 11))
    made = dataclasses.replace(pretrained, params=jax.device_get(params), **about)
    write_folder(made, tmp_path)
    again = read_folder(tmp_path, "again")
    assert again.parts == ("bert", "answer_network") and again.missing == ()
    assert task_family_of(again) == (family, 11)
    assert (again.model().steps, again.model().step_dropout) == (3, 0.25)
    examples = [family.parse(line, "here") for line in ("the cat ||| a dog", "dogs run ! ||| 7")]
    one, two = (OneModel(model).predict(examples, "here") for model in (made, again))
    np.testing.assert_array_equal(one, two)
    assert np.shape(one) == (2, 3) and np.ptp(one, axis=0).max() > 1e-3
    with pytest.raises(InputError, match="transformers has no such model as .* an answer network"):
        write_hugging_face(again, tmp_path)
    with pytest.raises(InputError, match="reads text_numbers next to the .* an answer network"):
        write_serving(again, tmp_path)
    for classes, goes_on in ((CLASSES, True), (CLASSES[::-1], False)):
        started = again.beginning(kind, classes)
        assert started.keys() == {"bert"} | ({"answer_network"} if goes_on else set())
    assert again.beginning(head_types.SEQUENCE_CLASSIFICATION, CLASSES).keys() == {"bert"}


def _with_one_output(model):
    head = {name: leaf[..., :1] for name, leaf in model.params["classifier"].items()}
    params = {**model.params, "classifier": head}
    return dataclasses.replace(model, params=params, classes=("LABEL_0",))


def test_a_reranker_reads_pairs_and_says_what_its_number_is(make_pretrained, tmp_path):
    model = _with_one_output(make_pretrained(SEQUENCE, classes=CLASSES))
    assert OneModel(dataclasses.replace(model, task=remembered(Regression(), 11))).summary == (
        model.summary()
    )
    for loss, value in (("binary", "1 / (1 + exp(-value))"), ("kl", "it compares the passages")):
        folder = tmp_path / loss
        folder.mkdir()
        write_hugging_face(dataclasses.replace(model, task=about_reranker(11, loss)), folder)
        again = OneModel(read_hugging_face(folder, "again"))
        assert again.family == Regression(pairs=True) and value in again.summary
    with pytest.raises(InputError, match="here: a: one text, but the model learned from two"):
        again.family.parse("a", "here")
    # A `CrossEncoder` of others, and a model with one number of others, which may be of one text.
    activation = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}
    for name, config, pairs in (("theirs", activation, True), ("other", {}, None)):
        (tmp_path / name).mkdir()
        found = OneModel(_read(model, tmp_path / name, **config))
        assert found.family == Regression(pairs=pairs)
        assert ("before the activation" in found.summary) == bool(pairs)


def _read(model, folder, **config):
    """Reads a folder as if other people had made it, with `config` in config.json."""
    write_hugging_face(model, folder)
    file = folder / "config.json"
    content = json.loads(file.read_text())
    assert "bertjax_task" not in content and "problem_type" not in content
    content |= config
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return read_hugging_face(folder, "theirs")


SEQUENCE = "BertForSequenceClassification"


@pytest.mark.parametrize(
    ("head_spec", "config", "family"),
    [
        (SEQUENCE, {}, Classification(CLASSES)),
        (SEQUENCE, dict(problem_type="single_label_classification"), Classification(CLASSES)),
        (SEQUENCE, dict(problem_type="multi_label_classification"), MultiLabel(CLASSES)),
        (SEQUENCE, dict(id2label=None), Classification(("LABEL_0", "LABEL_1", "LABEL_2"))),
        ("BertForTokenClassification", {}, Tagging(CLASSES)),
        ("BertForMultipleChoice", {}, MultipleChoice(4)),
        ("BertForMultipleChoice", dict(id2label=None), MultipleChoice(4)),
    ],
)
def test_models_of_others(make_pretrained, tmp_path, head_spec, config, family):
    model = _read(make_pretrained(head_spec), tmp_path, **config)
    assert task_family_of(model) == (family, 13)  # as long as the model takes


@pytest.mark.parametrize("config", [{}, dict(problem_type="regression")])
def test_one_output_is_a_number(make_pretrained, tmp_path, config):
    model = _read(_with_one_output(make_pretrained(SEQUENCE)), tmp_path, **config)
    assert task_family_of(model) == (Regression(), 13)


def test_several_numbers_are_refused(make_pretrained, tmp_path):
    model = _read(make_pretrained(SEQUENCE), tmp_path, problem_type="regression")
    with pytest.raises(InputError, match="theirs: a regression to 3 numbers; only those to one"):
        task_family_of(model)


def test_questions_to_a_model_that_takes_long_texts(make_pretrained):
    model = make_pretrained("BertForQuestionAnswering")
    assert task_family_of(model) == (QuestionAnswering(max_query_length=3, stride=7), 13)
    spec = dataclasses.replace(model.spec, max_position_embeddings=512)
    assert task_family_of(dataclasses.replace(model, spec=spec)) == (QuestionAnswering(), 384)


@pytest.mark.parametrize("length", [0, 2, 14])
def test_a_length_that_the_model_does_not_take(make_pretrained, tmp_path, length):
    model = _read(make_pretrained(SEQUENCE), tmp_path, bertjax_task={"max_length": length})
    with pytest.raises(InputError, match=f"theirs: max_length={length}: must be from 3 to 13, the"):
        task_family_of(model)


def test_one_label_or_none(make_pretrained, tmp_path):
    """A single output is a number, unless the model's files say otherwise."""
    model = _with_one_output(make_pretrained(SEQUENCE))
    model = _read(model, tmp_path, problem_type="multi_label_classification")
    assert task_family_of(model) == (MultiLabel(("LABEL_0",)), 13)


def test_an_unknown_problem_is_refused(make_pretrained, tmp_path):
    model = _read(make_pretrained(SEQUENCE), tmp_path, problem_type="ranking")
    with pytest.raises(InputError, match="theirs: problem_type='ranking': must be one of single"):
        task_family_of(model)


def test_damaged_thresholds(make_pretrained, tmp_path):
    for wrong in ([0.5], {"no": "0.5"}, {"no": float("nan")}):
        with pytest.raises(InputError, match="config.json: damaged .*thresholds"):
            _read(make_pretrained(SEQUENCE), tmp_path, bertjax_task={"thresholds": wrong})


@pytest.mark.parametrize("head_spec", ["BertModel", "BertForPreTraining", "BertForMaskedLM"])
def test_a_model_without_a_head_is_refused(make_pretrained, head_spec):
    with pytest.raises(InputError, match=f"{head_spec} has no head of a task: give one of Bert"):
        task_family_of(make_pretrained(head_spec))
