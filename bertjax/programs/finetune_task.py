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
from bertjax.fine_tuning.data import TaskData, encoder, read_examples
from bertjax.fine_tuning.family import about_task
from bertjax.fine_tuning.kept import Form, KeptModel
from bertjax.fine_tuning.model import class_names, encoder_with_head
from bertjax.fine_tuning.recipe import TaskRecipe
from bertjax.fine_tuning.search import Search
from bertjax.fine_tuning.trials import Trials
from bertjax.interop import hugging_face, own_folder
from bertjax.interop.pretrained import Pretrained
from bertjax.objectives.registry import TASK_OBJECTIVES
from bertjax.runs.initialize import load_into
from bertjax.runs.open_model import open_model
from bertjax.runs.run_folder import MODEL_FOLDER, PARAMETERS_FOLDER, check_same_config
from bertjax.sharding.mesh import make_mesh
from bertjax.sharding.placement import Placement
from bertjax.sharding.rules import layout
from bertjax.training.hardware import keep_freed_memory

# What may differ when a run goes on: where it runs, where its data and weights lie (their content
# may not), how often it looks, and how much is tried.
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
      InputError: before anything is compiled, for whatever cannot work.
    """
    recipe, folder = begin(config, workdir)
    given = open_model(recipe.init_from)
    print(given.summary(), flush=True)
    family, spec = recipe.task.family, recipe.spec(given)
    # Every trial begins from these parts; the others are new in it.
    bilstm = recipe.bilstm.module()
    kind = TASK_OBJECTIVES[family.objective].kind
    taken = dataclasses.replace(given, params=given.beginning(kind, class_names(family), bilstm))
    encode = encoder(family, given, recipe.max_length)
    data = TaskData.of(recipe.task, read_examples(recipe.task), encode, taken.identity)
    on_top = bilstm.flops_per_word(spec.hidden_size) if bilstm else 0.0
    trials = Trials(
        recipe,
        data,
        encoder_with_head(family, spec, bilstm),
        max_length=recipe.max_length,
        flops_per_token=lambda length: spec.flops_per_token(length, predicted=0) + on_top,
        pad_id=given.tokenizer.pad_id,
        start=lambda params: load_into(params, taken, spec),
    )
    with exclusive(folder):
        write_json(folder / "config.json", recipe.plain)
        theirs = recipe.in_transformers(spec)
        where = MODEL_FOLDER if theirs else PARAMETERS_FOLDER
        form = hugging_face if theirs else own_folder

        kept = _kept(folder / where, form, recipe, given, spec, trials)
        search = Search(folder, recipe, data, trials, kept)
        search.announce()
        fresh = [part for part in trials.parameters if part not in taken.params]
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
    keep_freed_memory()
    recipe = TaskRecipe.from_config(config)
    if jax.process_count() > 1:
        raise InputError("fine-tuning runs in one process: start it on one host, on its devices")
    if not workdir:
        raise InputError("--workdir is empty: say where the run shall lie")
    folder = local_folder(workdir)
    check_same_config(folder, recipe.plain, free)
    placement = Placement(make_mesh(recipe.mesh), layout(recipe.layout))
    for size in recipe.grid.batch_size:
        placement.host_rows(size // max(1, recipe.accumulate))
    return recipe, folder


def _kept(
    folder: Path,
    form: Form,
    recipe: TaskRecipe,
    given: Pretrained,
    spec: EncoderSpec,
    trials: Trials,
) -> KeptModel:
    """The storage of the best model so far.

    Args:
      form: `hugging_face` or `own_folder`.
    """
    family = recipe.task.family
    about = about_task(recipe.task, recipe.max_length)

    def pack(params: Any, task: Mapping[str, Any]) -> Pretrained:
        return Pretrained(
            origin=str(folder),
            kind=TASK_OBJECTIVES[family.objective].kind,
            spec=plain(spec),
            params=to_plain(params, spec),
            tokenizer=given.tokenizer,
            classes=class_names(family),
            task=about | task,
            bilstm=recipe.bilstm.module(),
        )

    def unpack(model: Pretrained) -> Any:
        return load_into(trials.fresh_state(0).params, model, spec)

    return KeptModel(folder, form, pack, unpack)
