"""Fine-tunes on one task (section 4): weights go in; scores, predictions and a model come out."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from bertjax.base.errors import EXIT_STOPPED, InputError
from bertjax.base.files import (
    exclusive,
    local_folder,
    write_json,
)
from bertjax.encoders.computation import plain
from bertjax.encoders.contract import EncoderSpec
from bertjax.encoders.storage import to_plain
from bertjax.fine_tuning.best_model import BestModel
from bertjax.fine_tuning.data import TaskData, encoder, read_examples
from bertjax.fine_tuning.model import class_names, encoder_with_head
from bertjax.fine_tuning.recipe import TaskRecipe
from bertjax.fine_tuning.search import Search
from bertjax.fine_tuning.task_family import about_task
from bertjax.fine_tuning.task_tokens import with_task_tokens
from bertjax.fine_tuning.trials import Trials
from bertjax.interop.hugging_face import read_hugging_face, write_hugging_face
from bertjax.interop.own_folder import read_folder, write_folder
from bertjax.interop.pretrained import Pretrained
from bertjax.objectives.registry import TASK_OBJECTIVES
from bertjax.runs.initialize import load_into
from bertjax.runs.open_model import open_model
from bertjax.runs.run_folder import MODEL_FOLDER, PARAMETERS_FOLDER, check_same_config
from bertjax.sharding.placement import make_placement
from bertjax.training.model import Params

# Keys that may change when a run continues: where it runs, where its data and weights lie (their
# content may not), how often it logs and saves, and which trials it has.
FREE = ("data", "init_from", "grid", "mesh", "layout", "intervals", "batch_tokens")


def run(config: Any, workdir: str) -> int:
    """Runs every trial of the config's grid that is not done, and keeps the best on dev.

    Args:
      config: as in `configs/finetune_*.py`.
      workdir: RUN: gets config.json; a folder under trials/ for each trial; the model, predictions
        and results.json of the best; and metrics.jsonl, of all.

    Returns:
      0 when all is done, `EXIT_STOPPED` when a signal stopped it.

    Raises:
      InputError: something cannot work; it is raised before anything is compiled.
    """
    recipe, folder = begin(config, workdir)
    given = with_task_tokens(open_model(recipe.init_from))
    print(given.summary(), flush=True)
    family, spec = recipe.task.family, recipe.spec(given)
    # Every trial starts from these parts, and initializes the others.
    bilstm = recipe.bilstm.module()
    kind = TASK_OBJECTIVES[family.objective].kind
    source = dataclasses.replace(given, params=given.beginning(kind, class_names(family), bilstm))
    encode = encoder(family, given, recipe.max_length)
    data = TaskData.of(recipe.task, read_examples(recipe.task), encode, source.identity)
    on_top = bilstm.flops_per_word(spec.hidden_size) if bilstm else 0.0
    model = encoder_with_head(family, spec, bilstm)
    trials = Trials(
        recipe,
        data,
        model,
        max_length=recipe.max_length,
        flops_per_token=lambda length: (
            spec.flops_per_token(length, predicted=length if recipe.lm_weight else 0) + on_top
        ),
        pad_id=given.tokenizer.pad_id,
        start=lambda params: load_into(params, source, model),
    )
    with exclusive(folder):
        write_json(folder / "config.json", recipe.plain)
        where = MODEL_FOLDER if recipe.in_transformers(spec) else PARAMETERS_FOLDER
        best = _best_model(folder / where, recipe, given, spec, trials)
        search = Search(folder, recipe, data, trials, best)
        search.announce()
        fresh = [part for part in trials.parameters if part not in source.params]
        print(
            f"new in every trial: {', '.join(fresh)}"
            if fresh
            else f"nothing is new: every trial goes on with the output layer of {given.origin}",
            flush=True,
        )
        if search.complete() is None:
            return EXIT_STOPPED
    print(f"{folder}: results.json, predictions/, {where}/")
    return 0


def begin(config: Any, workdir: str, free: Sequence[str] = FREE) -> tuple[TaskRecipe, Path]:
    """The recipe in a config, and the folder of its run.

    Args:
      free: see `check_same_config`.

    Raises:
      InputError: a bad config, a folder that holds another run, batches that do not divide over
        the devices.
    """
    recipe = TaskRecipe.from_config(config)
    if jax.process_count() > 1:
        raise InputError("fine-tuning runs in one process: start it on one host, on its devices")
    if not workdir:
        raise InputError("--workdir is empty: say where the run shall lie")
    folder = local_folder(workdir)
    check_same_config(folder, recipe.plain, free)
    placement = make_placement(recipe.mesh, recipe.layout)
    for size in recipe.grid.batch_sizes:
        placement.host_rows(size // max(1, recipe.accumulate))
    return recipe, folder


def _best_model(
    folder: Path,
    recipe: TaskRecipe,
    given: Pretrained,
    spec: EncoderSpec,
    trials: Trials,
) -> BestModel:
    """The store of the best model: a folder of transformers, if it has such models, or of ours."""
    family = recipe.task.family
    about = about_task(recipe.task, recipe.max_length)

    def pack(params: Params, task: Mapping[str, Any]) -> Pretrained:
        return Pretrained(
            origin=str(folder),
            kind=TASK_OBJECTIVES[family.objective].kind,
            spec=plain(spec),
            params=to_plain(params, spec),
            tokenizer=given.tokenizer,
            classes=class_names(family),
            task={**about, **task},
            bilstm=recipe.bilstm.module(),
        )

    def unpack(model: Pretrained) -> Params:
        experiment = trials.experiment
        return load_into(experiment.fresh_state(0).params, model, experiment.model)

    if recipe.in_transformers(spec):
        return BestModel(folder, write_hugging_face, read_hugging_face, pack, unpack)
    return BestModel(folder, write_folder, read_folder, pack, unpack)
