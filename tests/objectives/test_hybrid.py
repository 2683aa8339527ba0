"""Rows that are read left to right, and rows with masked tokens, in one batch."""

import dataclasses
from functools import partial

import jax
import numpy as np
import optax
import pytest
from flax import linen as nn

import bertjax
from bertjax.base.errors import InputError
from bertjax.models.encoders import head_types
from bertjax.models.encoders.presets import ModernBertSpec
from bertjax.objectives.hybrid import CAUSAL, Hybrid
from bertjax.objectives.left_to_right import LeftToRight
from bertjax.objectives.masked_lm import MaskedLM
from bertjax.programs import complete, perplexity, pretrain, score
from bertjax.runs.pretrained_run import LoadedRun, PretrainedRun
from bertjax.runs.recipe import Recipe
from bertjax.runs.source import load_run, open_model
from bertjax.training.experiment import Experiment
from bertjax.training.objective import Rngs
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.placement import data_parallel, make_placement
from bertjax.training.state import TrainState
from bertjax.training.step import means, train_step
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.some_updates import some_updates
from tests.helpers.task_files import write_minimal_pairs
from tests.helpers.tiny_run import metrics_of, tiny_config

HYBRID = Hybrid(causal_rows=2, group=3)
SPEC = ModernBertSpec(
    vocab_size=53,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=32,
    initializer_range=0.3,
)
ROWS, LENGTH, PLACES = 24, 11, 3


def batch_of(microbatches: int = 1) -> dict[str, np.ndarray]:
    """Random rows of 11 to 7 tokens."""
    rng = np.random.default_rng(2)
    mask = (np.arange(LENGTH) < rng.integers(7, LENGTH + 1, (ROWS, 1))).astype(np.int32)
    causal = np.arange(ROWS) // microbatches % 3 < 2
    used = (np.arange(PLACES) < rng.integers(0, PLACES + 1, (ROWS, 1))) & ~causal[:, None]
    return {
        "input_ids": rng.integers(5, 53, (ROWS, LENGTH)).astype(np.int32) * mask,
        "input_mask": mask,
        "token_type_ids": 0 * mask,
        "masked_lm_positions": np.sort(rng.integers(1, 7, (ROWS, PLACES))).astype(np.int32),
        "masked_lm_ids": rng.integers(5, 53, (ROWS, PLACES)).astype(np.int32),
        "masked_lm_weights": used.astype(np.float32),
        "target_ids": rng.integers(5, 53, (ROWS, LENGTH)).astype(np.int32),
        "target_weights": mask * causal[:, None].astype(np.float32),
    }


@pytest.fixture(scope="module")
def params():
    return nn.unbox(jax.jit(HYBRID.model(SPEC).init)(jax.random.key(1)))


@pytest.mark.slow
def test_its_losses_are_those_of_both_objectives(params):
    """On their rows, by one set of parameters; one counts 1/3, and the other 2/3."""
    batch, still = batch_of(), Rngs(jax.random.key(0), deterministic=True)

    def sums(objective, model, params, batch):
        return jax.jit(lambda p, b: objective.sums(model, p, b, still)[0])(params, batch)

    found = means(sums(HYBRID, HYBRID.model(SPEC), params, batch))
    causal = np.arange(ROWS) % 3 < 2
    for objective, rows, name in ((MaskedLM(), ~causal, "mlm"), (LeftToRight(), causal, "causal")):
        model = objective.model(dataclasses.replace(SPEC, causal=objective.causal))
        own = {n: x[rows] for n, x in batch.items() if n in objective.fields}
        expected = means(sums(objective, model, params, own))
        assert found[f"{name}_loss"] == pytest.approx(expected["mlm_loss"], rel=rounding(1))
        assert found[f"{name}_accuracy"] == expected["mlm_accuracy"]
    assert HYBRID.loss_weights == pytest.approx({"mlm_loss": 1 / 3, "causal_loss": 2 / 3})
    # In a causal row, nothing changes what is predicted before it.
    assert found["mlm_loss"] != found["causal_loss"]


def test_each_part_reads_its_rows_and_drops_its_own_elements():
    batch, key, seen = batch_of(), jax.random.key(0), []

    def model(params, inputs, dropout=None, part=""):
        seen.append((part, inputs, dropout))
        return {"masked_lm": part}

    outputs = HYBRID.outputs(model, {}, batch, Rngs(key))
    assert outputs == {"masked_lm": "", "next": CAUSAL}
    assert [part for part, _, _ in seen] == ["", CAUSAL]
    causal = np.arange(ROWS) % 3 < 2
    for (_, inputs, _), rows in zip(seen, (~causal, causal), strict=True):
        np.testing.assert_array_equal(inputs["input_ids"], batch["input_ids"][rows])
    assert "masked_lm_positions" in seen[0][1] and "masked_lm_positions" not in seen[1][1]
    dropped = [jax.random.key_data(dropout).tolist() for _, _, dropout in seen]
    assert dropped[0] != dropped[1]
    HYBRID.outputs(model, {}, batch, Rngs(key, deterministic=True))
    assert [dropout for _, _, dropout in seen[2:]] == [None, None]


@pytest.mark.parametrize("context", [None, 4.5])
def test_operations(context):
    """Of three rows, two predict all 11 tokens and one predicts 3."""
    of_row = [SPEC.flops_per_token(LENGTH, predicted, context) for predicted in (11, 11, 3)]
    found = HYBRID.flops_per_token(SPEC, LENGTH, 3, context)
    assert found == pytest.approx(sum(of_row) / 3) and of_row[0] > of_row[2]


def _update(params, microbatches):
    optimizer = optax.with_extra_args_support(optax.sgd(0.1))
    state = TrainState(jax.numpy.int32(0), params, optimizer.init(params))
    options = dict(model=HYBRID.model(SPEC), objective=HYBRID, optimizer=optimizer)
    step = jax.jit(partial(train_step, **options, accumulate=microbatches))
    return step(state, {}, batch_of(4), 1.0, 0)


@pytest.mark.slow
def test_microbatches_have_whole_groups(params):
    """Every fourth row is of one microbatch; the rows of the batch are laid out for that."""
    rows = {n: x.reshape(6, 4, *x.shape[1:]).swapaxes(0, 1) for n, x in batch_of(4).items()}
    assert (rows["target_weights"].any(-1) == (np.arange(6) % 3 < 2)).all()
    state, sums = _update(params, 4)
    batch = {n: x.reshape(ROWS, *x.shape[2:]) for n, x in rows.items()}
    still = Rngs(jax.random.key(0), deterministic=True)
    of_batch = jax.jit(lambda p: HYBRID.sums(HYBRID.model(SPEC), p, batch, still)[0])
    expected = means(of_batch(params))
    found = means(sums)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=rounding(1))

    def loss(params):
        each = HYBRID.sums(HYBRID.model(SPEC), params, batch, still)[0]
        return sum(w * each[n][0] / each[n][1] for n, w in HYBRID.loss_weights.items())

    after = lambda p: jax.tree.map(lambda p, g: p - 0.1 * g, p, jax.grad(loss)(p))  # noqa: E731
    assert_close(state.params, jax.jit(after)(params), size=1)


@pytest.mark.slow
@pytest.mark.devices(8)
@pytest.mark.parametrize("layout, mesh", [("zero1", {}), ("tensor_fsdp", {"model": 2})])
def test_eight_devices_train_what_one_trains(layout, mesh):
    objective = Hybrid(causal_rows=2, group=3)
    spec = dataclasses.replace(SPEC, vocab_multiple=8)

    def train(placement):
        optimizer = optax.with_extra_args_support(optax.sgd(1e-2))
        experiment = Experiment(objective.model(spec), objective, optimizer, placement)
        return some_updates(experiment, batch_of())

    one, params = train(data_parallel(jax.devices()[:1]))
    eight, others = train(make_placement(MeshSpec(**mesh), layout))
    for a, b in zip(one, eight, strict=True):
        assert a == pytest.approx(b, rel=rounding(1))
    assert_close(others, params, size=1)


@pytest.mark.parametrize(
    "kind, part", [("", ""), (head_types.MASKED_LM, ""), (head_types.CAUSAL_LM, CAUSAL)]
)
def test_a_kind_opens_its_part(tiny_corpus, monkeypatch, kind, part):
    objective = {"name": "hybrid", "causal_rows": 1, "group": 4}
    recipe = Recipe.from_config(tiny_config(tiny_corpus, objective=objective))
    loaded = LoadedRun("run", recipe, *[None] * 4, step=1, data={})
    monkeypatch.setattr(PretrainedRun, "load", lambda run: loaded)
    monkeypatch.setattr(LoadedRun, "weights", lambda run, part: part)
    assert PretrainedRun("run", recipe, open_model).weights(kind) == part


@pytest.mark.slow
def test_a_run(tiny_corpus, tmp_path):
    """Its model is opened as a masked LM, or as a causal one with the same parameters.

    It goes on with the parameters of a phase that was read left to right alone.
    """
    objective = {"name": "hybrid", "causal_rows": 1, "group": 4}
    config = tiny_config(
        tiny_corpus,
        objective=objective,
        phase_1={"objective": "left_to_right"},
        phase_2={"accumulate": 2},
        keep_checkpoints=3,
    )
    assert pretrain.run(config, str(tmp_path / "run")) == 0
    last = [row for row in metrics_of(tmp_path / "run") if row["split"] == "heldout"][-1]
    assert last["loss"] == pytest.approx(0.75 * last["mlm_loss"] + 0.25 * last["causal_loss"])
    run = load_run(tmp_path / "run")
    masked, causal = run.weights(), run.weights(CAUSAL)
    assert (masked.head_type, masked.spec.causal) == (head_types.MASKED_LM, False)
    assert (causal.head_type, causal.spec.causal) == (head_types.CAUSAL_LM, True)
    jax.tree.map(np.testing.assert_array_equal, masked.params, causal.params)
    first = load_run(f"{tmp_path / 'run'}@9").weights()  # the end of phase 1
    assert first.head_type == head_types.CAUSAL_LM
    assert jax.tree.structure(first.params) == jax.tree.structure(causal.params)
    write_minimal_pairs(tmp_path / "words.jsonl")
    model = bertjax.load(str(tmp_path / "run"))
    assert complete.run(model.source, ["moo"], 3) == model.complete(["moo"], 3)
    assert perplexity.run(str(tmp_path / "run"), None, 31)["nats_per_token"] > 0
    arguments = str(tmp_path / "run"), str(tmp_path / "words.jsonl")
    assert score.run(*arguments)["masking"] == "token"
    assert score.run(*arguments, part=CAUSAL)["masking"] is None


@pytest.mark.parametrize(
    "settings, changes, message",
    [
        ({"causal_rows": 0}, {}, r"config\.objective\.causal_rows=0: must be at least 1"),
        ({"causal_rows": 4}, {}, r"config\.objective\.causal_rows=4: must be above 0, and less"),
        (
            {},
            {"phase_2": {"batch_size": 6}},
            r"config\.phase_2: 6 rows .* groups of 4 of objecti",
        ),
        ({}, {"eval_batch_size": 9}, r"config\.phase_1: 9 rows .* groups of 4 of objective='hyb"),
    ],
)
def test_bad_settings(tiny_corpus, settings, changes, message):
    objective = {"name": "hybrid", "causal_rows": 1, "group": 4, **settings}
    with pytest.raises(InputError, match=message):
        Recipe.from_config(tiny_config(tiny_corpus, objective=objective, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": {"name": "hybrid", "causal_rows": 1, "group": 4}},
        {"objective": "left_to_right"},
        {"objective": "masked_lm", "phase_2": {"objective": "left_to_right"}},
    ],
)
def test_a_convolution_does_not_read_left_to_right(tiny_corpus, changes):
    config = tiny_config(tiny_corpus, **changes)
    config["model"] |= {"encoder": "deberta-v2", "conv_kernel_size": 3}
    with pytest.raises(InputError, match=r"config.*conv_kernel_size=3: left to right, a token"):
        recipe = Recipe.from_config(config)
        recipe.check(recipe.spec(99))
