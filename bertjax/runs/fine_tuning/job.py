"""A fine-tuning: everything that its config names, read and checked, and its search."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertjax.base.checks import check_given
from bertjax.base.files import local_folder, write_json
from bertjax.interop.hugging_face import has_class, read_hugging_face
from bertjax.interop.own_folder import read_folder, write_folder
from bertjax.interop.peft import write_trained
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders.computation import canonical
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.storage import to_canonical
from bertjax.models.heads.bilstm import BiLstm
from bertjax.objectives.fine_tuning import array_name
from bertjax.objectives.task_losses import TASK_LOSSES
from bertjax.runs.fine_tuning.best_model import BestModel
from bertjax.runs.fine_tuning.data import TaskData, encoder, name_in, read_examples
from bertjax.runs.fine_tuning.model import class_names, encoder_with_heads
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.fine_tuning.search import Search
from bertjax.runs.fine_tuning.task_family import about_task
from bertjax.runs.fine_tuning.task_tokens import with_task_tokens
from bertjax.runs.fine_tuning.trials import Trials
from bertjax.runs.how_computed import how_computed, with_compute_dtype
from bertjax.runs.initialize import frozen_params, learned_branches, load_into, low_rank
from bertjax.runs.preflight import facts_of
from bertjax.runs.read import free_keys
from bertjax.runs.run_folder import MODEL_FOLDER, PARAMETERS_FOLDER, check_same_config
from bertjax.runs.source import open_model
from bertjax.tasks.task import Task
from bertjax.training.model import Model, Params, merged
from bertjax.training.sharding.hosts import from_first, say
from bertjax.training.sharding.placement import make_placement
from bertjax.training.subset import with_subset
from bertjax.training.trackers import check_tracker


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """A fine-tuning that can begin or go on.

    `sources` are the parts of the weights `base` with which each task begins; a trial initializes
    the others.
    """

    recipe: TaskRecipe
    folder: Path
    base: Pretrained
    sources: Mapping[str, Pretrained]
    spec: EncoderSpec
    data: Mapping[str, TaskData]
    trials: Trials

    @classmethod
    def of(cls, config: Any, workdir: str) -> "FineTuning":
        """Reads all that a config names, or raises InputError; nothing is compiled or written."""
        recipe, folder = begin(config, workdir)
        base = open_model(recipe.init_from)
        pretrained = with_task_tokens(base)
        say(pretrained.summary())
        spec, bilstm = recipe.spec(pretrained), recipe.bilstm.module()
        placement = make_placement(recipe.mesh, recipe.layout)
        say(how_computed(spec, [recipe.max_length], placement))
        sources = {
            name: _beginning(pretrained, task, bilstm) for name, task in recipe.tasks.items()
        }
        data = {
            name: TaskData.of(
                task,
                read_examples(task),
                encoder(task.family, pretrained, recipe.max_length),
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
            pad_id=pretrained.tokenizer.pad_id,
            start=lambda params: _loaded(params, sources, model),
            frozen=frozen,
        )
        return cls(recipe, folder, base, sources, spec, data, trials)

    @property
    def facts(self) -> dict[str, Any]:
        """What must be the same on all hosts."""
        content = {
            name_in(task, what): identity
            for task, each in self.data.items()
            for what, identity in (each.identity | each.others).items()
        }
        return facts_of(self.recipe.config_dict, self.folder, content)

    def search(self) -> Search:
        """The search in the folder, which gets config.json."""

        def write() -> None:
            for name in self.recipe.names:
                (self.folder / name).mkdir(exist_ok=True)
                write_json(self.folder / name / "config.json", self.recipe.config_dict_of(name))

        from_first(write)
        return Search(self.folder, self.recipe, self.data, self.trials, self.best_model())

    def announce(self) -> None:
        """Prints which parameters each trial initializes."""
        task_settings = {
            array_name(name, branch)
            for name, source in self.sources.items()
            for branch in source.params
        }
        initial = [branch for branch in self.trials.parameters if branch not in task_settings]
        say(
            f"new in every trial: {', '.join(initial)}"
            if initial
            else f"nothing is new: every trial goes on with the output layer of {self.base.origin}"
        )

    @property
    def folders(self) -> dict[str, Path]:
        """Where the best model of each task lies: as transformers has it, or in a form of ours."""
        return {
            name: self.folder
            / name
            / (MODEL_FOLDER if self.recipe.in_transformers(self.spec, task) else PARAMETERS_FOLDER)
            for name, task in self.recipe.tasks.items()
        }

    def best_model(self) -> BestModel:
        """The store of the best model."""
        recipe, spec, experiment = self.recipe, self.spec, self.trials.experiment

        def pack(name: str, params: Params, settings: Mapping[str, Any]) -> Pretrained:
            task, source = recipe.tasks[name], self.sources[name]
            # With tokens of its own, a task has other weights than those that an adapter is for.
            same = source.tokenizer is self.base.tokenizer
            model = experiment.model
            return Pretrained(
                origin=str(self.folder / name),
                head_type=TASK_LOSSES[task.family.objective].head_type,
                spec=canonical(spec),
                params=to_canonical(model.params_of(params, name), spec),
                tokenizer=source.tokenizer,
                classes=class_names(task.family),
                task={**about_task(task, recipe.max_length), **settings},
                bilstm=recipe.bilstm.module(),
                adapter=low_rank(model, params, source, self.base, name) if same else None,
            )

        def unpack(models: Mapping[str, Pretrained]) -> Params:
            initial = merged(experiment.initial_state(0).params, experiment.frozen)
            return _loaded(initial, models, experiment.model)

        return BestModel(self.folders, experiment.placement, _write, _read, pack, unpack)


def begin(config: Any, workdir: str) -> tuple[TaskRecipe, Path]:
    """The recipe in a config, and the folder of its run.

    Raises InputError also for a folder that holds another run, and for batches that do not divide
    over the devices.
    """
    recipe = TaskRecipe.from_config(config)
    check_tracker(recipe.tracker)
    check_given("--workdir", workdir, "say where the run shall lie")
    folder = local_folder(workdir)
    resolved = with_compute_dtype(recipe.config_dict, folder)
    recipe = dataclasses.replace(recipe, config_dict=resolved, model=resolved["model"])
    check_same_config(folder, recipe.config_dict, free_keys(TaskRecipe), TaskRecipe.from_config)
    placement = make_placement(recipe.mesh, recipe.layout)
    for size in recipe.grid.batch_sizes:
        placement.host_rows(size // max(1, recipe.accumulate))
    return recipe, folder


def _beginning(pretrained: Pretrained, task: Task, bilstm: BiLstm | None) -> Pretrained:
    head_type = TASK_LOSSES[task.family.objective].head_type
    params = pretrained.beginning(head_type, class_names(task.family), bilstm)
    return dataclasses.replace(pretrained, params=params)


def _loaded(params: Params, sources: Mapping[str, Pretrained], model: Model) -> Params:
    """Params on the devices, with those of each part of the model replaced by its source's."""
    for name, source in sources.items():
        params = load_into(params, source, model, name)
    return params


def _write(model: Pretrained, folder: Path) -> None:
    (write_trained if has_class(model) else write_folder)(model, folder)


def _read(folder: Path, origin: str) -> Pretrained:
    return (read_hugging_face if folder.name == MODEL_FOLDER else read_folder)(folder, origin)
