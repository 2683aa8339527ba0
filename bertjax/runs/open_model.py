"""Opens a trained model, wherever it comes from: RUN, hf:FOLDER or hf:NAME, tf1:, elmo:FOLDER."""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import jax
from flax import linen as nn

from bertjax.base.cloud_storage import in_bucket, path_of
from bertjax.base.errors import InputError
from bertjax.interop import own_folder, sentence_transformers
from bertjax.interop.derived import with_layers
from bertjax.interop.elmo import read_elmo
from bertjax.interop.google import read_release
from bertjax.interop.hub import model_folder
from bertjax.interop.hugging_face import read_hugging_face
from bertjax.interop.peft import is_peft, read_peft
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders.computation import plain
from bertjax.models.encoders.registry import family_of
from bertjax.models.encoders.storage import to_plain
from bertjax.models.heads.tasks import OUTPUT_LAYERS
from bertjax.objectives.objective import PretrainingObjective
from bertjax.runs.assembly import run_model
from bertjax.runs.initialize import frozen_params, low_rank, open_sources
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import (
    ENSEMBLE,
    MODEL_FOLDER,
    PARAMETERS_FOLDER,
    RESULTS_FILE,
    TAGGER_FOLDER,
    checkpoints_folder,
    checkpoints_of,
    is_of_tasks,
    read_config,
    source_of,
)
from bertjax.text.characters import Characters
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.checkpoint import saved_steps
from bertjax.training.model import Model, Params, merged
from bertjax.training.sharding.placement import Placement, data_parallel
from bertjax.training.state import Average, placed
from bertjax.training.subset import trains_part


@dataclasses.dataclass(frozen=True)
class LoadedRun:
    """A trained model: its recipe and tokenizer, and the newest whole checkpoint's parameters.

    The model computes as in the phase of that checkpoint; where the run keeps an average of its
    parameters, `params` is that. `data` is the identity of what it was trained on. `given` are the
    weights of which it has trained a part only.
    """

    recipe: Recipe
    tokenizer: Tokenizer
    model: Model
    placement: Placement
    params: Params
    step: int
    data: Mapping[str, str]
    given: Mapping[str, Pretrained] = MappingProxyType({})

    @property
    def objective(self) -> PretrainingObjective:
        """The objective of the checkpoint's phase."""
        return self.recipe.phase_at(self.step).objective

    def part(self, name: str = "") -> tuple[nn.Module, Params]:
        """A part of the model, and its parameters; "": the one that other programs open."""
        part = name or self.objective.exported
        return self.model.parts[part].module, self.model.params_of(self.params, part)


def load_run(name: str | Path) -> LoadedRun:
    """Loads a checkpoint of a run, with all parameters on every device.

    Args:
      name: "RUN" for its newest whole checkpoint, or "RUN@STEP".

    Raises:
      InputError: it is not a run, has no checkpoint, or does not have that one.
    """
    run, step = source_of(name)
    config = read_config(run)
    if is_of_tasks(config):
        raise InputError(
            f"{run}: a run of fine-tuning, not of pre-training: its figures are in its "
            f"{RESULTS_FILE}, and launch/predict.py and launch/convert.py take it"
        )
    if ENSEMBLE in config:
        raise InputError(
            f"{run}: an ensemble of fine-tuned runs, which launch/predict.py alone takes: name one "
            "of its runs"
        )
    if "model_type" in config or "architectures" in config:
        raise InputError(
            f"{run}: not a run, but a model as transformers has it: where a program takes such "
            f"models, name it hf:{run}"
        )
    recipe = Recipe.from_config(config)
    tokenizer = Tokenizer.open(run)
    spec = recipe.spec_for(tokenizer)
    # As many devices as divide a batch.
    devices = jax.devices()[: math.gcd(jax.device_count(), recipe.eval_batch_size)]
    placement = data_parallel(devices)
    partly = trains_part(recipe.adapter, recipe.frozen)
    given = open_sources(recipe, tokenizer, open_model, begun=True) if partly else {}
    model = run_model(recipe, recipe.objective, spec, given)
    params = placed(jax.eval_shape(model.init, jax.random.key(0)), placement)
    part = {"average": Average(params, recipe.ema)} if recipe.ema else {"params": params}
    restored = None
    if checkpoints_folder(run).is_dir():
        checkpoints = checkpoints_of(run, keep=1, read_only=True)
        restored = checkpoints.restore(part, step)
    if restored is None and step is not None:
        raise InputError(
            f"{name}: no such checkpoint; there are {saved_steps(checkpoints_folder(run))}: keep "
            "more with config.keep_checkpoint_every"
        )
    if restored is None:
        raise InputError(f"{run}: no checkpoint yet: the run was stopped before its first one")
    parts, metadata = restored
    params = parts["average"].weights if recipe.ema else parts["params"]
    if partly:
        frozen, identities = frozen_params(model, placement, given, recipe.seed)
        check_weights(identities, metadata["data"], name, recipe)
        params = merged(params, frozen)
    phase = recipe.phase_at(metadata["step"])
    model = run_model(recipe, phase.objective, recipe.spec_in(phase, spec), given)
    return LoadedRun(
        recipe, tokenizer, model, placement, params, metadata["step"], metadata["data"], given
    )


def check_weights(
    now: Mapping[str, str], begun: Mapping[str, str], name: str | Path, recipe: Recipe
) -> None:
    """Raises InputError if weights that are not trained have other identities than in a run."""
    if not now.items() <= begun.items():
        raise InputError(
            f"{name}: config.init_from={recipe.init_from} has other weights now than the run was "
            "begun with: give it those"
        )


def open_model(source: str, kind: str = "") -> Pretrained:
    """Reads a model to the host.

    Args:
      source: the folder of a run, here or in a bucket, or RUN@STEP for one of its checkpoints;
        "hf:" and a folder that transformers wrote, or a name on the Hugging Face hub; "tf1:" and
        the folder of a release of google-research/bert; "elmo:" and a folder of bilm-tf or
        AllenNLP. SOURCE#0,2,4 has only these layers of it.
      kind: one of `bertjax.models.encoders.kinds`: of a run whose model has several parts, the one
        of this kind is opened. "", or none is of it: the one that all programs open.

    Raises:
      InputError: there is no such model, or it cannot be read completely.
    """
    if chosen := re.fullmatch(r"(.+)#(\d{1,9}(?:,\d{1,9})*)", source):
        return with_layers(open_model(chosen[1], kind), list(map(int, chosen[2].split(","))))
    form, _, name = source.partition(":")
    if is_fine_tuned(source):
        if source_of(source)[1] is not None:
            raise InputError(f"{source}: a run of fine-tuning, which keeps only its best model")
        if in_bucket(source):
            raise InputError(
                f"{source}: a run of fine-tuning, which is opened on this machine only: "
                f"gcloud storage cp -r {source} FOLDER"
            )
        if tasks := _tasks_of(source):
            return _shared(source, tasks)
        if (Path(source) / PARAMETERS_FOLDER).exists():
            return own_folder.read_folder(Path(source) / PARAMETERS_FOLDER, source)
        if not (Path(source) / MODEL_FOLDER).exists():
            raise InputError(
                f"{source}: a run of fine-tuning without a model: no trial is done yet, or it is "
                "one over fixed features, whose taggers launch/predict.py opens, as in "
                "RUN/concat_last_four"
            )
        return read_hugging_face(Path(source) / MODEL_FOLDER, source)
    if is_run(source):
        run = load_run(source)
        parts = (part for part, its_kind in run.objective.others.items() if its_kind == kind)
        return of_run(run, source, next(parts, ""))
    if form == "hf":
        folder = model_folder(name)
        return (
            read_peft(folder, source, _open_base)
            if is_peft(folder)
            else read_hugging_face(folder, source)
        )
    if form == "elmo":
        return read_elmo(Path(name), source)
    return read_release(Path(name), source)


def _open_base(name: str) -> Pretrained:
    """The weights that an adapter changes: a run, or what transformers has."""
    of_run = Path(name).is_dir() and not {"model_type", "architectures"} & read_config(name).keys()
    return open_model(name if of_run else f"hf:{name}")


def open_part(source: str, part: str) -> Pretrained:
    """The model of a part of a run of pre-training: see `of_run`; "": as `open_model`."""
    if not part:
        return open_model(source)
    if not is_run(source) or is_fine_tuned(source):
        raise InputError(f"--part={part}: {source} is no run of pre-training: leave it out")
    return of_run(load_run(source), source, part)


def _shared(source: str, tasks: Iterable[str]) -> Pretrained:
    """The model of several tasks of a run without their output layers: what they share."""
    each = (open_model(f"{source}/{task}") for task in tasks)
    most = max(each, key=lambda model: len(model.params))
    params = {part: params for part, params in most.params.items() if part not in OUTPUT_LAYERS}
    return dataclasses.replace(most, origin=source, params=params, classes=(), task={})


def is_run(source: str) -> bool:
    """Whether a source is the folder of a run of ours."""
    return not source.startswith(("hf:", "tf1:", "elmo:"))


def is_fine_tuned(source: str) -> bool:
    """Whether a source is the folder of a run of fine-tuning."""
    return is_run(source) and is_of_tasks(read_config(source_of(source)[0]))


def _tasks_of(source: str) -> tuple[str, ...]:
    """The names of the tasks that a run of fine-tuning has learned together; () if it has not."""
    return tuple(read_config(source).get("tasks", ())) if is_fine_tuned(source) else ()


def check_one_task(source: str) -> None:
    """Raises InputError if a source is a run of several tasks, which has a model for each."""
    if tasks := _tasks_of(source):
        folders = ", ".join(f"{source}/{name}" for name in tasks)
        raise InputError(f"{source}: a run of several tasks: name one of its tasks: {folders}")


def makes_vectors(source: str) -> bool:
    """Whether a source is a model that makes vectors of texts: a run, or a folder with modules."""
    if not is_run(source):
        kind, _, name = source.partition(":")
        return kind == "hf" and sentence_transformers.makes_vectors(model_folder(name))
    return not in_bucket(source) and sentence_transformers.makes_vectors(
        Path(source) / MODEL_FOLDER
    )


def is_ensemble(source: str) -> bool:
    """Whether a source is the folder of an ensemble of fine-tuned runs."""
    return is_run(source) and ENSEMBLE in read_config(source_of(source)[0])


def is_tagger(source: str) -> bool:
    """Whether a source is the folder RUN/CHOICE of a run over fixed features."""
    return is_run(source) and (path_of(source) / TAGGER_FOLDER).is_dir()


def of_run(run: LoadedRun, origin: str, part: str = "") -> Pretrained:
    """The model that a run trained.

    Args:
      part: a part of the model, such as ELECTRA's generator; "": the one that all programs open.

    Raises:
      InputError: only the objective can use the model; or it has no such part.
    """
    objective = run.objective
    if part and part not in objective.others:
        names = ", ".join(objective.others) or "none: leave it out"
        raise InputError(f"--part={part}: the parts of {origin} to choose from are: {names}")
    if not objective.kind:
        raise InputError(
            f"{origin}: a run with config.objective={objective.name!r}, whose model is for "
            "launch/pretrain.py and launch/evaluate.py alone"
        )
    module, params = run.part(part)
    name = part or objective.exported
    source = run.given.get(name)
    characters = family_of(module.spec).reads_characters
    return Pretrained(
        origin=origin,
        kind=objective.others[part] if part else objective.kind,
        spec=plain(module.spec),
        params=to_plain(params, module.spec),
        tokenizer=Characters(run.tokenizer.identity) if characters else run.tokenizer,
        adapter=low_rank(run.model, run.params, source, source, name) if source else None,
    )
