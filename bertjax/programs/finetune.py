"""Fine-tunes as a config says: a task, a whole benchmark, a tagger over features, or vectors."""

from collections.abc import Callable
from typing import Any

from bertjax.programs import (
    finetune_features,
    finetune_glue,
    finetune_similarity,
    finetune_task,
)
from bertjax.runs.contrastive.recipe import is_similarity
from bertjax.runs.read import config_dict_of


def run(config: Any, workdir: str, hosts: int | None = None, chips: int | None = None) -> int:
    """Runs the program that the config asks for, in the folder RUN; each says what it writes.

    The job must have so many hosts and chips, if they are given.

    Returns:
      0 when all is done, `EXIT_STOPPED` when a signal stopped it.

    Raises:
      InputError: something cannot work; all hosts raise it before anything is compiled.
    """
    return _program_for(config)(config, workdir, hosts, chips)


def _program_for(config: Any) -> Callable[..., int]:
    config_dict = config_dict_of(config)
    if "features" in config_dict:
        return finetune_features.run
    task = config_dict.get("task")
    benchmarks = finetune_glue.BENCHMARKS
    if isinstance(task, dict) and task.get("kind") in benchmarks and task.get("name") == "all":
        return finetune_glue.run
    if is_similarity(config):
        return finetune_similarity.run
    return finetune_task.run
