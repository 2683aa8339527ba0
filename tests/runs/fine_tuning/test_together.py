"""Trials of several tasks: whose gradient reaches the encoder; resuming, devices, microbatches."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict

from bertjax.config import finetune_config
from bertjax.models.heads.tasks import OUTPUT_LAYERS
from bertjax.objectives.fine_tuning import TaskObjective
from bertjax.runs.fine_tuning import trials
from bertjax.runs.fine_tuning.data import TaskData
from bertjax.runs.fine_tuning.model import encoder_with_head, encoder_with_heads
from bertjax.runs.fine_tuning.recipe import TaskRecipe, Trial
from bertjax.training import loop
from bertjax.training.metrics_log import TRAIN, read_metrics
from bertjax.training.objective import Rngs
from tests.helpers.closeness import assert_close
from tests.helpers.task_files import change
from tests.runs.fine_tuning.random_tasks import FAMILIES, LONGEST, SPEC, random_sequences

pytestmark = pytest.mark.devices(8)

KINDS = {
    **{"one": "classification", "numbers": "regression", "tags": "tagging", "asked": "questions"},
    "pairs": "answers",
}
EXAMPLES = {"one": 45, "numbers": 13, "tags": 27, "asked": 19, "pairs": 21}
TRIAL = Trial(batch_size=8, learning_rate=3e-3, epochs=2, seed=1)


@dataclasses.dataclass(frozen=True)
class _Task:
    """What trials use of a task."""

    family: object
    objective_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@pytest.fixture
def make_trials(monkeypatch):
    """Trials of `KINDS` over random sequences, on the first `devices`."""

    def make(
        devices: int = 1, names=tuple(KINDS), spec=SPEC, share_power=1.0, **changes
    ) -> trials.Trials:
        config = change(
            finetune_config(),
            task=dict(kind="glue", name="CoLA"),
            data="none",
            init_from="none",
            max_length=LONGEST,
            optimizer=dict(epsilon=1e-3),
            intervals=dict(log=1),
            grid=dict(batch_size=(8,)),
            buckets=1,
        )
        recipe = TaskRecipe.from_config(change(config, **dict(accumulate=1) | changes))
        families = {name: FAMILIES[KINDS[name]] for name in names}
        recipe = dataclasses.replace(
            recipe,
            tasks={name: _Task(family) for name, family in families.items()},
            share_power=share_power,
        )
        identity = dict(train="the same", dev="the same", weights="the same")
        data = {
            name: TaskData(random_sequences(family, EXAMPLES[name]), {}, {}, identity, {})
            for name, family in families.items()
        }
        whole = trials.make_placement
        with monkeypatch.context() as patched:
            some = jax.devices()[:devices]
            patched.setattr(trials, "make_placement", lambda *arguments: whole(*arguments, some))
            return trials.Trials(
                recipe,
                data,
                encoder_with_heads(families, spec),
                max_length=LONGEST,
                flops_per_token=lambda length: 1.0,
            )

    return make


def _flat(params):
    return flatten_dict(jax.device_get(params), sep="/")


def _losses(folder):
    return [row["loss"] for row in read_metrics(folder) if row["split"] == TRAIN]


def _assert_same(one, two):
    """A scale of a layer norm is 1; Adam divides rounded gradients by small roots."""
    assert_close(_flat(one), _flat(two), terms=1024, size=1.0)


def _largest(arrays):
    return max(np.abs(leaf).max() for leaf in arrays.values())


@pytest.mark.slow
def test_the_encoder_is_one_and_each_task_has_only_its_output_layer(make_trials):
    made = make_trials()
    assert made.parameters.keys() == {
        *("one/bert", "one/pooler", "one/classifier", "numbers/classifier"),
        *("tags/classifier", "asked/span", "pairs/answer_network"),
    }
    model, params = made.experiment.model, made.experiment.initial_state(0).params
    encoder = jax.tree.leaves(params["one"]["bert"])
    for name in KINDS:
        own = jax.tree.leaves(model.params_of(params, name)["bert"])
        assert all(one is two for one, two in zip(own, encoder, strict=True))


@pytest.mark.slow
def test_the_gradient_of_all_tasks_is_that_of_their_own_models(make_trials):
    """Over a batch of each task, the encoder's gradient is the sum of those of separate models."""
    made = make_trials()
    experiment = made.experiment
    params = experiment.initial_state(0).params
    phase, found, wanted = made._phase(TRIAL), {}, {}
    for step in range(phase.last_step):
        name, _ = made.together(TRIAL).locate(step)
        if name in found:
            continue
        (microbatch,) = phase.microbatches(step)
        batch = microbatch(slice(0, phase.rows))
        assert {key.partition("/")[0] for key in batch} == {name}

        def loss(params, batch=batch, objective=experiment.objective, model=experiment.model):
            sums, _ = objective.sums(model, params, batch, Rngs(jax.random.key(0)))
            total, count = sums["task_loss"]
            return total / count

        found[name] = _flat(jax.jit(jax.grad(loss))(params))
        alone = encoder_with_head(FAMILIES[KINDS[name]], SPEC)
        own = {key.removeprefix(f"{name}/"): array for key, array in batch.items()}
        objective = TaskObjective(FAMILIES[KINDS[name]].objective)
        mine = experiment.model.params_of(params, name)
        direct = _flat(
            jax.jit(jax.grad(lambda p, o=objective, m=alone, b=own: loss(p, b, o, m)))(mine)
        )
        size = _largest(direct)  # the gradient of a bias of softmax is zero
        for key, leaf in direct.items():
            owner = name if key.startswith(OUTPUT_LAYERS) else "one"
            assert_close(found[name][f"{owner}/{key}"], leaf, size=size, err_msg=key)
            wanted[f"{owner}/{key}"] = wanted.get(f"{owner}/{key}", 0) + leaf
        # The output layers of the other tasks get nothing.
        for key in (
            found[name].keys() - {f"one/{k}" for k in direct} - {f"{name}/{k}" for k in direct}
        ):
            assert not found[name][key].any(), key
    assert found.keys() == KINDS.keys()
    total = {key: sum(each[key] for each in found.values()) for key in wanted}
    assert_close(total, wanted, size=_largest(wanted))
    assert all(np.abs(total[key]).max() > 1e-4 for key in total if key.endswith("kernel"))


TWO = ("one", "numbers")


@pytest.mark.slow
def test_a_trial_takes_the_steps_of_a_loop_over_the_tasks_batches(make_trials, tmp_path):
    """The whole trial by optax. A line has the mean of the batches of each task."""
    optimizer = dict(name="adamw", warmup_proportion=0.0, weight_decay=0.0)
    made = make_trials(names=TWO, optimizer=optimizer, intervals=dict(log=5))
    params, complete = made.train(TRIAL, tmp_path)
    assert complete
    phase, experiment = made._phase(TRIAL), made.experiment
    schedule, together = made.run(TRIAL, tmp_path).plan.schedule, made.together(TRIAL)
    assert phase.last_step == 2 * (6 + 2)
    state = experiment.initial_state(TRIAL.seed)
    result, opt_state, losses = state.params, state.opt_state, []

    @jax.jit
    def of(params, batch):
        def loss(params):
            sums, _ = experiment.objective.sums(
                experiment.model, params, batch, Rngs(jax.random.key(0))
            )
            return sums["task_loss"][0] / sums["task_loss"][1]

        return jax.value_and_grad(loss)(params)

    for step in range(phase.last_step):
        (microbatch,) = phase.microbatches(step)
        loss, grads = of(result, microbatch(slice(0, phase.rows)))
        updates, opt_state = experiment.optimizer.update(
            grads, opt_state, result, learning_rate=schedule(step)
        )
        result = optax.apply_updates(result, updates)
        losses.append(float(loss))
    _assert_same(params, result)
    begin = 0
    for row in read_metrics(tmp_path):
        steps = range(begin, row["step"])
        begin = row["step"]
        assert_close(row["loss"], np.mean([losses[step] for step in steps]), terms=1024)
        for name in TWO:
            own = [step for step in steps if together.locate(step)[0] == name]
            assert (f"{name}/task_loss" in row) == bool(own)
            if own:
                numbers = [together.locate(step)[1] for step in own]
                sizes = [len(made.epochs(TRIAL, name).batch(number)) for number in numbers]
                mean = np.average([losses[step] for step in own], weights=sizes)
                assert_close(row[f"{name}/task_loss"], mean, terms=1024)
    assert begin == phase.last_step


@pytest.mark.slow
def test_it_goes_on_exactly_where_it_was_stopped(make_trials, tmp_path, monkeypatch):
    """All that is dropped in training is dropped again, also steps of an answer network."""
    spec = dataclasses.replace(SPEC, hidden_dropout_prob=0.2)
    dropping = dataclasses.replace(FAMILIES["answers"], step_dropout=0.4)
    monkeypatch.setitem(FAMILIES, "answers", dropping)
    made = make_trials(names=("one", "numbers", "pairs"), spec=spec, share_power=0.5)
    assert made.together(TRIAL).drawn == {"one": 5, "numbers": 3, "pairs": 3}
    whole, _ = made.train(TRIAL, tmp_path / "whole")
    stop_after, is_due = 11, loop._Session.is_due

    def due(self, step, phase):
        self.stopped = self.stopped or step == stop_after
        return is_due(self, step, phase)

    with monkeypatch.context() as patched:
        patched.setattr(loop._Session, "is_due", due)
        _, complete = made.train(TRIAL, tmp_path / "stopped")
    assert not complete and read_metrics(tmp_path / "stopped")[-1]["step"] == stop_after
    again, complete = made.train(TRIAL, tmp_path / "stopped")
    assert complete
    one, two = _flat(whole), _flat(again)
    assert all((leaf == two[key]).all() for key, leaf in one.items())
    assert _losses(tmp_path / "stopped") == _losses(tmp_path / "whole")


@pytest.mark.slow
def test_two_devices_are_equal_to_one(make_trials, tmp_path):
    one, _ = make_trials(1).train(TRIAL, tmp_path / "one")
    two, _ = make_trials(2).train(TRIAL, tmp_path / "two")
    assert_close(_losses(tmp_path / "one"), _losses(tmp_path / "two"), terms=1024)
    _assert_same(one, two)


@pytest.mark.slow
def test_microbatches_of_like_length_take_the_same_update(make_trials, tmp_path):
    one, _ = make_trials().train(TRIAL, tmp_path / "one")
    two, _ = make_trials(buckets=2, accumulate=4).train(TRIAL, tmp_path / "two")
    assert_close(_losses(tmp_path / "one"), _losses(tmp_path / "two"), terms=1024)
    _assert_same(one, two)
