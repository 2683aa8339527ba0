"""Eight devices in every layout train the model that one device trains, dropout included."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bertjax.models.encoders.presets import BertSpec
from bertjax.objectives.masked_lm import MaskedLMNextSentence
from bertjax.training import compiled_step
from bertjax.training.evaluation import HeldOut
from bertjax.training.experiment import Experiment
from bertjax.training.loop import Phase, Trainer
from bertjax.training.optimizers.optimizer import make_optimizer
from bertjax.training.optimizers.schedule import make_schedule
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.placement import make_placement
from bertjax.training.state import logical_axes
from bertjax.training.step import means
from tests.helpers.closeness import SEEN, assert_close

pytestmark = [pytest.mark.devices(8), pytest.mark.slow]

OBJECTIVE = MaskedLMNextSentence()
ROWS, LENGTH, STEPS = 16, 14, 4
SPEC = BertSpec(
    vocab_size=97,
    vocab_multiple=8,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=LENGTH,
    initializer_range=0.1,
)
OPTIMIZER = OptimizerSpec(learning_rate=1e-3, warmup_steps=1)

TERMS = 512  # sums have another order, in each step; and Adam divides by small roots


def _spec(scan_layers: bool) -> BertSpec:
    """One array needs two layers; without it, one is compiled in half the time."""
    return dataclasses.replace(SPEC, scan_layers=scan_layers, num_hidden_layers=1 + scan_layers)


def _batch(step: int, rows: slice) -> dict[str, np.ndarray]:
    """Rows of 1 to 14 tokens, with 1 to 4 predictions each."""
    rng = np.random.default_rng(step)
    lengths = rng.permutation(np.linspace(1, LENGTH, ROWS).astype(int))[:, None]
    inside = np.arange(LENGTH) < lengths
    used = np.arange(4) < np.minimum(lengths, rng.integers(1, 5, (ROWS, 1)))
    values = {
        "input_ids": rng.integers(1, 97, inside.shape) * inside,
        "input_mask": inside,
        "token_type_ids": (np.arange(LENGTH) >= lengths // 2) & inside,
        "masked_lm_positions": np.arange(4) * used,
        "masked_lm_ids": rng.integers(1, 97, used.shape) * used,
        "masked_lm_weights": used,
        "next_sentence_labels": rng.integers(0, 2, ROWS),
    }
    fields = OBJECTIVE.fields
    return {name: values[name][rows].astype(field.dtype) for name, field in fields.items()}


def _train(
    name: str,
    grid: tuple[int, int],
    spec: BertSpec,
    accumulate: int,
    settings: OptimizerSpec = OPTIMIZER,
    ema: float = 0.0,
    seed: int = 3,
):
    """Trains; returns the metrics of every step, and the parameters after the last."""
    model = OBJECTIVE.model(spec)
    experiment = Experiment(
        model=model,
        objective=OBJECTIVE,
        optimizer=make_optimizer(settings, partial(logical_axes, model.init)),
        placement=make_placement(MeshSpec(*grid), name, jax.devices()[: grid[0] * grid[1]]),
        ema=ema,
    )
    trainer, rate = Trainer(experiment), make_schedule(settings, STEPS)
    phase = Phase(
        name="phase",
        first_step=0,
        last_step=STEPS,
        microbatches=lambda number: [partial(_batch, number)],
        held_out=HeldOut(_batch, ROWS),
        rows=ROWS,
        accumulate=accumulate,
        tokens=ROWS * LENGTH,
        flops=1.0,
    )
    trainer.check([phase])
    state, metrics = experiment.initial_state(5), []
    for number in range(STEPS):
        microbatches = trainer.put(phase, number)
        state, sums = trainer.update(state, phase, microbatches, rate(number), seed)
        metrics.append(means(jax.device_get(sums)))
    expected = jax.tree.map(lambda leaf: leaf.sharding, experiment.state)
    assert jax.tree.map(lambda leaf: leaf.sharding, state) == expected
    return metrics, flatten_dict(jax.device_get(state.evaluated()), sep="/")


@pytest.fixture(scope="module")
def one_device():
    """The results of one device, computed once for each kind of step."""
    runs = {}

    def run(*how):
        if how not in runs:
            runs[how] = _train("data", (1, 1), *how)
        return runs[how]

    return run


@pytest.mark.parametrize("scan_layers, accumulate", [(False, 1), (True, 2)])
@pytest.mark.parametrize(
    "name, grid",
    [
        *[("data", (8, 1)), ("zero1", (8, 1)), ("fsdp", (8, 1)), ("tensor", (2, 4))],
        *[("tensor", (4, 2)), ("tensor_zero1", (4, 2)), ("tensor_fsdp", (4, 2))],
        ("sequence", (4, 2)),
    ],
)
def test_layout_trains_what_one_device_trains(one_device, name, grid, scan_layers, accumulate):
    _assert_trains_the_same(one_device, name, grid, scan_layers, accumulate)


@pytest.mark.parametrize(
    "optimizer, name, grid, scan_layers",
    [
        ("muon", "zero1", (8, 1), True),
        ("muon", "tensor_fsdp", (4, 2), False),
        ("stable_adamw", "tensor_zero1", (4, 2), False),
    ],
)
def test_every_optimizer_and_the_average_are_the_same_in_a_layout(
    one_device, optimizer, name, grid, scan_layers
):
    """What is compared is the average; its updates are a fourth of the parameters'."""
    settings = dataclasses.replace(OPTIMIZER, name=optimizer)
    _assert_trains_the_same(one_device, name, grid, scan_layers, 1, settings, 0.75)


def _assert_trains_the_same(one_device, name, grid, scan_layers, *how):
    spec = _spec(scan_layers)
    expected_metrics, expected_params = one_device(spec, *how)
    metrics, params = _train(name, grid, spec, *how)
    assert_close(tuple(metrics), tuple(expected_metrics), TERMS)
    assert_close(params, expected_params, TERMS, size=1.0)  # a scale of a layer norm is 1


def test_gathering_small_shares_together_changes_nothing(monkeypatch):
    """Pods of v6e do it; here, shares of 288 and 480 bytes are small, and of 864 not."""
    alone_metrics, alone = _train("zero1", (8, 1), SPEC, 1)
    monkeypatch.setattr(compiled_step, "_small_share", lambda placement: 500)
    metrics, params = _train("zero1", (8, 1), SPEC, 1)
    assert metrics == alone_metrics
    assert params.keys() == alone.keys()
    for path, leaf in alone.items():
        np.testing.assert_array_equal(params[path], leaf, err_msg=path)


def test_dropout_is_at_work(one_device):
    """Otherwise the equality above would not test dropout; only its seed differs here."""
    one, other = one_device(_spec(False), 1)[0], one_device(_spec(False), 1, OPTIMIZER, 0.0, 4)[0]
    differences = [abs(a["loss"] - b["loss"]) for a, b in zip(one, other, strict=True)]
    assert min(differences) > SEEN * one[0]["loss"]
