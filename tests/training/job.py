"""A job of one or several processes that trains a small BERT: `python job.py FOLDER STEPS`.

It writes the files of a run folder to FOLDER, and for each process `process_I.json`: how it ended,
and which rows of the first batch its devices held.
"""

import contextlib
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np

from bertjax.models.encoders.presets import BertSpec
from bertjax.objectives.masked_lm import MaskedLMNextSentence
from bertjax.training.checkpoint import Checkpoints
from bertjax.training.evaluation import HeldOut
from bertjax.training.experiment import Experiment
from bertjax.training.loop import Intervals, Phase, RunPlan, Trainer
from bertjax.training.metrics_log import MetricsLog
from bertjax.training.optimizers.optimizer import make_optimizer
from bertjax.training.optimizers.schedule import make_schedule
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.sharding.hosts import join_processes
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.placement import Placement, data_parallel, make_placement
from bertjax.training.state import TrainState

ROWS, LENGTH = 16, 11
SPEC = BertSpec(
    vocab_size=96,
    hidden_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=40,
    max_position_embeddings=LENGTH,
    initializer_range=0.1,
)
OBJECTIVE = MaskedLMNextSentence()
OPTIMIZER = OptimizerSpec(learning_rate=1e-3, warmup_steps=1)


def batch(number: int, rows: slice) -> dict[str, np.ndarray]:
    """Rows of batch `number`."""
    rng = np.random.default_rng(number)
    ids = rng.integers(1, 96, (ROWS, LENGTH))
    used = np.arange(3) < rng.integers(0, 4, (ROWS, 1))
    values = {
        "input_ids": ids,
        "input_mask": np.arange(LENGTH) < rng.integers(3, LENGTH + 1, (ROWS, 1)),
        "token_type_ids": ids % 2,
        "masked_lm_positions": np.arange(3) * used,
        "masked_lm_ids": ids[:, :3] * used,
        "masked_lm_weights": used,
        "next_sentence_labels": rng.integers(0, 2, ROWS),
    }
    fields = OBJECTIVE.fields
    return {name: values[name][rows].astype(field.dtype) for name, field in fields.items()}


def experiment(placement: Placement) -> Experiment:
    """What is trained."""
    return Experiment(
        OBJECTIVE.model(SPEC), OBJECTIVE, make_optimizer(OPTIMIZER), placement, rows=ROWS
    )


def run(folder: Path, steps: int, make=batch) -> tuple[TrainState, bool]:
    """Trains to step `steps`."""
    phase = Phase(
        name="phase 1",
        first_step=0,
        last_step=steps,
        microbatches=lambda number: [partial(make, number)],
        held_out=HeldOut(lambda number, rows: batch(10**6 + number, rows), ROWS),
        rows=ROWS,
        accumulate=2,
        tokens=ROWS * LENGTH,
        flops=1.0,
    )
    plan = RunPlan(
        phases=[phase],
        schedule=make_schedule(OPTIMIZER, 1000),
        seed=3,
        intervals=Intervals(log=2, evaluate=4, checkpoint=10**6, eval_batches=1),
        metadata={},
    )
    trainer = Trainer(experiment(make_placement(MeshSpec(data=4, model=2), "tensor")))
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        checkpoints = Checkpoints(folder / "checkpoints", keep=2)
        stack.enter_context(contextlib.closing(checkpoints))
        metrics_log = None
        if jax.process_index() == 0:
            metrics_log = stack.enter_context(contextlib.closing(MetricsLog(folder, 0)))
        return trainer.train(
            trainer.experiment.initial_state(5), plan, checkpoints, metrics_log, window={}
        )


def held(placement: Placement) -> dict[str, list]:
    """The rows of the first batch on this process's devices: [first row, rows] of each, by name."""
    sharded = placement.put(partial(batch, 0), ROWS)
    return {
        name: [
            [shard.index[0].start or 0, np.asarray(shard.data).tolist()]
            for shard in array.addressable_shards
        ]
        for name, array in sharded.items()
    }


def _stopped_at(step: int):
    """Makes batches; number `step` sends SIGHUP to one process, as if its ssh were lost."""

    def make(number, rows):
        if number == step and jax.process_index() == 0:
            os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.02)  # time for the processes to agree
        return batch(number, rows)

    return make


def main(folder: str, steps: str, stop: str = "") -> None:
    """Joins the other processes and runs."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, which a suite may run under, ignores it
    join_processes()
    make = _stopped_at(int(stop)) if stop else batch
    state, complete = run(Path(folder), int(steps), make)
    report = {
        "step": int(state.step),
        "complete": complete,
        "processes": jax.process_count(),
        "held": held(data_parallel()),
    }
    Path(folder, f"process_{jax.process_index()}.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
