"""Compiles all phases of pre-training before the first step, and says whether they fit."""

from bertjax.base.errors import InputError
from bertjax.base.files import size_in_words
from bertjax.training.compilation import BEGINS, watched
from bertjax.training.loop import RunPlan, Trainer
from bertjax.training.memory import device_memory, less_memory, what_helps
from bertjax.training.sharding.hosts import say
from bertjax.training.state import TrainState

REMAT = "set --config.model.remat=layer"


def compile_phases(trainer: Trainer, plan: RunPlan, state: TrainState) -> None:
    """Compiles the update of each phase that is left, and prints what it needs of a device.

    `Trainer.train` uses what is compiled here. Nothing is done where a device does not say how much
    memory it has, as a CPU. Raises InputError for a phase that does not fit.
    """
    mesh = trainer.experiment.placement.mesh
    device = mesh.local_devices[0]
    limit = device_memory(device)
    if limit is None:
        return
    step = int(state.step)
    for phase in plan.phases:
        if step >= phase.last_step:
            continue
        say(f"{phase.name}: {BEGINS}")
        twice, key = phase.accumulate * 2, phase.name.replace(" ", "_")
        hints = [f"set --config.{key}.accumulate={twice} (then {2 * twice}, and so on)", REMAT]
        if mesh.size > 1:
            hints += ["set --config.layout=zero1, or fsdp"]
        with watched() as said, less_memory(*hints):
            needs = trainer.needs(state, plan, phase)
        needed, has = size_in_words(sum(needs)), f"{size_in_words(limit)} that JAX may use of"
        if sum(needs) > limit:
            raise InputError(
                f"{phase.name}: a step needs {needed}, more than the {has} {device.device_kind}: "
                + what_helps(*hints)
            )
        arguments, temporaries = map(size_in_words, needs)
        say(
            f"{phase.name}: {said()}; a step takes {needed} of the {has} {device.device_kind}: "
            f"{arguments} for the state and a batch, {temporaries} for the rest"
        )
