"""Linear regression with dropout: a small and quick model for tests of `Trainer`."""

import dataclasses
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bertjax.base import axes
from bertjax.base.fields import Field
from bertjax.models.layers.dense import parameter
from bertjax.objectives.token_prediction import TokenPrediction
from bertjax.training.evaluation import HeldOut
from bertjax.training.experiment import Experiment
from bertjax.training.loop import Intervals, Phase, RunPlan, Trainer
from bertjax.training.model import Model, Params
from bertjax.training.objective import Objective
from bertjax.training.optimizers.optimizer import make_optimizer
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.placement import Placement, make_placement
from bertjax.training.state import TrainState

ROWS, WIDTH, SEED = 8, 24, 7
OPTIMIZER = make_optimizer(OptimizerSpec(epsilon=1e-8, weight_decay=0.0, clip_norm=1e9))
X = {"x": jax.ShapeDtypeStruct((1, WIDTH), "float32")}


def schedule(count: int) -> float:
    """Linear down."""
    return 0.1 - 0.09 * min(count / 30, 1)


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


class Line(nn.Module):
    """A weighted sum of the inputs that are not dropped."""

    dropped: float = 0.1

    @nn.compact
    def __call__(self, inputs, *, deterministic):
        w = parameter(self, "w", (axes.EMBED,), (WIDTH,), nn.initializers.normal(1.0))
        b = parameter(self, "b", (), (), nn.initializers.zeros)
        x = inputs["x"]
        if not deterministic and self.dropped:
            x = x * jax.random.bernoulli(self.make_rng("dropout"), 1 - self.dropped, x.shape)
        return {"y": x @ w + b}


@dataclasses.dataclass(frozen=True)
class Regression(Objective):
    """The squared error; an answer is right if it is near."""

    loss_weight: float = 1.0

    name = "regression"
    fields = {
        "x": Field("BS", "float32"),
        "y": Field("B", "float32"),
        "weight": Field("B", "float32"),
    }
    derived = TokenPrediction.derived

    @property
    def loss_weights(self):
        return {"mlm_loss": self.loss_weight}

    def weights(self, batch):
        return {"mlm_loss": batch["weight"]}

    def values(self, outputs, batch):
        error = jnp.square(outputs["y"] - batch["y"])
        return {"mlm_loss": {"mlm_loss": error, "mlm_accuracy": error < 1}}


MODEL, OBJECTIVE = Model.of(Line(), X), Regression()


def params() -> Params:
    """Random parameters."""
    return nn.unbox(MODEL.init(jax.random.key(0)))


def placement(devices: int = 8, name: str = "data") -> Placement:
    """A layout over the first `devices`."""
    return make_placement(MeshSpec(), name, jax.devices()[:devices])


def experiment(where: Placement, ema: float = 0.0, **changes) -> Experiment:
    """How it is trained."""
    settings = dict(model=MODEL, objective=OBJECTIVE, optimizer=OPTIMIZER) | changes
    return Experiment(placement=where, ema=ema, rows=ROWS, **settings)


def abstract(where: Placement, ema: float = 0.0) -> TrainState:
    """Shapes and shardings of the state."""
    return experiment(where, ema).state


def initial_state(where: Placement, ema: float = 0.0) -> TrainState:
    """The state at step 0."""
    return experiment(where, ema).initial_state(SEED)


def trainer(where: Placement, ema: float = 0.0, **changes) -> Trainer:
    """What trains it."""
    return Trainer(experiment(where, ema, **changes))


def phase(first: int, last: int, make=batch, name: str = "phase 1", accumulate: int = 1) -> Phase:
    """A phase of the updates first + 1 to last; it evaluates on the batches of `make` from 1000."""
    return Phase(
        name=name,
        first_step=first,
        last_step=last,
        microbatches=lambda number: [partial(make, number)],
        held_out=HeldOut(lambda number, rows: batch(1000 + number, rows), ROWS),
        rows=ROWS,
        accumulate=accumulate,
        tokens=ROWS * 2,
        flops=1e3,
    )


def intervals(log: int = 100, evaluate: int = 100, checkpoint: int = 100) -> Intervals:
    """The intervals in steps; by default everything happens only at the end."""
    return Intervals(log=log, evaluate=evaluate, checkpoint=checkpoint, eval_batches=2)


def plan(phases: list[Phase], every: Intervals | None = None) -> RunPlan:
    """A run of these phases."""
    return RunPlan(phases, schedule, SEED, every or intervals(), {"data": {"train": "identity"}})


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
