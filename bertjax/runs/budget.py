"""The budget of a run: the updates that fit into a time on this machine, tokens, or operations."""

import re
from typing import NamedTuple, Self

import jax
import numpy as np
from jax.experimental import multihost_utils

from bertjax.training.loop import Phase, RunPlan, Trainer
from bertjax.training.pace import pace_of

_SECONDS = {"min": 60.0, "h": 3600.0}
_MOST_UPDATES = 2**31 - 1  # steps are int32 on the devices
_MOST = 1e38  # of any unit
TOKENS = "tokens"
_UNITS = (*_SECONDS, TOKENS, "flops")


class Budget(NamedTuple):
    """So many minutes, hours, tokens or useful floating-point operations."""

    amount: float
    unit: str

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads "20min", "3h", "80e6tokens" or "1e17flops"; raises ValueError for other texts."""
        found = re.fullmatch(rf"(\d*\.?\d+(?:e\d+)?) ?({'|'.join(_UNITS)})", text)
        if not found or not 0 < float(found[1]) < _MOST:
            raise ValueError(
                f"budget={text!r}: must be a number below {_MOST:g} and one of "
                f"{', '.join(_UNITS)}, as in '20min'"
            )
        return cls(float(found[1]), found[2])

    @property
    def seconds(self) -> float | None:
        """The time; None for tokens and operations."""
        return self.amount * _SECONDS[self.unit] if self.unit in _SECONDS else None

    def updates(self, trainer: Trainer, plan: RunPlan) -> int:
        """The most updates that it allows, if each phase keeps its share of them.

        Of time, only that of the updates counts, not compilation, evaluations and checkpoints. It
        is measured here, and is the same on all hosts.

        Raises:
          ValueError: it does not allow a single one, or more than a run can have.
        """
        amount, unit = (self.seconds, "s") if self.seconds else (self.amount, self.unit)
        cost = 0.0
        for phase in plan.phases:
            share = (phase.last_step - phase.first_step) / plan.last_step
            cost += share * self._cost(trainer, phase, plan)
        updates = int(min(amount / cost, _MOST_UPDATES))
        if unit == "s" and jax.process_count() > 1:
            updates = int(multihost_utils.broadcast_one_to_all(np.int32(updates)))
        if not updates:
            raise ValueError(f"budget={amount:g} {unit}: an update alone takes {cost:.3g} {unit}")
        if updates == _MOST_UPDATES:
            raise ValueError(
                f"budget={amount:g} {unit}: an update takes {cost:.3g} {unit}, and a run has less "
                f"than {_MOST_UPDATES:,} updates: give it less"
            )
        return updates

    def _cost(self, trainer: Trainer, phase: Phase, plan: RunPlan) -> float:
        """The cost of an update of a phase: seconds, tokens or operations."""
        if self.seconds:
            return pace_of(trainer, phase, plan.schedule(phase.first_step), plan.seed).seconds
        return phase.tokens if self.unit == TOKENS else phase.flops
