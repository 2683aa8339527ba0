"""How long the stages of a study take: their useful operations, and the pace of the machine."""

import dataclasses
import functools
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

import jax

from bertjax.corpus import shards
from bertjax.corpus.store import TokenStore, open_tokenizer
from bertjax.encoders.contract import EncoderSpec
from bertjax.fine_tuning.recipe import TaskRecipe
from bertjax.runs.assembly import make_phases, make_training
from bertjax.runs.open_model import open_model
from bertjax.runs.recipe import Recipe
from bertjax.studies.files import Given
from bertjax.studies.study import Stage
from bertjax.tasks.task import TRAIN, Task

_SAMPLE = 200  # examples that are encoded to know the tokens of all
_STEPS = 5  # that are timed


@dataclasses.dataclass(frozen=True)
class Pace:
    """How fast a chip works.

    Attributes:
      rate: useful operations a second of one chip.
      start: seconds that a stage takes to start and to compile a program.
    """

    rate: float
    start: float


def measured_pace(stage: Stage, given: Given) -> Pace:
    """Trains a few steps of a pre-training here; nothing is written.

    A process of its own does it, which gives the devices back.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, stage, given).result()


def _measured(stage: Stage, given: Given) -> Pace:
    recipe = Recipe.from_config(given.config(stage))
    begin = time.perf_counter()
    tokenizer = open_tokenizer(recipe.corpus[0])
    stores = (
        TokenStore.open(recipe.corpus, split, tokenizer_identity=tokenizer.identity)
        for split in (shards.TRAIN, shards.HELDOUT)
    )
    spec = recipe.spec(tokenizer.vocabulary_size)
    training = make_training(recipe, spec)
    phase = make_phases(recipe, spec, tokenizer, *stores)[0]
    trainer, state = training.trainer, training.fresh_state(recipe.seed)
    update = functools.partial(
        trainer.update, accumulate=phase.accumulate, seed=recipe.seed, loss=phase.loss
    )
    batch = trainer.put(phase, 0)
    state, sums = update(state, batch)
    jax.block_until_ready(sums)
    compiled = time.perf_counter()
    for _ in range(_STEPS):
        state, sums = update(state, batch)
    jax.block_until_ready(sums)
    seconds = (time.perf_counter() - compiled) / _STEPS
    return Pace(phase.flops / seconds / jax.device_count(), compiled - begin)


def operations(stage: Stage, given: Given) -> float:
    """The useful operations of a stage; evaluations are not counted.

    Raises:
      InputError: a config of the stage, or a file of its data, cannot be used.
    """
    if stage.program == "pretrain":
        recipe = Recipe.from_config(given.config(stage))
        spec = _spec(stage, given)
        return sum(
            len(steps)
            * phase.batch_size
            * phase.length
            * spec.flops_per_token(phase.length, recipe.example_spec(phase, "", 1).predicted)
            for _, phase, steps in recipe.steps()
        )
    if stage.program == "finetune":
        recipe = TaskRecipe.from_config(given.config(stage))
        return _of_fine_tuning(recipe, _spec(stage, given), given)
    return 0.0


def _spec(stage: Stage, given: Given) -> EncoderSpec:
    """The encoder that a stage descends from: of a pre-training, or of weights that are given."""
    while stage.start:
        stage = stage.start[0]
    config = given.config(stage)
    if stage.program != "pretrain":
        return open_model(config.init_from).spec
    recipe = Recipe.from_config(config)
    return recipe.spec(open_tokenizer(recipe.corpus[0]).vocabulary_size)


def _of_fine_tuning(recipe: TaskRecipe, spec: EncoderSpec, given: Given) -> float:
    """All epochs of all trials; with features, the encoder computes each example once."""
    tokens, length = _tokens(recipe.task, recipe.max_length, given.corpus)
    of_token = spec.flops_per_token(length, predicted=0)
    if recipe.features:
        return tokens * of_token / 3
    return tokens * of_token * sum(trial.epochs for trial in recipe.trials())


@functools.cache
def _tokens(task: Task, max_length: int, corpus: str) -> tuple[float, int]:
    """The tokens of all training examples, from those of some; and the mean of a sequence."""
    examples = task.read(TRAIN)
    some = examples[:: max(1, len(examples) // _SAMPLE)]
    encoded = task.family.encode(some, open_tokenizer(corpus), max_length, labelled=True)
    tokens = float(encoded.lengths.sum()) * encoded.choices * len(examples) / len(some)
    return tokens, round(encoded.lengths.mean())
