"""The hyperparameters of an optimizer and of its schedule."""

import dataclasses

from bertjax.base.limits import CountOrNone, Positive, Rate, check_limits

ADAMW, LAMB, STABLE_ADAMW, MUON = "adamw", "lamb", "stable_adamw", "muon"
NAMES = (ADAMW, LAMB, STABLE_ADAMW, MUON)
PER_TENSOR = (LAMB, STABLE_ADAMW)  # they adapt the rate of each tensor

LINEAR, WSD = "linear", "wsd"
SCHEDULES = (LINEAR, WSD)


@dataclasses.dataclass(frozen=True)
class OptimizerSpec:
    """Hyperparameters; the defaults are section A.2's.

    Attributes:
      name: "adamw"; "lamb" (arXiv 1904.00962), which normalizes each tensor's update;
        "stable_adamw" (arXiv 2304.13013), which cuts each tensor's update; or "muon" (arXiv
        2502.16982), which orthogonalizes the updates of the layers' matrices, and is AdamW for
        all other parameters.
      learning_rate: the peak.
      schedule: after the warm-up, "linear" falls to 0 until the run's end. "wsd" (warm-up, stable,
        decay) stays at the peak, and falls to 0 in the last `decay_steps` updates.
      warmup_steps: updates of linear warm-up.
      warmup_proportion: in place of `warmup_steps`, the share of the run's updates.
      decay_steps: the updates in which "wsd" falls to 0; 0: the rate never falls.
      beta1, beta2, epsilon: Adam's parameters.
      weight_decay: an update subtracts the rate times this from a weight, as a share of it. The
        scales of norms and biases do not decay, except XLNet's biases of queries.
      clip_norm: the gradient's global norm is cut to this. stable_adamw does not clip.
      bias_correction: False for the reference's form of Adam; stable_adamw is defined with it.
    """

    name: str = ADAMW
    learning_rate: Positive = 1e-4
    schedule: str = LINEAR
    warmup_steps: CountOrNone = 10_000
    warmup_proportion: Rate = 0.0
    decay_steps: CountOrNone = 0
    beta1: Rate = 0.9
    beta2: Rate = 0.999
    epsilon: Positive = 1e-6
    weight_decay: Rate = 0.01
    clip_norm: Positive = 1.0
    bias_correction: bool = True

    def __post_init__(self):
        check_limits(self, name=NAMES, schedule=SCHEDULES)
        if self.warmup_steps and self.warmup_proportion:
            raise ValueError(
                f"warmup_proportion={self.warmup_proportion}: set it to 0, or "
                f"warmup_steps={self.warmup_steps} to 0"
            )
        if self.decay_steps and self.schedule != WSD:
            raise ValueError(
                f"decay_steps={self.decay_steps}: needs schedule={WSD!r}, but the "
                f"schedule is {self.schedule!r}: set it to 0, or change the schedule"
            )
        if self.name == STABLE_ADAMW and not self.bias_correction:
            raise ValueError(
                f"bias_correction=False: {STABLE_ADAMW} is defined with corrected "
                "moments: set it to True"
            )

    def warmup_of(self, total_steps: int) -> int:
        """The updates of warm-up in a run of `total_steps`."""
        return self.warmup_steps or int(self.warmup_proportion * total_steps)
