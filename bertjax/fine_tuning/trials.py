"""Trials of fine-tuning that share their data, their weights and all that is compiled."""

import contextlib
import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bertjax.fine_tuning.data import Split, TaskData
from bertjax.fine_tuning.model import (
    ARCHITECTURE,
    Predictor,
    class_names,
    init_params,
    make_objective,
    make_task_model,
)
from bertjax.fine_tuning.recipe import TaskRecipe, Trial
from bertjax.initialize import load_into
from bertjax.interop.pretrained import Pretrained
from bertjax.model.spec import plain_spec
from bertjax.model.storage import to_plain
from bertjax.optimizer import make_adjustable_optimizer, make_schedule, with_schedule
from bertjax.run_folder import checkpoints_folder
from bertjax.sharding.mesh import make_mesh
from bertjax.sharding.placement import Placement
from bertjax.sharding.rules import layout
from bertjax.tasks.buckets import Epochs, choose_lengths
from bertjax.training.checkpoint import Checkpoints
from bertjax.training.hardware import keep_freed_memory
from bertjax.training.journal import Journal
from bertjax.training.loop import Intervals, Phase, Trainer, restore
from bertjax.training.state import abstract_state, compiled_init

_TAKEN = ("bert", "pooler")  # of the given weights; heads are new in every trial


class Trials:
    """Trains and predicts.

    Attributes:
      buckets: the lengths of training batches.
      parameters: how many the model has.
      fresh: the parts of the model that the given weights do not have.
    """

    def __init__(self, recipe: TaskRecipe, given: Pretrained, data: TaskData):
        self._recipe, self._data = recipe, data
        self._family = family = recipe.task.family
        kept = {part: given.params[part] for part in _TAKEN if part in given.params}
        self._given = dataclasses.replace(given, params=kept)
        self._spec = recipe.spec(given)
        if jax.default_backend() == "cpu":
            keep_freed_memory()
        self._placement = Placement(make_mesh(recipe.mesh), layout(recipe.layout))
        model = make_task_model(family, self._spec)
        self._predictor = Predictor(
            model,
            family.objective,
            self._placement,
            pad_id=given.tokenizer.pad_id,
            batch_tokens=recipe.batch_tokens,
        )
        self.buckets = choose_lengths(data.train.lengths, recipe.max_length, recipe.buckets)
        optimizer = make_adjustable_optimizer(recipe.optimizer.spec(1.0, 1))
        init = partial(init_params, model, data.train.choices)
        self._abstract = abstract_state(init, optimizer, self._placement)
        self._fresh_state = compiled_init(init, optimizer, self._abstract)
        self._trainer = Trainer(
            objective=make_objective(model, family.objective),
            optimizer=optimizer,
            schedule=lambda count: 0.0,
            seed=recipe.seed,
            placement=self._placement,
        )
        self._trainer.check([self._phase(self.epochs(trial)) for trial in recipe.trials()])
        self.parameters = sum(leaf.size for leaf in jax.tree.leaves(self._abstract.params))
        self.fresh = [part for part in self._abstract.params if part not in kept]

    def epochs(self, trial: Trial) -> Epochs:
        """The batches of a trial."""
        lengths = self._data.train.lengths
        return Epochs(lengths, self.buckets, trial.batch_size, trial.epochs, trial.seed)

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
        trainer = self._trainer.again(
            schedule=make_schedule(optimizer, epochs.steps), seed=trial.seed
        )
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
                state = self._fresh_state(trial.seed)
                state = state.replace(
                    params=load_into(state.params, self._given, self._spec),
                    opt_state=with_schedule(state.opt_state, optimizer, epochs.steps),
                )
            journal = stack.enter_context(contextlib.closing(Journal(folder, int(state.step))))
            state, complete = trainer.train(
                state,
                [self._phase(epochs)],
                intervals,
                checkpoints,
                journal,
                {"data": identity},
                window,
            )
        return state.params, complete

    def _phase(self, epochs: Epochs) -> Phase:
        """The batches of a trial, as the training loop wants them."""
        encoded, pad_id = self._data.train, self._given.tokenizer.pad_id

        def batch(number: int, rows: slice) -> dict[str, np.ndarray]:
            examples, length = epochs.batch(number)
            objective = self._family.objective
            arrays = encoded.batch(objective, examples, epochs.batch_size, length, pad_id)
            return {name: array[rows] for name, array in arrays.items()}

        length = round(epochs.mean_length)
        tokens = epochs.batch_size * encoded.choices * length
        return Phase(
            name="fine-tuning",
            first_step=0,
            last_step=epochs.steps,
            batch=batch,
            held_out=None,
            batch_size=epochs.batch_size,
            accumulate=self._recipe.accumulate,
            tokens=tokens,
            flops=tokens * self._spec.flops_per_token(length, 0),
        )

    def predict(self, params: Any, split: Split, what: str) -> list[Any]:
        """A prediction for each example of a split.

        Args:
          params: as `train` returns them, or as `placed` does.
          what: is being predicted, for the progress.
        """
        recipe, encoded = self._recipe, split.encoded
        buckets = choose_lengths(encoded.lengths, recipe.max_length, recipe.buckets)
        outputs = self._predictor.outputs(params, encoded, buckets, what)
        return self._family.decode(split.examples, split.encoded, outputs)

    def to_pretrained(self, params: Any, origin: str, task: Mapping[str, Any]) -> Pretrained:
        """The trained model on the host.

        Args:
          task: see `Pretrained`.
        """
        return Pretrained(
            origin=origin,
            architecture=ARCHITECTURE[self._family.objective],
            spec=plain_spec(self._spec),
            params=to_plain(params, self._spec),
            tokenizer=self._given.tokenizer,
            classes=class_names(self._family),
            task=task,
        )

    def placed(self, trained: Pretrained) -> Any:
        """The inverse of `to_pretrained`: its parameters, on the devices."""
        return load_into(self._fresh_state(0).params, trained, self._spec)
