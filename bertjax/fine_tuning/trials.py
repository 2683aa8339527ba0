"""Trials of fine-tuning that share their data, their weights and all that is compiled."""

import contextlib
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bertjax.base.errors import InputError
from bertjax.fine_tuning.data import Split, TaskData
from bertjax.fine_tuning.model import Predictor, predicting_next
from bertjax.fine_tuning.recipe import TaskRecipe, Trial
from bertjax.objectives.registry import TASK_OBJECTIVES
from bertjax.objectives.with_language_model import WithLanguageModel
from bertjax.optimizers.optimizer import make_optimizer
from bertjax.optimizers.schedule import make_schedule
from bertjax.runs.run_folder import checkpoints_folder
from bertjax.sharding.placement import HostBatch, make_placement, part_tokens
from bertjax.tasks.buckets import Epochs, choose_lengths, choose_rows
from bertjax.training.checkpoint import Checkpoints
from bertjax.training.experiment import Experiment
from bertjax.training.journal import Journal
from bertjax.training.loop import Course, Intervals, Phase, Trainer, last_line
from bertjax.training.model import Model, Params
from bertjax.training.objective import Objective
from bertjax.training.state import logical_axes


class Trials:
    """Trains the trials of one fine-tuning, and predicts with their models.

    Attributes:
      buckets: the lengths of training batches.
      experiment: what all trials have in common.
    """

    def __init__(
        self,
        recipe: TaskRecipe,
        data: TaskData,
        model: Model,
        *,
        max_length: int,
        flops_per_token: Callable[[int], float],
        pad_id: int = 0,
        start: Callable[[Params], Params] | None = None,
    ):
        """Compiles nothing yet.

        Args:
          max_length: no batch is longer.
          flops_per_token: sequence length -> useful operations of a training step for each token.
          start: fresh parameters -> those that training starts from.

        Raises:
          InputError: the config divides batches into parts, and the task needs them whole.
        """
        objective = dataclasses.replace(
            TASK_OBJECTIVES[recipe.task.family.objective], **recipe.task.objective_settings
        )
        if objective.whole_batch and recipe.accumulate > 1:
            raise InputError(
                f"config.accumulate={recipe.accumulate}: the task compares the rows of a batch "
                "with each other, so that it cannot take the batch in parts: set it to 0"
            )
        self._recipe, self._data = recipe, data
        self._max_length, self._pad_id = max_length, pad_id
        self._flops_per_token, self._start = flops_per_token, start or (lambda params: params)
        placement = make_placement(recipe.mesh, recipe.layout)
        trained = model
        minimized: Objective = objective
        if recipe.lm_weight:
            trained = predicting_next(model)
            minimized = WithLanguageModel(objective, recipe.lm_weight)
        self.experiment = Experiment(
            model=trained,
            objective=minimized,
            optimizer=make_optimizer(recipe.optimizer, partial(logical_axes, trained.init)),
            placement=placement,
        )
        self._trainer = Trainer(self.experiment)
        self._predictor = Predictor(
            model, objective, placement, pad_id=pad_id, batch_tokens=recipe.batch_tokens
        )
        self.buckets = choose_lengths(data.train.lengths, max_length, recipe.buckets)

    @property
    def abstract_params(self) -> Params:
        """Shapes and shardings of the parameters."""
        return self.experiment.state.params

    @property
    def parameters(self) -> dict[str, int]:
        """The number of parameters of each part of the model."""
        return {
            part: sum(leaf.size for leaf in jax.tree.leaves(tree))
            for part, tree in self.abstract_params.items()
        }

    def epochs(self, trial: Trial) -> Epochs:
        """The batches of a trial. None is larger than the training data."""
        lengths = self._data.train.lengths
        size = min(trial.batch_size, len(lengths))
        if self.experiment.objective.whole_batch:
            rows = size
        elif self._recipe.accumulate:
            rows = trial.batch_size // self._recipe.accumulate
        else:
            most, cost = (tokens / self._data.train.choices for tokens in part_tokens())
            rows = choose_rows(
                lengths,
                self.buckets,
                size,
                devices=self.experiment.placement.ways,
                most=most,
                cost=cost,
            )
        return Epochs(lengths, self.buckets, size, trial.epochs, trial.seed, rows)

    def train(self, trial: Trial, folder: Path) -> tuple[Params, bool]:
        """Trains from the newest checkpoint in a folder, or from the given weights.

        Args:
          folder: gets checkpoints/, metrics.jsonl, loss.png and tensorboard/.

        Returns:
          The parameters, on the devices; and whether it is complete: False after a signal.

        Raises:
          NonFiniteLoss: it diverged.
        """
        epochs = self.epochs(trial)
        course = self._course(trial, epochs)
        with contextlib.ExitStack() as stack:
            checkpoints = Checkpoints(checkpoints_folder(folder), keep=1)
            stack.enter_context(contextlib.closing(checkpoints))
            state, window = self._trainer.restore(checkpoints, self._data.identity)
            if state is None:
                state = self.experiment.fresh_state(trial.seed).started(self._start)
            step = int(state.step)
            journal = Journal(folder, step, last_line(step, window))
            stack.enter_context(contextlib.closing(journal))
            state, complete = self._trainer.train(state, course, checkpoints, journal, window)
        return state.params, complete

    def _course(self, trial: Trial, epochs: Epochs) -> Course:
        intervals = self._recipe.intervals
        optimizer = dataclasses.replace(self._recipe.optimizer, learning_rate=trial.learning_rate)
        return Course(
            phases=[self._phase(epochs)],
            schedule=make_schedule(optimizer, epochs.steps),
            seed=trial.seed,
            intervals=Intervals(
                log=intervals.log,
                checkpoint=intervals.checkpoint,
                evaluate=epochs.steps,
                eval_batches=1,
            ),
            metadata={"data": self._data.identity},
        )

    def _phase(self, epochs: Epochs) -> Phase:
        """The batches of a trial, as the training loop wants them."""
        encoded, rows = self._data.train, epochs.rows

        def parts(number: int) -> list[Callable[[slice], HostBatch]]:
            return [partial(part, *examples) for examples in epochs.parts(number)]

        def part(examples: np.ndarray, length: int, held: slice) -> HostBatch:
            arrays = encoded.batch(
                self.experiment.objective.fields, examples, rows, length, self._pad_id
            )
            return {name: array[held] for name, array in arrays.items()}

        tokens = round(epochs.tokens * encoded.choices)
        length = round(epochs.tokens / epochs.batch_size)
        return Phase(
            name="fine-tuning",
            first_step=0,
            last_step=epochs.steps,
            parts=parts,
            held_out=None,
            rows=rows,
            accumulate=1,
            tokens=tokens,
            flops=tokens * self._flops_per_token(length),
        )

    def predict(self, params: Params, split: Split, what: str) -> list[Any]:
        """A prediction for each example of a split.

        Args:
          params: as `train` returns them.
          what: the work, as the progress calls it.
        """
        recipe, encoded = self._recipe, split.encoded
        buckets, longest = self.buckets, encoded.lengths[encoded.lengths.argmax()]
        if longest > buckets[-1]:
            buckets += choose_lengths(longest[None], self._max_length, most=1)
        outputs = self._predictor.outputs(params, encoded, buckets, what)
        return recipe.task.family.decode(split.examples, encoded, outputs)
