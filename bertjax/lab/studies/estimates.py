"""Estimates how long the stages of a study take, from their work and the pace of the machine."""

import dataclasses
import functools
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor

import jax

from bertjax.data.corpus import shards
from bertjax.data.corpus.store import TokenStore, open_tokenizer
from bertjax.lab.studies.files import StudyFiles
from bertjax.lab.studies.processes import devices_of, take_cores
from bertjax.lab.studies.study import Stage
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.runs.assembly import make_experiment, make_phases
from bertjax.runs.budget import TOKENS, Budget
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.initialize import frozen_params
from bertjax.runs.recipe import Recipe
from bertjax.runs.source import open_model
from bertjax.tasks.task import TRAIN, Task
from bertjax.training.loop import Trainer
from bertjax.training.pace import pace_of

_SAMPLE = 200  # examples that are encoded, to estimate the tokens of all
_TRAINING = 3  # times the operations of a prediction: backward has twice those of forward


@dataclasses.dataclass(frozen=True)
class Pace:
    """How fast a chip works: useful operations a second, and seconds to compile a program."""

    rate: float
    start: float


@dataclasses.dataclass(frozen=True)
class Work:
    """The work of one stage: useful operations, of training and of predictions.

    `programs` of training are compiled, one for each shape of a batch. `time` are the seconds
    that it takes besides, on any machine.
    """

    operations: float = 0.0
    programs: int = 0
    time: float = 0.0

    def seconds(self, pace: Pace, chips: int) -> float:
        """How long it takes."""
        return self.programs * pace.start + self.operations / (pace.rate * chips) + self.time


def measured_pace(stage: Stage, files: StudyFiles, at_once: int) -> Pace:
    """Trains a few steps of a pre-training here; nothing is written.

    It runs in a process of its own, with the devices of a stage when `at_once` stages run at a
    time. When the process ends, the devices are free again.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, stage, files, at_once).result()


def _measured(stage: Stage, files: StudyFiles, at_once: int) -> Pace:
    os.environ |= devices_of(0, at_once)
    take_cores(0, at_once)
    recipe = Recipe.from_config(files.config(stage))
    begin = time.perf_counter()
    tokenizer = open_tokenizer(recipe.corpus[0])
    train, held_out = (
        TokenStore.open(
            recipe.corpus,
            split,
            alpha=recipe.language_alpha,
            tokenizer_identity=tokenizer.identity,
        )
        for split in (shards.TRAIN, shards.HELDOUT)
    )
    spec = recipe.spec_for(tokenizer)
    experiment = make_experiment(recipe, spec)
    frozen, _ = frozen_params(experiment.model, experiment.placement, {}, recipe.seed)
    trainer = Trainer(dataclasses.replace(experiment, frozen=frozen))
    phase = make_phases(recipe, spec, tokenizer, train, held_out)[0]
    before = time.perf_counter() - begin
    pace = pace_of(trainer, phase, recipe.schedule()(0), recipe.seed)
    return Pace(phase.flops / pace.seconds / jax.device_count(), before + pace.first)


def work_of(stage: Stage, files: StudyFiles) -> Work:
    """The work of a stage; the evaluations of pre-training are not counted."""
    if stage.program == "pretrain":
        return _of_pretraining(Recipe.from_config(files.config(stage)), _spec(stage, files))
    if stage.program == "finetune":
        recipe = TaskRecipe.from_config(files.config(stage))
        return _of_fine_tuning(recipe, _spec(stage, files), files.corpus)
    if stage.program == "ensemble":  # each of its models predicts dev
        runs = [TaskRecipe.from_config(files.config(run)) for run in stage.start]
        spec = _spec(stage, files)
        predictions = (_of_predictions(run, spec, files.corpus) for run in runs)
        return Work(sum(predictions))
    return Work()


def _of_pretraining(recipe: Recipe, spec: EncoderSpec) -> Work:
    steps = [(phase, len(steps)) for _, phase, steps in recipe.steps()]
    operations = sum(
        number
        * phase.batch_size
        * phase.length
        * phase.objective.flops_per_token(
            spec, phase.length, recipe.example_spec(phase, "", 1).predicted
        )
        for phase, number in steps
    )
    if not recipe.budget:
        return Work(operations, len(steps))
    budget = Budget.of(recipe.budget)
    if budget.seconds:
        return Work(0.0, len(steps), budget.seconds)
    tokens = sum(number * phase.batch_tokens for phase, number in steps)
    is_tokens = budget.unit == TOKENS
    return Work(budget.amount * (operations / tokens if is_tokens else 1.0), len(steps))


def _spec(stage: Stage, files: StudyFiles) -> EncoderSpec:
    """The spec of the encoder that a stage starts from, of a pre-training or of other weights."""
    while stage.start:
        stage = stage.start[0]
    config = files.config(stage)
    if stage.program != "pretrain":
        return open_model(config.init_from).spec
    recipe = Recipe.from_config(config)
    return recipe.spec_for(open_tokenizer(recipe.corpus[0]))


def _of_fine_tuning(recipe: TaskRecipe, spec: EncoderSpec, corpus: str) -> Work:
    """The work of all trials: their epochs, and one prediction of dev each, without taggers."""
    trials = recipe.trials()
    training = _tokens(recipe.task, TRAIN, recipe.max_length, corpus)
    operations, predictions = _operations(training, spec), _of_predictions(recipe, spec, corpus)
    if recipe.features:
        return Work(operations / _TRAINING + predictions, recipe.buckets)
    return Work(sum(operations * trial.epochs + predictions for trial in trials), recipe.buckets)


def _of_predictions(recipe: TaskRecipe, spec: EncoderSpec, corpus: str) -> float:
    """The useful operations of one prediction for each example of dev."""
    return sum(
        _operations(_tokens(recipe.task, split, recipe.max_length, corpus), spec) / _TRAINING
        for split in recipe.task.dev_splits
    )


def _operations(tokens: tuple[float, int], spec: EncoderSpec) -> float:
    number, length = tokens
    return number * spec.flops_per_token(length, predicted=0)


@functools.cache
def _tokens(task: Task, split: str, max_length: int, corpus: str) -> tuple[float, int]:
    """(tokens of all examples of a split, mean length of a sequence), estimated from some."""
    examples = task.read(split)
    some = examples[:: max(1, len(examples) // _SAMPLE)]
    encoded = task.family.encode(some, open_tokenizer(corpus), max_length, labelled=split == TRAIN)
    tokens = float(encoded.lengths.sum()) * encoded.choices * len(examples) / len(some)
    return tokens, round(encoded.lengths.mean())
