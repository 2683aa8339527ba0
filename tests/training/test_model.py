"""Models of several calls and parts: dropout of each call, frozen parts, shared parameters."""

import dataclasses
from functools import partial

import jax
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.models.layers.dense import parameter
from bertjax.training.model import Model, Part
from bertjax.training.objective import Rngs
from bertjax.training.step import means
from tests.helpers.closeness import assert_close
from tests.training import toy


@dataclasses.dataclass(frozen=True)
class Twice(toy.Regression):
    """The model is called twice; "difference" is that of its answers."""

    calls: tuple[int, int] = (0, 1)

    def outputs(self, model, params, batch, rngs):
        one, two = (model(params, batch, rngs.dropout(call))["y"] for call in self.calls)
        return {"y": one, "difference": abs(one - two)}

    def values(self, outputs, batch):
        values = super().values(outputs, batch)
        return {"mlm_loss": values["mlm_loss"] | {"difference": outputs["difference"]}}


@pytest.mark.parametrize(
    "calls, difference, accumulate", [((0, 1), True, 1), ((1, 2), True, 2), ((1, 1), False, 1)]
)
def test_calls_of_a_model_drop_different_elements(calls, difference, accumulate):
    """But those with one number drop the same; and in evaluation nothing is dropped."""
    trainer = toy.trainer(toy.placement(1), objective=Twice(calls=calls))
    phase, state = toy.phase(0, 9, accumulate=accumulate), trainer.experiment.initial_state(0)
    assert trainer.evaluate(state, phase, 1)["difference"] == 0
    _, sums = trainer.update(state, phase, trainer.put(phase, 0), 0.1, toy.SEED)
    assert (means(sums)["difference"] > 0.1) == difference


def test_what_is_drawn_has_a_name():
    keys = Rngs(jax.random.key(1)), Rngs(jax.random.key(2))
    draws = [each.draw(name) for each in keys for name in ("a", "b", "dropout 1")]
    draws += [each.dropout(call) for each in keys for call in (0, 1)]
    numbers = [tuple(jax.random.key_data(key).tolist()) for key in draws]
    assert len(set(numbers)) == 8  # "dropout 1" is that of call 1
    still = keys[0]._replace(deterministic=True)
    assert still.dropout(0) is still.dropout(1) is None
    assert still.draw("a") == keys[0].draw("a")


class Scaled(nn.Module):
    """A line times a number of its own."""

    scale: float

    @nn.compact
    def __call__(self, inputs, *, deterministic):
        scale = parameter(self, "scale", (), (), nn.initializers.constant(self.scale))
        return {"y": scale * toy.Line(0.0, name="line")(inputs, deterministic=deterministic)["y"]}


@pytest.mark.parametrize("path, own", [("line", {"scale"}), ("line/w", {"scale", "line/b"})])
def test_parts_share_parameters(path, own):
    """The part that shares has none at these paths; the gradient is the sum of both parts'."""
    other = Part(Scaled(2.0), toy.X, shared={path: "owner"})
    model = Model({"owner": Part(Scaled(0.5), toy.X), "other": other})
    params = nn.unbox(jax.jit(model.init)(jax.random.key(0)))
    assert flatten_dict(params["other"], sep="/").keys() == own
    assert flatten_dict(params["owner"], sep="/").keys() == {"scale", "line/w", "line/b"}
    x, w = toy.batch(0, slice(None))["x"], params["owner"]["line"]["w"]
    assert_close(jax.jit(partial(model, part="other"))(params, {"x": x})["y"], 2 * x @ w)

    def total(params):
        return sum(model(params, {"x": x}, part=part)["y"].sum() for part in ("owner", "other"))

    gradient = jax.jit(jax.grad(total))(params)["owner"]["line"]["w"]
    assert_close(gradient, 2.5 * x.sum(0))


def test_a_part_adds_its_parameters_to_another_s():
    """It begins as the other, and its gradient changes its own parameters alone."""
    other = Part(Scaled(2.0), toy.X, added={"line": "owner"})
    model = Model({"owner": Part(Scaled(0.5), toy.X), "other": other})
    params = nn.unbox(jax.jit(model.init)(jax.random.key(0)))
    assert not any(leaf.any() for leaf in jax.tree.leaves(params["other"]["line"]))
    assert params["other"]["scale"] == 2
    x, w = toy.batch(0, slice(None))["x"], params["owner"]["line"]["w"]
    params["other"]["line"]["w"] += 0.25
    y = partial(model, inputs={"x": x}, part="other")
    assert_close(jax.jit(y)(params)["y"], 2 * x @ (w + 0.25))
    gradient = jax.jit(jax.grad(lambda params: y(params)["y"].sum()))(params)
    assert_close(gradient["other"]["line"]["w"], 2 * x.sum(0))
    assert not any(leaf.any() for leaf in jax.tree.leaves(gradient["owner"]))


class Taught(toy.Regression):
    """A student learns what a teacher says."""

    def outputs(self, model, params, batch, rngs):
        said = model(params, batch, part="teacher")["y"]
        return {"y": model(params, batch, rngs.dropout(), "student")["y"] - said + batch["y"]}


@pytest.mark.devices(8)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_frozen_part_is_beside_the_state_and_stays(accumulate):
    parts = {"student": Part(toy.Line(0.0), toy.X), "teacher": Part(toy.Line(0.0), toy.X, True)}
    model = Model(parts)
    frozen = jax.device_get(nn.unbox(model.init(jax.random.key(0), frozen=True)))
    assert frozen.keys() == {"teacher"}
    experiment = toy.experiment(toy.placement(8), model=model, objective=Taught(), frozen=frozen)
    trainer, phase = toy.Trainer(experiment), toy.phase(0, 9, accumulate=accumulate)
    state = experiment.initial_state(0)
    for tree in (state.params, state.opt_state[1].mu):
        assert tree.keys() == {"student"}
    # It begins the same, whether another part is frozen or not.
    alone = Model({name: dataclasses.replace(part, frozen=False) for name, part in parts.items()})
    toy.assert_equal(nn.unbox(alone.init(jax.random.key(0)))["teacher"], frozen["teacher"])
    before, losses = jax.device_get(state.params), []
    for number in range(40):
        state, sums = trainer.update(state, phase, trainer.put(phase, number), 0.1, toy.SEED)
        losses.append(means(sums)["loss"])
    assert losses[-1] < losses[0] / 10
    away = [abs(p["student"]["w"] - frozen["teacher"]["w"]).max() for p in (before, state.params)]
    assert away[1] < away[0] / 2
