"""Pre-training: a config and a corpus in, a run folder out."""

import json
from typing import Any

from bertjax.base.errors import EXIT_STOPPED
from bertjax.runs.device_memory import REMAT
from bertjax.runs.health import health_status_of_run
from bertjax.runs.job import Job
from bertjax.runs.preflight import check_devices, check_programs, check_same
from bertjax.runs.session import session
from bertjax.training.memory import less_memory
from bertjax.training.sharding.hosts import from_first, raise_together, say


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
    say(job.announcement())
    recipe, folder = job.recipe, job.folder
    if recipe.config_dict.get("dry_run"):
        say(json.dumps(job.trainer.dry_run(job.plan), indent=2))
        say("dry run: every phase made a batch, a step and an evaluation; nothing was written")
        return 0
    # One more checkpoint than is kept: that which is being written.
    with session(folder, job.trainer.experiment.state, recipe.keep_checkpoints + 1):
        step = job.train()
        if step < job.plan.last_step:
            say(f"stopped at step {step}, saved; the same command goes on from there")
            return EXIT_STOPPED
        say(from_first(lambda: f"{folder}: {step} steps done\n{health_status_of_run(folder)}"))
    return 0
