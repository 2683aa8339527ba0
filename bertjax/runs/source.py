"""What a source names: a run of ours, or a model of others. A folder's config is read once.

`weights` reads the model to the host, and downloads it first if it must; or it raises InputError,
which says what the source is instead.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

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
from bertjax.models.heads.tasks import OUTPUT_LAYERS
from bertjax.runs.pretrained_run import LoadedRun, PretrainedRun
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import (
    ENSEMBLE,
    MODEL_FOLDER,
    PARAMETERS_FOLDER,
    RESULTS_FILE,
    TAGGER_FOLDER,
    check_run,
    is_of_tasks,
    recorded_config,
    source_of,
)

_READERS: Mapping[str, Callable[[Path, str], Pretrained]] = {
    "hf": read_hugging_face,
    "tf1": read_release,
    "elmo": read_elmo,
}


@dataclasses.dataclass(frozen=True)
class Published:
    """A model of others, by its name: hf:FOLDER or hf:NAME, tf1:FOLDER, elmo:FOLDER."""

    name: str

    @functools.cached_property
    def _folder(self) -> Path:
        form, _, name = self.name.partition(":")
        return model_folder(name) if form == "hf" else Path(name)

    @property
    def makes_vectors(self) -> bool:
        """Whether vectors of texts are made of its outputs."""
        hugging_face = self.name.startswith("hf:")
        return hugging_face and sentence_transformers.makes_vectors(self._folder)

    def weights(self) -> Pretrained:
        """Reads the model."""
        if self.name.startswith("hf:") and is_peft(self._folder):
            return read_peft(self._folder, self.name, _open_base)
        return _READERS[self.name.partition(":")[0]](self._folder, self.name)


@dataclasses.dataclass(frozen=True)
class TunedRun:
    """A run of fine-tuning on one task, of contrastive training, or over fixed features."""

    name: str
    config: Mapping[str, Any]

    @property
    def makes_vectors(self) -> bool:
        """Whether it has learned to make vectors of texts."""
        folder = Path(self.name) / MODEL_FOLDER
        return not in_bucket(self.name) and sentence_transformers.makes_vectors(folder)

    def weights(self) -> Pretrained:
        """Reads the best model."""
        _check_here(self.name)
        if (folder := Path(self.name) / PARAMETERS_FOLDER).exists():
            return own_folder.read_folder(folder, self.name)
        if (folder := Path(self.name) / MODEL_FOLDER).exists():
            return read_hugging_face(folder, self.name)
        raise InputError(
            f"{self.name}: a run of fine-tuning without a model: no trial is done yet, or it is "
            "one over fixed features, whose taggers launch/predict.py opens, as in "
            "RUN/concat_last_four"
        )


@dataclasses.dataclass(frozen=True)
class TasksRun:
    """A run of fine-tuning on several tasks together: each has its model in a folder of its own."""

    name: str
    config: Mapping[str, Any]

    def weights(self) -> Pretrained:
        """What the models share: one of them without its output layers."""
        _check_here(self.name)
        each = (open_source(f"{self.name}/{task}").weights() for task in self.config["tasks"])
        most = max(each, key=lambda model: len(model.params))
        params = {part: tree for part, tree in most.params.items() if part not in OUTPUT_LAYERS}
        return dataclasses.replace(most, origin=self.name, params=params, classes=(), task={})

    @property
    def refusal(self) -> InputError:
        """What to say where one model is needed."""
        folders = ", ".join(f"{self.name}/{task}" for task in self.config["tasks"])
        return InputError(f"{self.name}: a run of several tasks: name one of its tasks: {folders}")


@dataclasses.dataclass(frozen=True)
class EnsembleFolder:
    """An ensemble of fine-tuned runs."""

    name: str

    def weights(self) -> NoReturn:
        raise InputError(
            f"{self.name}: an ensemble of fine-tuned runs, which launch/predict.py alone takes: "
            "name one of its runs"
        )


@dataclasses.dataclass(frozen=True)
class TaggerFolder:
    """The folder RUN/CHOICE of a run over fixed features."""

    name: str

    def weights(self) -> NoReturn:
        raise InputError(
            f"{self.name}: a tagger over fixed features, which launch/predict.py alone takes: name "
            "the encoder that it reads"
        )


@dataclasses.dataclass(frozen=True)
class SomeLayers:
    """SOURCE#0,2: a model with only these layers, in this order."""

    source: "Source"
    layers: tuple[int, ...]

    @property
    def name(self) -> str:
        """What the user calls it."""
        return f"{self.source.name}#{','.join(map(str, self.layers))}"

    def weights(self, head_type: str = "") -> Pretrained:
        """Reads the model, and takes its layers."""
        return with_layers(open_model(self.source, head_type), self.layers)


Source = (
    PretrainedRun | TunedRun | TasksRun | TaggerFolder | EnsembleFolder | Published | SomeLayers
)


def open_source(name: str | Path | Source) -> Source:
    """Finds out what a name stands for; a source that is open stays as it is.

    Args:
      name: the folder of a run, here or in a bucket, or RUN@STEP for one of its checkpoints; "hf:"
        and a folder that transformers wrote, or a name on the Hugging Face hub; "tf1:" and the
        folder of a release of google-research/bert; "elmo:" and a folder of bilm-tf or AllenNLP.
        SOURCE#0,2,4 has only these layers of it.
    """
    if isinstance(name, Source):
        return name
    name = str(name)
    if chosen := re.fullmatch(r"(.+)#(\d{1,9}(?:,\d{1,9})*)", name):
        return SomeLayers(open_source(chosen[1]), tuple(map(int, chosen[2].split(","))))
    if name.startswith(tuple(f"{form}:" for form in _READERS)):
        return Published(name)
    run, _ = source_of(name)
    config = recorded_config(run)
    if not config and (path_of(run) / TAGGER_FOLDER).is_dir():
        return TaggerFolder(name)
    check_run(run, config)
    if config.get("tasks"):
        return TasksRun(name, config)
    if is_of_tasks(config):
        return TunedRun(name, config)
    if ENSEMBLE in config:
        return EnsembleFolder(name)
    return PretrainedRun(name, Recipe.from_config(config), open_model)


def open_model(source: str | Source, head_type: str = "", part: str = "") -> Pretrained:
    """Reads the model of a source to the host, as `PretrainedRun.weights` does."""
    match open_source(source):
        case PretrainedRun() as run:
            return run.weights(head_type, part)
        case opened if part:
            raise InputError(
                f"--part={part}: {opened.name} is no run of pre-training: leave it out"
            )
        case SomeLayers() as some:
            return some.weights(head_type)
        case opened:
            return opened.weights()


def load_run(source: str | Path | Source) -> LoadedRun:
    """Loads a run of pre-training; raises InputError if it is none."""
    return run_of_pretraining(open_source(source)).load()


def run_of_pretraining(source: Source) -> PretrainedRun:
    """The source itself; raises InputError if it is something else."""
    match source:
        case PretrainedRun():
            return source
        case TunedRun() | TasksRun():
            raise InputError(
                f"{source.name}: a run of fine-tuning, not of pre-training: its figures are in its "
                f"{RESULTS_FILE}, and launch/predict.py and launch/convert.py take it"
            )
        case EnsembleFolder() | TaggerFolder():
            source.weights()
        case _:
            raise InputError(f"{source.name}: not a run: name the folder of a run of pre-training")


def _open_base(name: str) -> Pretrained:
    """The weights that an adapter changes: a run, or what transformers has."""
    config = recorded_config(name) if Path(name).is_dir() else {}
    of_run = config and not {"model_type", "architectures"} & config.keys()
    return open_model(name if of_run else f"hf:{name}")


def _check_here(name: str) -> None:
    """Raises InputError for a step of a run of fine-tuning, or for one in a bucket."""
    if source_of(name)[1] is not None:
        raise InputError(f"{name}: a run of fine-tuning, which keeps only its best model")
    if in_bucket(name):
        raise InputError(
            f"{name}: a run of fine-tuning, which is opened on this machine only: "
            f"gcloud storage cp -r {name} FOLDER"
        )
