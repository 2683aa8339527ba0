"""Trials of fine-tuning that share their data, their weights and all that is compiled."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import jax
import numpy as np

from bertjax.base.errors import InputError
from bertjax.objectives.fine_tuning import FineTuning, TaskObjective, array_name
from bertjax.objectives.task_losses import Settings
from bertjax.runs.fine_tuning.data import Split, TaskData, identity_of
from bertjax.runs.fine_tuning.model import Predictor, predicting_next
from bertjax.runs.fine_tuning.recipe import TaskRecipe, Trial
from bertjax.runs.run import Run
from bertjax.tasks.buckets import Epochs, choose_lengths, choose_rows
from bertjax.tasks.task import Outputs
from bertjax.tasks.together import Together
from bertjax.training.experiment import Experiment
from bertjax.training.loop import Intervals, Phase, RunPlan, Trainer
from bertjax.training.model import Model, Params, merged
from bertjax.training.optimizers.optimizer import make_optimizer
from bertjax.training.optimizers.schedule import make_schedule
from bertjax.training.sharding.placement import HostBatch, make_placement, microbatch_tokens
from bertjax.training.state import logical_axes


class Trials:
    """Trains the trials of one fine-tuning, and predicts with their models.

    `buckets` are the lengths of training batches; `experiment` is what all trials have in common.
    """

    def __init__(
        self,
        recipe: TaskRecipe,
        data: Mapping[str, TaskData],
        model: Model,
        *,
        max_length: int,
        flops_per_token: Callable[[int], float],
        pad_id: int = 0,
        start: Callable[[Params], Params] | None = None,
        frozen: Mapping[str, Params] = MappingProxyType({}),
        penalty: float = 0.0,
    ):
        """Compiles nothing yet.

        Args:
          model: with a part for each task.
          max_length: no batch is longer.
          flops_per_token: sequence length -> useful operations of a training step for each token.
          start: random parameters -> those that training starts from.
          frozen: the parameters that are not trained, on the devices.
          penalty: the weight of the model's output "penalty" in the loss; 0: it has none.

        Raises:
          InputError: the config divides batches into microbatches, and the task needs them whole.
        """
        self._objectives = {
            name: TaskObjective(task.family.objective, Settings(**task.objective_settings))
            for name, task in recipe.tasks.items()
        }
        self._full_batch = any(each.row.needs_full_batch for each in self._objectives.values())
        if self._full_batch and recipe.accumulate > 1:
            raise InputError(
                f"config.accumulate={recipe.accumulate}: the task compares the rows of a batch "
                "with each other, so that it cannot take the batch in microbatches: set it to 0"
            )
        self._recipe, self._data = recipe, data
        self._max_length, self._pad_id = max_length, pad_id
        self._flops_per_token, self._start = flops_per_token, start or (lambda params: params)
        placement = make_placement(recipe.mesh, recipe.layout)
        trained = predicting_next(model) if recipe.lm_weight else model
        added = {"lm_loss": recipe.lm_weight, "penalty": penalty}
        added = {name: weight for name, weight in added.items() if weight}
        self.experiment = Experiment(
            model=trained,
            objective=FineTuning(self._objectives, added),
            optimizer=make_optimizer(recipe.optimizer, partial(logical_axes, trained.init)),
            placement=placement,
            frozen=dict(frozen),
        )
        self._trainer = Trainer(self.experiment)
        how = dict(pad_id=pad_id, batch_tokens=recipe.batch_tokens)
        self._predictors = {
            name: Predictor(model, objective.row, placement, **how, part=name)
            for name, objective in self._objectives.items()
        }
        self._lengths = np.concatenate([each.train.lengths for each in data.values()])
        self.buckets = choose_lengths(self._lengths, max_length, recipe.buckets)

    @property
    def abstract_params(self) -> Params:
        """Shapes and shardings of the parameters that are trained."""
        return self.experiment.state.params

    @property
    def parameters(self) -> dict[str, int]:
        """How many are trained of each branch of each task, as TASK/BRANCH, or BRANCH."""
        params = self.abstract_params
        tasks = {"": params} if "" in self._objectives else params
        return {
            array_name(task, branch): sum(leaf.size for leaf in jax.tree.leaves(tree))
            for task, branches in tasks.items()
            for branch, tree in branches.items()
        }

    def epochs(self, trial: Trial, task: str = "") -> Epochs:
        """The batches of a trial, of one task. None is larger than the task's training data."""
        lengths = self._data[task].train.lengths
        size = min(trial.batch_size, len(lengths))
        return Epochs(lengths, self.buckets, size, trial.epochs, trial.seed, self._rows(trial))

    def _rows(self, trial: Trial) -> int:
        """The rows of each microbatch, which are the same for all tasks."""
        sizes = [len(each.train) for each in self._data.values()]
        size = min(trial.batch_size, max(sizes))
        if self._full_batch:
            return size
        if self._recipe.accumulate:
            return trial.batch_size // self._recipe.accumulate
        choices = max(each.train.choices for each in self._data.values())
        most, cost = (tokens / choices for tokens in microbatch_tokens())
        return choose_rows(
            self._lengths,
            self.buckets,
            size,
            devices=self.experiment.placement.ways,
            most=most,
            cost=cost,
        )

    def together(self, trial: Trial) -> Together:
        """The order of the tasks' batches."""
        sizes = {name: self.epochs(trial, name).steps_per_epoch for name in self._data}
        return Together(sizes, self._recipe.share_power, trial.seed)

    def train(self, trial: Trial, folder: Path) -> tuple[Params, bool]:
        """Trains from the newest checkpoint in a folder, or from `start`; raises `NonFiniteLoss`.

        Returns:
          The parameters, on the devices; and whether it is complete: False after a signal.
        """
        state, complete = self.run(trial, folder).train()
        return merged(state.params, self.experiment.frozen), complete

    def run(self, trial: Trial, folder: Path) -> Run:
        """The run of a trial."""
        recipe, phase = self._recipe, self._phase(trial)
        optimizer = dataclasses.replace(recipe.optimizer, learning_rate=trial.learning_rate)
        plan = RunPlan(
            phases=[phase],
            schedule=make_schedule(optimizer, phase.last_step),
            seed=trial.seed,
            intervals=Intervals(
                log=recipe.intervals.log,
                checkpoint=recipe.intervals.checkpoint,
                evaluate=phase.last_step,
                eval_batches=1,
            ),
            metadata={"data": identity_of(self._data)},
        )
        return Run(
            trainer=self._trainer,
            plan=plan,
            folder=folder,
            begin=lambda: (self.experiment.initial_state(trial.seed).started(self._start), {}),
            config={**recipe.config_dict, **dataclasses.asdict(trial)},
            tracker=recipe.tracker,
        )

    def _phase(self, trial: Trial) -> Phase:
        together = self.together(trial)
        epochs = {name: self.epochs(trial, name) for name in self._data}
        rows = self._rows(trial)

        def microbatches(number: int) -> list[Callable[[slice], HostBatch]]:
            name, of_task = together.locate(number)
            return [
                partial(rows_of, name, *examples) for examples in epochs[name].microbatches(of_task)
            ]

        def rows_of(name: str, examples: np.ndarray, length: int, held: slice) -> HostBatch:
            fields, encoded = self._objectives[name].fields, self._data[name].train
            count = held.stop - held.start
            arrays = encoded.batch(fields, examples[held], count, length, self._pad_id)
            return {array_name(name, key): array for key, array in arrays.items()}

        def mean(of_task: Callable[[str], float]) -> float:
            drawn = together.drawn.items()
            return sum(n * of_task(name) for name, n in drawn) / together.steps_per_epoch

        tokens = round(mean(lambda name: epochs[name].tokens * self._data[name].train.choices))
        length = round(mean(lambda name: epochs[name].tokens / epochs[name].batch_size))
        return Phase(
            name="fine-tuning",
            first_step=0,
            last_step=trial.epochs * together.steps_per_epoch,
            microbatches=microbatches,
            held_out=None,
            rows=rows,
            accumulate=1,
            tokens=tokens,
            flops=tokens * self._flops_per_token(length),
        )

    def outputs(self, params: Params, split: Split, what: str, task: str = "") -> Outputs:
        """The model's outputs for a split of a task, on all hosts."""
        buckets, lengths = self.buckets, split.encoded.lengths
        longest = lengths[lengths.argmax()]
        if longest > buckets[-1]:
            buckets += choose_lengths(longest[None], self._max_length, most=1)
        return self._predictors[task].outputs(params, split.encoded, buckets, what)
