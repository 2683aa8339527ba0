"""Distillation: its losses next to PyTorch's, its settings, and what it refuses."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.interop.names import to_hf, to_jax
from bertjax.interop.published.registry import array_names
from bertjax.models.encoders import head_types
from bertjax.models.encoders.presets import BertSpec, DistilBertSpec, ModernBertSpec
from bertjax.objectives.cross_entropy import divergence
from bertjax.objectives.distillation import Distillation
from bertjax.runs.recipe import Recipe
from bertjax.training.model import Part
from bertjax.training.objective import Rngs
from bertjax.training.step import means
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.tiny_run import tiny_config

SIZES = dict(hidden_size=24, num_attention_heads=3, vocab_size=29, max_position_embeddings=13)
STUDENT = DistilBertSpec(**SIZES, num_hidden_layers=2, intermediate_size=40)
TEACHER = dict(encoder="bert", num_hidden_layers=3, intermediate_size=56)
STILL = Rngs(jax.random.key(0), deterministic=True)


def _teacher(**changes) -> dict:
    return {**SIZES, **TEACHER, **changes}


def _kl(student, teacher, temperature):
    """In float64, term by term."""
    result, reference = (np.asarray(x, np.float64) / temperature for x in (student, teacher))
    result, reference = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (result, reference))
    return temperature**2 * (np.exp(reference) * (reference - result)).sum(-1)


_divergence = jax.jit(divergence)


@pytest.mark.parametrize("temperature", [0.5, 2.0, 7.0])
def test_the_divergence(temperature):
    rng = np.random.default_rng(0)
    student, teacher = (rng.normal(0, 3, (2, 3, width)).astype(np.float32) for width in (13, 11))
    counted = np.arange(11) < 7
    found = _divergence(student, teacher, temperature, counted)
    wanted = _kl(student[..., :7], teacher[..., :7], temperature)
    assert_close(found, wanted)
    assert (wanted > 0.1).all()
    none = _divergence(teacher, teacher, temperature, counted)
    assert_close(none, np.zeros_like(wanted), size=temperature**2)

    def cross_entropy(student):
        soft = jax.nn.softmax(teacher[..., :7] / temperature)
        return -(temperature**2) * (soft * jax.nn.log_softmax(student / temperature)).sum()

    total = lambda x: divergence(x, teacher, temperature, counted).sum()  # noqa: E731
    gradient = np.asarray(jax.jit(jax.grad(total))(student))
    wanted = jax.jit(jax.grad(cross_entropy))(student[..., :7])
    assert_close(gradient[..., :7], wanted, size=temperature)
    assert not gradient[..., 7:].any()


def test_padding_of_a_vocabulary_counts_for_nothing():
    """The lowest logits of `decode`, and a teacher with more rows."""
    rng = np.random.default_rng(1)
    student, teacher = (rng.normal(size=(1, 2, 9)).astype(np.float32) for _ in range(2))
    low = np.finfo(np.float32).min
    wide = np.concatenate([student, np.full((1, 2, 3), low, np.float32)], -1)
    other = np.concatenate([teacher, np.full((1, 2, 7), 5.0, np.float32)], -1)
    found = _divergence(wide, other, 0.25, np.arange(12) < 9)
    assert_close(found, _kl(student, teacher, 0.25))


@pytest.mark.parametrize("restricted", [False, True])
def test_the_means_are_of_masked_tokens_and_of_all_tokens(restricted):
    """Of models that give these logits at every token, of which some are masked."""
    rng, objective = np.random.default_rng(2), Distillation(restrict_ce_to_mask=restricted)
    used = np.array([[True, True], [True, False]])
    mask = np.array([[1, 1, 1], [1, 1, 0]])
    batch = {
        "input_mask": mask,
        "masked_lm_positions": np.array([[2, 0], [1, 0]], np.int32),
        "masked_lm_ids": np.array([[3, 1], [0, 2]], np.int32),
        "masked_lm_weights": used.astype(np.float32),
    }
    logits = rng.normal(size=(2, 2, 3, 5)).astype(np.float32)
    states = rng.normal(size=(2, 2, 3, 4)).astype(np.float32)

    class Given:
        parts = {
            name: Part(SimpleNamespace(spec=SimpleNamespace(vocab_size=size)), {})
            for name, size in (("student", 5), ("teacher", 4))  # the fifth is padding there
        }
        dropout = {}

        def __call__(self, params, inputs, dropout=None, part=""):
            self.dropout[part] = dropout
            number = ("student", "teacher").index(part)
            at = inputs.get("masked_lm_positions", jnp.tile(jnp.arange(3), (2, 1)))
            found = jnp.take_along_axis(logits[number], at[..., None], 1)
            return {"masked_lm": found, "sequence": states[number]}

    sums = jax.jit(lambda batch: objective.sums(Given(), {}, batch, STILL)[0])(batch)
    counts = objective.counts(batch)
    assert {name: float(sums[name][1]) for name in counts} == counts
    assert counts == {"mlm_loss": 3, "distil_loss": 3 if restricted else 5, "cosine_loss": 5}
    found = means(sums)
    of_token, masked = _kl(*logits[..., :4], 2.0), ([0, 0, 1], [2, 0, 1])
    compared = of_token[masked] if restricted else of_token[mask > 0]
    assert found["distil_loss"] == pytest.approx(compared.mean(), rel=rounding(1))
    labels = batch["masked_lm_ids"][used]
    student, teacher = (each[masked] for each in logits.astype(float))
    of_label = np.log(np.exp(student).sum(-1)) - student[np.arange(3), labels]
    assert found["mlm_loss"] == pytest.approx(of_label.mean(), rel=rounding(1))
    assert found["mlm_accuracy"] == pytest.approx((student.argmax(-1) == labels).mean())
    assert found["teacher_accuracy"] == pytest.approx((teacher.argmax(-1) == labels).mean())
    a, b = states
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    assert found["cosine_loss"] == pytest.approx(1 - cosine[mask > 0].mean(), rel=rounding(1))
    assert objective.loss_weights == {"mlm_loss": 2.0, "distil_loss": 5.0, "cosine_loss": 1.0}
    assert Given.dropout == {"student": None, "teacher": None}
    drops = Rngs(jax.random.key(3))
    jax.eval_shape(lambda: objective.outputs(Given(), {}, batch, drops))
    assert Given.dropout == {"student": drops.key, "teacher": None}
    without = dataclasses.replace(objective, cosine_weight=0.0)
    assert "cosine_loss" not in without.loss_weights
    assert "cosine_loss" not in jax.eval_shape(lambda: without.sums(Given(), {}, batch, STILL)[0])


@pytest.mark.peers
@pytest.mark.parametrize("restricted", [False, True])
def test_losses_and_gradients_are_those_of_pytorch(restricted):
    """DistilBERT of transformers learns from its BERT, by the losses of the paper's code."""
    import torch
    import transformers
    from torch.nn.functional import cosine_embedding_loss, kl_div, log_softmax, softmax

    shared = dict(vocab_size=29, max_position_embeddings=13)
    torch.manual_seed(3)
    student = transformers.DistilBertForMaskedLM(
        transformers.DistilBertConfig(dim=24, n_heads=3, n_layers=2, hidden_dim=40, **shared)
    ).eval()
    teacher = transformers.BertForMaskedLM(
        transformers.BertConfig(
            hidden_size=24,
            num_attention_heads=3,
            num_hidden_layers=3,
            intermediate_size=56,
            **shared,
        )
    ).eval()
    with torch.no_grad():
        for array in (*student.parameters(), *teacher.parameters()):
            array += 0.1 * torch.randn_like(array)

    rng, length = np.random.default_rng(4), 11
    mask = np.arange(length) < np.array([[11], [7], [4]])
    ids = rng.integers(1, 29, mask.shape) * mask
    labels = rng.integers(1, 29, (3, 2))
    places, used = np.array([[2, 5], [1, 6], [3, 0]]), np.array([[1, 1], [1, 1], [1, 0]])
    batch = dict(
        input_ids=ids,
        input_mask=mask.astype(np.int32),
        token_type_ids=np.zeros_like(ids),
        masked_lm_positions=places.astype(np.int32),
        masked_lm_ids=labels.astype(np.int32),
        masked_lm_weights=used.astype(np.float32),
    )

    tensors = dict(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask).long())
    result = student(**tensors, output_hidden_states=True)
    with torch.no_grad():
        reference = teacher(**tensors, output_hidden_states=True)
    rows, columns = np.nonzero(used)
    s, t = (each.logits[rows, places[rows, columns]] for each in (result, reference))
    mlm = torch.nn.functional.cross_entropy(s, torch.tensor(labels[rows, columns]))
    if not restricted:
        s, t = (each.logits[torch.tensor(mask)] for each in (result, reference))
    distil = kl_div(log_softmax(s / 2, -1), softmax(t / 2, -1), reduction="batchmean") * 4
    a, b = (each.hidden_states[-1][torch.tensor(mask)] for each in (result, reference))
    cosine = cosine_embedding_loss(a, b, torch.ones(len(a)))
    (5 * distil + 2 * mlm + cosine).backward()

    objective = Distillation(teacher=_teacher(), restrict_ce_to_mask=restricted)
    model = objective.model(STUDENT)
    params, entries = {}, {}
    for (name, part), peer in zip(model.parts.items(), (student, teacher), strict=True):
        spec = part.module.spec
        entries[name] = array_names((spec.encoder, "masked_lm"), spec, head_types.MASKED_LM, 0)
        arrays = {key: array.detach().numpy() for key, array in peer.state_dict().items()}
        params[name] = to_jax(arrays, entries[name], "transformers")

    def loss(trained):
        found = objective.sums(model, {**params, "student": trained}, batch, STILL)[0]
        found = {name: total / count for name, (total, count) in found.items()}
        weights = objective.loss_weights
        return sum(weight * found[name] for name, weight in weights.items()), found

    (_, found), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params["student"])
    for name, value in dict(distil_loss=distil, mlm_loss=mlm, cosine_loss=cosine).items():
        assert found[name] == pytest.approx(value.item(), rel=rounding(1)), name
    grads = to_hf(jax.tree.map(np.asarray, grads), entries["student"])
    largest = max(np.abs(each).max() for each in grads.values())
    for key, array in student.named_parameters():
        wanted, result = array.grad.numpy(), grads[key].copy()
        if key.endswith("word_embeddings.weight"):
            result[0] = wanted[0]  # torch gives the row of padding no gradient
        # The bias of keys has no gradient but for rounding.
        size = largest if key.endswith("k_lin.bias") else None
        assert_close(result, wanted, 1000, size=size, err_msg=key)


def test_the_teacher_is_frozen_and_computes_as_the_student():
    student = dataclasses.replace(STUDENT, vocab_multiple=8, scan_layers=True)
    objective = Distillation(teacher=_teacher(vocab_size=30))
    model = objective.model(student)
    assert {name: part.frozen for name, part in model.parts.items()} == {
        "student": False,
        "teacher": True,
    }
    teacher = model.parts["teacher"].module.spec
    assert teacher == BertSpec(
        **SIZES | dict(vocab_size=30),
        num_hidden_layers=3,
        intermediate_size=56,
        vocab_multiple=8,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    assert jax.eval_shape(model.init, jax.random.key(0)).keys() == {"student"}
    for restricted, predicted in ((True, 2), (False, 13)):
        flops = [spec.flops_per_token(13, predicted) for spec in (student, teacher)]
        found = dataclasses.replace(objective, restrict_ce_to_mask=restricted)
        assert found.flops_per_token(student, 13, 2) == flops[0] + flops[1] / 3
    sized = Distillation(teacher=dict(encoder="modernbert", size="base"))
    assert sized.teacher_spec(STUDENT) == ModernBertSpec.named(
        "base", vocab_size=29, max_position_embeddings=13
    )
    assert Distillation().teacher_spec(STUDENT) == dataclasses.replace(
        STUDENT, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(temperature=0.0), "temperature=0.0: must be above 0"),
        (dict(mlm_weight=-1.0), "mlm_weight=-1.0: must be at least 0"),
        (dict(distil_weight=0.0, cosine_weight=0.0), "nothing to learn from a teacher"),
        (dict(teacher=dict(encoder="brt")), r"teacher\.encoder='brt': must be one of bert"),
        (dict(teacher=dict(encoder="bert", dim=3)), r"teacher\.dim: a bert has no such field"),
        (dict(teacher=dict(hidden_size=48)), "teacher are 48 wide and the student's 32"),
        (
            dict(teacher=dict(hidden_size=32, num_attention_heads=2, max_position_embeddings=50)),
            "the teacher takes 50 tokens",
        ),
    ],
)
def test_what_is_refused(settings, message):
    config = tiny_config("", objective=dict(name="distillation") | settings)
    with pytest.raises(InputError, match=message):
        Recipe.from_config(config)
