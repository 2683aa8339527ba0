"""A branch: a run that goes on from another run's checkpoint, with a rate that falls.

The other run keeps its rate constant (the schedule "wsd"), and is only read. The new run does what
the other would have done, had its decay started there: parameters, moments, batches and dropout are
the same.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from bertjax.base.errors import InputError
from bertjax.runs.read import free_keys
from bertjax.runs.recipe import Recipe, phase_keys
from bertjax.runs.run_folder import (
    checkpoints_folder,
    checkpoints_of,
    config_difference,
    is_of_tasks,
    read_config,
    recorded_config,
    source_of,
)
from bertjax.training.checkpoint import saved_steps
from bertjax.training.loop import Trainer, Window
from bertjax.training.state import TrainState


def branch_config(recipe: Recipe, workdir: str) -> dict[str, Any]:
    """`recipe.config_dict` with the step in `decay_from`: the whole config of a branch in
    `workdir`.

    The run ends where the rate has fallen to 0, and the shares of its phases leave every step in
    the phase that it was in. Once started, it keeps the checkpoint that it has started with, and no
    longer needs the other run. Raises InputError if the rate is not constant there.
    """
    run, step = source_of(recipe.decay_from)
    started = recorded_config(workdir)
    started_from, started_at = source_of(str(started.get("decay_from", "")))
    if started_from == run and step in (None, started_at):
        Recipe.from_config(started)  # raises for a damaged one
        return _with_steps_of(started, _with_sizes_of(started, recipe.config_dict))

    config = read_config(run)
    if is_of_tasks(config):
        raise InputError(f"config.decay_from={run}: a run of fine-tuning: name one of pre-training")
    run_recipe = Recipe.from_config(config)
    config_dict = _with_sizes_of(config, recipe.config_dict)
    free = (*free_keys(Recipe), "decay_from", "decay_steps")
    if difference := config_difference(config, config_dict, free, Recipe.from_config):
        raise InputError(
            f"config.decay_from={run}: that run has another config: {difference}: give the config "
            "it began with, and change only config.decay_from and config.optimizer.decay_steps"
        )
    step = _checked_step(run_recipe, run, step)
    total_steps = step + recipe.optimizer.decay_steps
    steps = dict(decay_from=f"{run}@{step}", total_steps=total_steps)
    for key, length in zip(
        phase_keys(config), _lengths(run_recipe, step, total_steps), strict=True
    ):
        steps[key] = {"share": length / total_steps}
    return _with_steps_of(steps, config_dict)


def _with_sizes_of(other: Mapping[str, Any], config_dict: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the model of another, if both began with weights, whose sizes it has."""
    init_from = config_dict.get("init_from")
    same = init_from and init_from == other.get("init_from")
    return {**config_dict, "model": other["model"]} if same else {**config_dict}


def _with_steps_of(other: Mapping[str, Any], config_dict: Mapping[str, Any]) -> dict[str, Any]:
    """A config with `decay_from`, the steps and the shares of phases of another."""
    shares = {
        key: {**config_dict[key], "share": other[key]["share"]}
        for key in phase_keys(config_dict)
        if key in other
    }
    return {**config_dict, **shares, **{key: other[key] for key in ("decay_from", "total_steps")}}


def _checked_step(run_recipe: Recipe, run: str, step: int | None) -> int:
    """The step of the checkpoint, the newest by default, if the run's rate is constant there."""
    steps = saved_steps(checkpoints_folder(run))
    if not steps:
        raise InputError(f"config.decay_from={run}: it has no checkpoint yet")
    step = steps[-1] if step is None else step
    if step not in steps:
        raise InputError(
            f"config.decay_from={run}@{step}: no such checkpoint; there are {steps}: name one of "
            "them, and keep more with config.keep_checkpoint_every"
        )
    first, last = (
        run_recipe.optimizer.warmup_steps,
        run_recipe.total_steps - run_recipe.optimizer.decay_steps,
    )
    if not first <= step <= last:
        raise InputError(
            f"config.decay_from={run}@{step}: the rate of that run is constant from step {first} "
            f"to {last}: name a checkpoint of these, as {run}@STEP"
        )
    return step


def _lengths(run_recipe: Recipe, step: int, total_steps: int) -> list[int]:
    """The steps of each phase of a run that leaves another at `step`, and stays in that phase."""
    ranges = run_recipe.ranges()
    within = [number for number, steps in enumerate(ranges) if step < steps.stop]
    last = within[0] if within else max(n for n, steps in enumerate(ranges) if steps)
    lengths = [len(steps) for steps in ranges[:last]]
    return lengths + [total_steps - sum(lengths)] + [0] * (len(ranges) - last - 1)


def branch_state(
    decay_from: str, trainer: Trainer, data: Mapping[str, str]
) -> tuple[TrainState, Window]:
    """The state that a run begins with, that of "RUN@STEP", and its window."""
    run, step = source_of(decay_from)
    folder, state = checkpoints_folder(run), None
    if step in saved_steps(folder):
        checkpoints = checkpoints_of(run, keep=1, read_only=True)
        with contextlib.closing(checkpoints):
            state, window = trainer.restore(checkpoints, data, step)
    if state is None:
        raise InputError(
            f"config.decay_from={decay_from}: that checkpoint is gone: begin with another one, in "
            "another --workdir"
        )
    return state, window
