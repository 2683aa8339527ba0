"""Fine-tunes on a task (section 4), or on several: weights go in; scores and models come out."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from bertjax.base.errors import EXIT_STOPPED, InputError
from bertjax.base.files import (
    exclusive,
    local_folder,
    write_json,
)
from bertjax.interop.hugging_face import has_class, read_hugging_face
from bertjax.interop.own_folder import read_folder, write_folder
from bertjax.interop.peft import write_trained
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders.computation import plain
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.storage import to_plain
from bertjax.models.heads.bilstm import BiLstm
from bertjax.objectives.multi_task import array_name
from bertjax.objectives.registry import TASK_OBJECTIVES
from bertjax.runs.fine_tuning.best_model import BestModel
from bertjax.runs.fine_tuning.data import TaskData, encoder, read_examples
from bertjax.runs.fine_tuning.model import class_names, encoder_with_heads
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.fine_tuning.search import Search
from bertjax.runs.fine_tuning.task_family import about_task
from bertjax.runs.fine_tuning.task_tokens import with_task_tokens
from bertjax.runs.fine_tuning.trials import Trials
from bertjax.runs.how_computed import how_computed, with_compute_dtype
from bertjax.runs.initialize import frozen_params, learned_branches, load_into, low_rank
from bertjax.runs.open_model import open_model
from bertjax.runs.read import free_keys
from bertjax.runs.run_folder import MODEL_FOLDER, PARAMETERS_FOLDER, check_same_config
from bertjax.tasks.task import Task
from bertjax.training.memory import less_memory
from bertjax.training.model import Model, Params, merged
from bertjax.training.sharding.placement import make_placement
from bertjax.training.subset import with_subset
from bertjax.training.trackers import check_tracker


@less_memory(
    "set --config.accumulate=4 (then 8, and so on)",
    "set --config.batch_tokens=4096 (then 2048, and so on), which is for predictions",
    "set --config.model.remat=layer",
)
def run(config: Any, workdir: str) -> int:
    """Runs every trial of the config's grid that is not done, and keeps the best on dev.

    Args:
      config: as in `configs/finetune_*.py`.
      workdir: RUN: gets config.json; a folder under trials/ for each trial; the model, predictions
        and results.json of the best; and metrics.jsonl, of all. With several tasks, it has a folder
        in this form for each task, and beside these results.json of their mean.

    Returns:
      0 when all is done, `EXIT_STOPPED` when a signal stopped it.

    Raises:
      InputError: something cannot work; it is raised before anything is compiled.
    """
    recipe, folder = begin(config, workdir)
    base = open_model(recipe.init_from)
    given = with_task_tokens(base)
    print(given.summary(), flush=True)
    spec, bilstm = recipe.spec(given), recipe.bilstm.module()
    placement = make_placement(recipe.mesh, recipe.layout)
    print(how_computed(spec, [recipe.max_length], placement), flush=True)
    # Every trial starts from these parts, and initializes the others.
    sources = {name: _beginning(given, task, bilstm) for name, task in recipe.tasks.items()}
    data = {
        name: TaskData.of(
            task,
            read_examples(task),
            encoder(task.family, given, recipe.max_length),
            sources[name].identity,
        )
        for name, task in recipe.tasks.items()
    }
    on_top = bilstm.flops_per_word(spec.hidden_size) if bilstm else 0.0
    families = {name: task.family for name, task in recipe.tasks.items()}
    model = with_subset(
        encoder_with_heads(families, spec, bilstm),
        recipe.adapter,
        recipe.frozen,
        learned_branches(sources),
    )
    frozen, _ = frozen_params(model, placement, sources, recipe.seed)
    trials = Trials(
        recipe,
        data,
        model,
        max_length=recipe.max_length,
        flops_per_token=lambda length: (
            spec.flops_per_token(length, predicted=length if recipe.lm_weight else 0) + on_top
        ),
        pad_id=given.tokenizer.pad_id,
        start=lambda params: _loaded(params, sources, model),
        frozen=frozen,
    )
    with exclusive(folder):
        for name in recipe.names:
            (folder / name).mkdir(exist_ok=True)
            write_json(folder / name / "config.json", recipe.plain_of(name))
        best = _best_model(folder, recipe, sources, base, spec, trials)
        search = Search(folder, recipe, data, trials, best)
        search.announce()
        given_ones = {
            array_name(name, branch) for name, source in sources.items() for branch in source.params
        }
        fresh = [branch for branch in trials.parameters if branch not in given_ones]
        print(
            f"new in every trial: {', '.join(fresh)}"
            if fresh
            else f"nothing is new: every trial goes on with the output layer of {given.origin}",
            flush=True,
        )
        if search.complete() is None:
            return EXIT_STOPPED
    for name, where in best.folders.items():
        print(f"{folder / name}: results.json, predictions/, {where.name}/")
    return 0


def begin(config: Any, workdir: str) -> tuple[TaskRecipe, Path]:
    """The recipe in a config, and the folder of its run.

    Raises:
      InputError: a bad config, a folder that holds another run, batches that do not divide over
        the devices.
    """
    recipe = TaskRecipe.from_config(config)
    check_tracker(recipe.tracker)
    if jax.process_count() > 1:
        raise InputError("fine-tuning runs in one process: start it on one host, on its devices")
    if not workdir:
        raise InputError("--workdir is empty: say where the run shall lie")
    folder = local_folder(workdir)
    resolved = with_compute_dtype(recipe.plain, folder)
    recipe = dataclasses.replace(recipe, plain=resolved, model=resolved["model"])
    check_same_config(folder, recipe.plain, free_keys(TaskRecipe), TaskRecipe.from_config)
    placement = make_placement(recipe.mesh, recipe.layout)
    for size in recipe.grid.batch_sizes:
        placement.host_rows(size // max(1, recipe.accumulate))
    return recipe, folder


def _beginning(given: Pretrained, task: Task, bilstm: BiLstm | None) -> Pretrained:
    """The parts of the given weights with which a task begins."""
    kind = TASK_OBJECTIVES[task.family.objective].kind
    params = given.beginning(kind, class_names(task.family), bilstm)
    return dataclasses.replace(given, params=params)


def _loaded(params: Params, sources: Mapping[str, Pretrained], model: Model) -> Params:
    """Params on the devices, with those of each part of the model replaced by its source's."""
    for name, source in sources.items():
        params = load_into(params, source, model, name)
    return params


def _best_model(
    folder: Path,
    recipe: TaskRecipe,
    sources: Mapping[str, Pretrained],
    base: Pretrained,
    spec: EncoderSpec,
    trials: Trials,
) -> BestModel:
    """The store of the best model: a folder of transformers, if it has such models, or of ours."""
    experiment = trials.experiment

    def pack(name: str, params: Params, settings: Mapping[str, Any]) -> Pretrained:
        task, source = recipe.tasks[name], sources[name]
        # With tokens of its own, a task has other weights than those that an adapter is for.
        same = source.tokenizer is base.tokenizer
        return Pretrained(
            origin=str(folder / name),
            kind=TASK_OBJECTIVES[task.family.objective].kind,
            spec=plain(spec),
            params=to_plain(experiment.model.params_of(params, name), spec),
            tokenizer=source.tokenizer,
            classes=class_names(task.family),
            task={**about_task(task, recipe.max_length), **settings},
            bilstm=recipe.bilstm.module(),
            adapter=low_rank(experiment.model, params, source, base, name) if same else None,
        )

    def unpack(models: Mapping[str, Pretrained]) -> Params:
        fresh = merged(experiment.fresh_state(0).params, experiment.frozen)
        return _loaded(fresh, models, experiment.model)

    places = {
        name: MODEL_FOLDER if recipe.in_transformers(spec, task) else PARAMETERS_FOLDER
        for name, task in recipe.tasks.items()
    }
    folders = {name: folder / name / place for name, place in places.items()}
    return BestModel(folders, _write, _read, pack, unpack)


def _write(model: Pretrained, folder: Path) -> None:
    (write_trained if has_class(model) else write_folder)(model, folder)


def _read(folder: Path, origin: str) -> Pretrained:
    return (read_hugging_face if folder.name == MODEL_FOLDER else read_folder)(folder, origin)
