"""Linear regression with dropout: a small and quick model for tests of `Trainer`."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bertjax.base import axes
from bertjax.layers.dense import Parameter
from bertjax.objectives.masked_lm import MASKED_LM
from bertjax.sharding.mesh import MeshSpec, make_mesh
from bertjax.sharding.placement import Placement
from bertjax.sharding.rules import layout
from bertjax.training.evaluation import HeldOut
from bertjax.training.loop import Intervals, Phase, Trainer
from bertjax.training.state import TrainState, abstract_state, init_state, weights_in_use
from bertjax.training.step import LossFunction

ROWS, WIDTH, SEED = 8, 24, 7
SCHEDULE = optax.linear_schedule(0.1, 0.01, 30)
RUN = dict(schedule=SCHEDULE, seed=SEED)  # of `Trainer.train`
OPTIMIZER = optax.adam(SCHEDULE)


def batch(number: int, rows: slice) -> dict[str, np.ndarray]:
    """Batch `number`; its rows have weights 0 or 1, so that every batch has its own count."""
    rng = np.random.default_rng(number)
    x = rng.normal(size=(ROWS, WIDTH))
    y = x @ np.linspace(-1, 1, WIDTH) + 0.5 + 0.1 * rng.normal(size=ROWS)
    weight = rng.integers(0, 2, ROWS)
    weight[number % ROWS] = 1
    return {
        name: array[rows].astype(np.float32)
        for name, array in dict(x=x, y=y, weight=weight).items()
    }


def count(number: int) -> float:
    """The count that divides the loss of batch `number`."""
    return float(batch(number, slice(None))["weight"].sum())


def _sums(params, batch, key, *, deterministic):
    x = batch["x"]
    if not deterministic:
        x = x * jax.random.bernoulli(key, 0.9, x.shape)
    error = (x @ params["w"] + params["b"] - batch["y"]) ** 2
    weight = batch["weight"]
    return {
        "mlm_loss": ((error * weight).sum(), weight.sum()),
        "mlm_accuracy": (((error < 1) * weight).sum(), weight.sum()),
    }


LOSS = LossFunction(
    _sums,
    lambda batch: {"mlm_loss": batch["weight"].sum()},
    weights={"mlm_loss": 1.0},
    derived=MASKED_LM.derived,
)


def init(key: jax.Array):
    """Fresh parameters with their logical axes."""
    return {
        "w": Parameter(jax.random.normal(key, (WIDTH,)), (axes.EMBED,)),
        "b": Parameter(jnp.zeros(()), ()),
    }


def placement(devices: int = 8, name: str = "data") -> Placement:
    """A layout over the first `devices`."""
    return Placement(make_mesh(MeshSpec(), jax.devices()[:devices]), layout(name))


def abstract(where: Placement, ema: float = 0.0) -> TrainState:
    """Shapes and shardings of the state."""
    return abstract_state(init, OPTIMIZER, where, ema)


def fresh(where: Placement, ema: float = 0.0) -> TrainState:
    """The state at step 0."""
    return init_state(init, OPTIMIZER, abstract(where, ema), SEED)


def trainer(where: Placement, loss: LossFunction = LOSS) -> Trainer:
    """A trainer of the loss."""
    weights = weights_in_use(init, where)
    return Trainer(loss=loss, optimizer=OPTIMIZER, placement=where, weights=weights)


def phase(first: int, last: int, make=batch, name: str = "phase 1", accumulate: int = 1) -> Phase:
    """A phase of the updates first + 1 to last; it evaluates on the batches of `make` from 1000."""
    return Phase(
        name=name,
        first_step=first,
        last_step=last,
        parts=lambda number: [partial(make, number)],
        held_out=HeldOut(lambda number, rows: batch(1000 + number, rows), ROWS),
        rows=ROWS,
        accumulate=accumulate,
        tokens=ROWS * 2,
        flops=1e3,
    )


def intervals(log: int = 100, evaluate: int = 100, checkpoint: int = 100) -> Intervals:
    """The intervals in steps; by default everything happens only at the end."""
    return Intervals(log=log, evaluate=evaluate, checkpoint=checkpoint, eval_batches=2)


def assert_equal(one, two) -> None:
    """Asserts that trees are equal bit for bit, on any devices."""
    one, two = jax.device_get((one, two))
    assert jax.tree.structure(one) == jax.tree.structure(two)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def folders(path: Path) -> list[str]:
    """The names in a folder, in order."""
    return sorted(entry.name for entry in path.iterdir())
