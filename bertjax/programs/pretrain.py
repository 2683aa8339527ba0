"""Pre-training: a config and a corpus in, a run folder out."""

import contextlib
import json
from typing import Any

import jax

from bertjax.base.errors import EXIT_STOPPED, NonFiniteLoss
from bertjax.base.files import exclusive, write_json
from bertjax.runs.device_memory import REMAT, compile_phases
from bertjax.runs.health import health_of, unigram_baselines, write_health
from bertjax.runs.job import Job
from bertjax.runs.preflight import check_devices, check_folder, check_programs, check_same
from bertjax.runs.run_folder import checkpoints_of, source_of
from bertjax.runs.sections import flat
from bertjax.training.journal import Journal, copy_lines
from bertjax.training.loop import last_line
from bertjax.training.memory import less_memory
from bertjax.training.sharding.hosts import heartbeat, raise_together
from bertjax.training.trackers import open_tracker


@less_memory(
    "set --config.phase_N.accumulate=2 (then 4, and so on) in the phase N that it stopped in",
    "lower --config.eval_batch_size",
    REMAT,
)
def run(
    config: Any,
    workdir: str,
    *,
    verify: bool = False,
    hosts: int | None = None,
    chips: int | None = None,
) -> int:
    """Trains until the config's last step, from the newest checkpoint in `workdir` if any.

    Args:
      config: as in `configs/`.
      workdir: RUN: gets config.json, health.json, the tokenizer, metrics.jsonl, loss.png,
        tensorboard/ and checkpoints/.
      verify: compare every checksum of the corpus first.
      hosts, chips: how many the job must have; None: not checked.

    Returns:
      0 when the run is complete, EXIT_STOPPED when a signal stopped it.

    Raises:
      InputError: something cannot work; all hosts raise it before anything is compiled.
    """
    check_programs(hosts)
    check_devices(chips)
    with raise_together():
        job = Job.of(config, workdir, verify=verify)
    check_same(job.facts)
    job = job.within_budget()
    if jax.process_index() == 0:
        print(job.announcement(), flush=True)
    if job.recipe.plain.get("dry_run"):
        print(json.dumps(job.trainer.dry_run(job.course), indent=2))
        print("dry run: every phase made a batch, a step and an evaluation; nothing was written")
        return 0
    return _train(job)


def _train(job: Job) -> int:
    """Trains in the run's folder; returns the exit code."""
    recipe, folder, is_first = job.recipe, job.folder, jax.process_index() == 0
    leaves = jax.tree.leaves(job.trainer.experiment.state)
    bytes_of_state = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    check_folder(folder, bytes_of_state, recipe.keep_checkpoints + 1)  # one is being written
    with contextlib.ExitStack() as stack:
        with raise_together():
            if is_first:
                stack.enter_context(exclusive(folder))
        checkpoints = checkpoints_of(
            folder,
            keep=recipe.keep_checkpoints,
            keep_every=recipe.keep_checkpoint_every,
        )
        stack.enter_context(contextlib.closing(checkpoints))
        stack.enter_context(heartbeat(exit_code_when_lost=EXIT_STOPPED))
        state, window, branches = job.start(checkpoints)
        compile_phases(job.trainer, job.course, state)
        journal, step = None, int(state.step)
        if is_first:
            job.tokenizer.save(folder)
            health = health_of(recipe, unigram_baselines(recipe, job.tokenizer, job.train))
            write_health(folder, health)
            write_json(folder / "config.json", recipe.plain)  # last: it makes the folder a run
            if branches:
                copy_lines(source_of(recipe.decay_from)[0], folder, step)
            tracker = open_tracker(recipe.tracker, folder, flat(recipe.plain))
            journal = Journal(folder, step, last_line(step, window), health, tracker)
            stack.enter_context(contextlib.closing(journal))
        try:
            state, _ = job.trainer.train(state, job.course, checkpoints, journal, window)
        except NonFiniteLoss as error:
            if is_first:
                write_health(folder, health, diverged=str(error))
            raise
    step = int(state.step)
    complete = step == job.course.last_step
    if journal and complete:
        print(f"{folder}: {step} steps done\n{journal.verdict}")
    elif journal:
        print(f"stopped at step {step}, saved; the same command goes on from there")
    return 0 if complete else EXIT_STOPPED
