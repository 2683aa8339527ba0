"""Fine-tunes on a task (section 4), or on several: weights go in; scores and models come out."""

from typing import Any

from bertjax.base.errors import EXIT_STOPPED
from bertjax.runs.fine_tuning.job import FineTuning
from bertjax.runs.preflight import check_devices, check_programs, check_same
from bertjax.runs.session import session
from bertjax.training.memory import less_memory
from bertjax.training.sharding.hosts import raise_together, say


@less_memory(
    "set --config.accumulate=4 (then 8, and so on)",
    "set --config.batch_tokens=4096 (then 2048, and so on), which is for predictions",
    "set --config.model.remat=layer",
)
def run(config: Any, workdir: str, hosts: int | None = None, chips: int | None = None) -> int:
    """Runs every trial of the config's grid that is not done, and keeps the best on dev.

    RUN gets config.json; a folder under trials/ for each trial; the model, predictions and
    results.json of the best; and metrics.jsonl, of all. With several tasks, it has a folder in this
    form for each task, and next to these results.json of their mean. The arguments, the result and
    the errors are those of `bertjax.programs.finetune.run`.
    """
    check_programs(hosts)
    check_devices(chips)
    with raise_together():
        job = FineTuning.of(config, workdir)
    check_same(job.facts)
    with session(job.folder, job.trials.experiment.state, checkpoints=2):
        search = job.search()
        search.announce()
        job.announce()
        if search.complete() is None:
            return EXIT_STOPPED
    for where in job.folders.values():
        say(f"{where.parent}: results.json, predictions/, {where.name}/")
    return 0
