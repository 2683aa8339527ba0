"""What a study is given: its file, the files of its configs, a corpus, data, and its folder."""

import dataclasses
import functools
import importlib.util
import inspect
from pathlib import Path
from typing import Any

from bertjax.base.checks import check_file, input_error_at
from bertjax.base.errors import InputError
from bertjax.base.shipped import config_path
from bertjax.base.user_imports import user_imports
from bertjax.lab.minimal_pairs.data import read_pairs
from bertjax.lab.minimal_pairs.pairs import Pair
from bertjax.lab.studies.study import Stage, Study, folder_of


@dataclasses.dataclass(frozen=True)
class StudyFiles:
    """What all stages of a study are given, and STUDY, its folder.

    Files of configs are looked for in the current folder, and then in all folders above the study's
    file. `data` has the folders of the tasks' files.
    """

    study: str
    corpus: str
    data: str
    folder: Path

    def config(self, stage: Stage) -> Any:
        """The config of a stage, as its program takes it; its settings alone if it has no file."""
        if not stage.config:
            return dict(stage.settings)
        config = read_config_file(self._resolved(stage.config))
        settings = dict(stage.settings)
        if stage.program == "pretrain":
            settings = {"corpus": self.corpus} | settings
        if stage.data:
            settings = {"data": self.place(stage)} | settings
        if stage.start:
            at = "" if stage.step is None else f"@{stage.step}"
            settings = {"init_from": f"{folder_of(stage.start[0], self.folder)}{at}"} | settings
        with config.unlocked():
            for key, value in settings.items():
                _set(config, key, value)
        return config

    def place(self, stage: Stage) -> str:
        """The path of a stage's data."""
        return str(Path(self.data, stage.data))

    def pairs(self, stage: Stage) -> list[Pair]:
        """The minimal pairs of a stage that scores grammar."""
        return _pairs(self.place(stage), stage.settings["most"])

    def _resolved(self, config: str) -> str:
        """A stage's config, "FILE.py:WORD", with the path of the file where it was found."""
        path, colon, word = config.partition(":")
        around = Path(self.study).resolve().parents
        places = [Path(path), *(folder / path for folder in around)]
        found = next((place for place in places if place.is_file()), places[0])
        return f"{found}{colon}{word}"


_pairs = functools.cache(read_pairs)  # many stages have the same ones


def _set(config: Any, key: str, value: Any) -> None:
    *sections, last = key.split(".")
    wrong = (TypeError, ValueError, KeyError, AttributeError)
    with input_error_at(f"settings: {key!r}={value!r:.80}", wrong):
        for section in sections:
            if section not in config:
                config[section] = {}
            config = config[section]
        config[last] = value


def read_config_file(name: str) -> Any:
    """The ConfigDict of "FILE.py", or of "FILE.py:WORD", as --config takes it."""
    config = _call(name, "get_config")
    if not hasattr(config, "unlocked"):
        raise InputError(f"{name}: get_config returned {config!r:.80}: no ConfigDict")
    return config


def read_study(name: str, scale: Any) -> Study:
    """The study that "FILE.py" describes at a scale; FILE.py:WORD if its get_study takes a word."""
    try:
        study = _call(name, "get_study", scale)
    except InputError as error:
        path = name.partition(":")[0]
        raise error if path in str(error) else InputError(f"{path}: {error}") from error
    if not isinstance(study, Study):
        raise InputError(f"{name}: get_study returned {study!r:.80}: it must return a Study")
    return study


def _call(name: str, function: str, *arguments: Any) -> Any:
    """What a function of "FILE.py" returns; with "FILE.py:WORD", WORD is the last argument."""
    path, _, word = config_path(name).partition(":")
    if word:
        arguments += (word,)
    check_file(path)
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    with user_imports():
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            raise InputError(f"{path}, line {error.lineno}: {error.msg}: correct it") from error
        found = getattr(module, function, None)
        if not callable(found):
            raise InputError(f"{path}: no {function}() in it")
        with input_error_at(f"{path}: {function}()", TypeError):
            inspect.signature(found).bind(*arguments)
        return found(*arguments)
