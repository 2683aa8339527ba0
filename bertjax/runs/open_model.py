"""Opens a trained model, wherever it comes from: RUN, hf:FOLDER or hf:NAME, tf1:, elmo:FOLDER."""

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

from bertjax.base.cloud_storage import in_bucket, path_of
from bertjax.base.errors import InputError
from bertjax.interop import own_folder, sentence_transformers
from bertjax.interop.derived import with_layers
from bertjax.interop.elmo import read_elmo
from bertjax.interop.google import read_release
from bertjax.interop.hub import model_folder
from bertjax.interop.hugging_face import read_hugging_face
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders.computation import plain
from bertjax.models.encoders.registry import family_of
from bertjax.models.encoders.storage import to_plain
from bertjax.models.heads.tasks import OUTPUT_LAYERS
from bertjax.runs.run_folder import (
    ENSEMBLE,
    MODEL_FOLDER,
    PARAMETERS_FOLDER,
    TAGGER_FOLDER,
    LoadedRun,
    is_of_tasks,
    load_run,
    read_config,
    source_of,
)
from bertjax.text.characters import Characters


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
        return read_hugging_face(model_folder(name), source)
    if form == "elmo":
        return read_elmo(Path(name), source)
    return read_release(Path(name), source)


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
    characters = family_of(module.spec).reads_characters
    return Pretrained(
        origin=origin,
        kind=objective.others[part] if part else objective.kind,
        spec=plain(module.spec),
        params=to_plain(params, module.spec),
        tokenizer=Characters(run.tokenizer.identity) if characters else run.tokenizer,
    )
