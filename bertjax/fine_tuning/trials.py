"""Trials of fine-tuning that share their data, their weights and all that is compiled."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bertjax.fine_tuning.data import Split, TaskData
from bertjax.fine_tuning.model import Predictor, TaskModel
from bertjax.fine_tuning.recipe import TaskRecipe, Trial
from bertjax.objectives.registry import TASK_OBJECTIVES
from bertjax.optimizers.optimizer import make_adjustable_optimizer, with_schedule
from bertjax.optimizers.schedule import make_schedule
from bertjax.runs.run_folder import checkpoints_folder
from bertjax.sharding.mesh import make_mesh
from bertjax.sharding.placement import HostBatch, Placement, part_tokens
from bertjax.sharding.rules import layout
from bertjax.tasks.buckets import Epochs, choose_lengths, choose_rows
from bertjax.training.checkpoint import Checkpoints
from bertjax.training.journal import Journal
from bertjax.training.loop import Intervals, Phase, Trainer, last_line, restore
from bertjax.training.state import (
    abstract_state,
    compiled_init,
    logical_axes,
    weights_in_use,
)


class Trials:
    """Trains and predicts.

    Attributes:
      buckets: the lengths of training batches.
      fresh_state: seed -> a state at step 0, compiled once.
    """

    def __init__(
        self,
        recipe: TaskRecipe,
        data: TaskData,
        model: TaskModel,
        *,
        max_length: int,
        flops_per_token: Callable[[int], float],
        pad_id: int = 0,
        start: Callable[[Any], Any] | None = None,
    ):
        """Compiles nothing yet.

        Args:
          max_length: no batch is longer.
          flops_per_token: sequence length -> useful operations of a training step for each token.
          start: fresh parameters -> those that training starts from.
        """
        self._recipe, self._data = recipe, data
        self._max_length, self._pad_id = max_length, pad_id
        self._flops_per_token, self._start = flops_per_token, start or (lambda params: params)
        self._objective = objective = TASK_OBJECTIVES[recipe.task.family.objective]
        placement = Placement(make_mesh(recipe.mesh), layout(recipe.layout))
        self._ways = placement.ways
        self._predictor = Predictor(
            model, objective, placement, pad_id=pad_id, batch_tokens=recipe.batch_tokens
        )
        self.buckets = choose_lengths(data.train.lengths, max_length, recipe.buckets)
        optimizer = make_adjustable_optimizer(
            recipe.optimizer.spec(1.0, 1), partial(logical_axes, model.init)
        )
        self._abstract = abstract_state(model.init, optimizer, placement)
        self.fresh_state = compiled_init(model.init, optimizer, self._abstract)
        self._trainer = Trainer(
            loss=model.loss(objective),
            optimizer=optimizer,
            placement=placement,
            weights=weights_in_use(model.init, placement),
        )

    @property
    def abstract_params(self) -> Any:
        """Shapes and shardings of the parameters."""
        return self._abstract.params

    @property
    def parameters(self) -> dict[str, int]:
        """How many each part of the model has."""
        return {
            part: sum(leaf.size for leaf in jax.tree.leaves(tree))
            for part, tree in self.abstract_params.items()
        }

    def epochs(self, trial: Trial) -> Epochs:
        """The batches of a trial. None is larger than the training data."""
        lengths = self._data.train.lengths
        size = min(trial.batch_size, len(lengths))
        if self._recipe.accumulate:
            rows = trial.batch_size // self._recipe.accumulate
        else:
            most, cost = (tokens / self._data.train.choices for tokens in part_tokens())
            rows = choose_rows(
                lengths, self.buckets, size, devices=self._ways, most=most, cost=cost
            )
        return Epochs(lengths, self.buckets, size, trial.epochs, trial.seed, rows)

    def train(self, trial: Trial, folder: Path) -> tuple[Any, bool]:
        """Trains from the newest checkpoint in a folder, or from the given weights.

        Args:
          folder: gets checkpoints/, metrics.jsonl, loss.png and tensorboard/.

        Returns:
          The parameters, on the devices; and False if a signal stopped it before its end.

        Raises:
          NonFiniteLoss: it diverged.
        """
        recipe, epochs = self._recipe, self.epochs(trial)
        optimizer = recipe.optimizer.spec(trial.learning_rate, epochs.steps)
        intervals = Intervals(
            log=recipe.intervals.log,
            checkpoint=recipe.intervals.checkpoint,
            evaluate=epochs.steps,
            eval_batches=1,
        )
        identity = self._data.identity
        with contextlib.ExitStack() as stack:
            checkpoints = Checkpoints(checkpoints_folder(folder), keep=1)
            stack.enter_context(contextlib.closing(checkpoints))
            state, window = restore(checkpoints, self._abstract, identity)
            if state is None:
                state = self.fresh_state(trial.seed)
                state = state.replace(
                    params=self._start(state.params),
                    opt_state=with_schedule(state.opt_state, optimizer, epochs.steps),
                )
            step = int(state.step)
            journal = Journal(folder, step, last_line(step, window))
            stack.enter_context(contextlib.closing(journal))
            state, complete = self._trainer.train(
                state,
                [self._phase(epochs)],
                intervals,
                checkpoints,
                journal,
                {"data": identity},
                window,
                schedule=make_schedule(optimizer, epochs.steps),
                seed=trial.seed,
            )
        return state.params, complete

    def _phase(self, epochs: Epochs) -> Phase:
        """The batches of a trial, as the training loop wants them."""
        encoded, rows = self._data.train, epochs.rows

        def parts(number: int) -> list[Callable[[slice], HostBatch]]:
            return [partial(part, *examples) for examples in epochs.parts(number)]

        def part(examples: np.ndarray, length: int, held: slice) -> HostBatch:
            arrays = encoded.batch(self._objective.fields, examples, rows, length, self._pad_id)
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

    def predict(self, params: Any, split: Split, what: str) -> list[Any]:
        """A prediction for each example of a split.

        Args:
          params: as `train` returns them.
          what: is being predicted, for the progress.
        """
        recipe, encoded = self._recipe, split.encoded
        buckets, longest = self.buckets, encoded.lengths[encoded.lengths.argmax()]
        if longest > buckets[-1]:
            buckets += choose_lengths(longest[None], self._max_length, most=1)
        outputs = self._predictor.outputs(params, encoded, buckets, what)
        return recipe.task.family.decode(split.examples, encoded, outputs)
