"""Milliseconds of a training step on one TPU chip, next to what the compile report says of it.

  python tests/benchmarks/tpu_step.py --output=tpu_step.json

The steps are those of configs/pretrain_base_16.py, with the sequences that one of its 16 chips has,
and of configs/pretrain_modern_base_16.py, with half of those that a chip computes at once. First
come those with attention by kernels. Each step is first compiled for a described chip of the same
kind, for both yardsticks of launch/compile_check.py; then it runs. On another device than such a
TPU it only runs. Each measurement is a process of its own, because only one can hold a TPU.
"""

import argparse
import importlib
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tables
from report import started

from bertjax.base.files import write_json
from bertjax.programs import compile_check
from bertjax.runs.assembly import make_experiment
from bertjax.runs.recipe import Recipe
from bertjax.training.loop import Trainer
from bertjax.training.step import means

SHAPES = (  # config, length, sequences, attention
    ("base_16", 512, 16, "kernel"),
    ("modern_base_16", 1024, 8, "kernel"),
    ("base_16", 512, 16, "einsum"),
    ("base_16", 128, 64, "einsum"),
)
ROUNDS = 5
# The names of chips with one device each, in JAX and as a slice of one.
SLICES = {
    **{"TPU v4": "v4:1x1x1", "TPU v5": "v5p:1x1x1", "TPU v5p": "v5p:1x1x1"},
    **{"TPU v5 lite": "v5e:1x1", "TPU v5e": "v5e:1x1"},
    **{"TPU v6 lite": "v6e:1x1", "TPU v6e": "v6e:1x1"},
}


def config_of(name: str, length: int, rows: int, attention: str, size: str) -> dict[str, Any]:
    """One chip's share of the config configs/pretrain_NAME.py, with a model of this size."""
    config = importlib.import_module(f"configs.pretrain_{name}").get_config()
    config.layout, config.corpus = "data", ""
    config.mesh.update(data=1, model=1)
    config.model.update(size=size, attention=attention)
    config.phase_1.update(share=1.0, length=length, batch_size=rows, accumulate=1)
    config.phase_2.update(share=0.0)
    return config.to_dict()


def alone(function: Callable, *arguments: Any) -> Any:
    """Calls a function in a new process, which ends before the result is returned."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def device_kind() -> str:
    """The kind of the first device."""
    return jax.devices()[0].device_kind


def yardsticks(config: dict[str, Any], topology: str) -> dict[str, float]:
    """The seconds of the step by both."""
    (report,) = compile_check.run(config, topology)
    return {name: times.seconds for name, times in report.yardsticks.items()}


def batch_of(recipe: Recipe, vocabulary: int) -> dict[str, np.ndarray]:
    """Random tokens in whole sequences, 15 % of them to be predicted."""
    (_, phase, _), *_ = recipe.steps()
    predicted = recipe.example_spec(phase, "", phase.batch_size).predicted
    shapes = recipe.objective.shapes(B=phase.batch_size, S=phase.length, P=predicted)
    most = dict.fromkeys(("input_ids", "masked_lm_ids"), vocabulary)
    most["masked_lm_positions"] = phase.length
    rng, batch = np.random.default_rng(0), {}
    for name, shape in shapes.items():
        values = rng.integers(0, most.get(name, 2), shape.shape)
        whole = name in ("input_mask", "masked_lm_weights")
        batch[name] = (np.ones_like(values) if whole else values).astype(shape.dtype)
    return batch


def measure(config: dict[str, Any], steps: int) -> dict[str, Any]:
    """Compiles a step, and times it: milliseconds of a step over the rounds, and the last loss."""
    recipe = Recipe.from_config(config)
    spec = recipe.spec()
    experiment = make_experiment(recipe, spec, jax.devices()[:1])
    state, placement = experiment.initial_state(0), experiment.placement
    batch = jax.device_put(batch_of(recipe, spec.vocab_size), placement.batch)
    update, rate, times = Trainer(experiment).step(1), recipe.schedule()(0), []
    for count in (3, *[steps] * ROUNDS):  # the first compiles
        begin = time.perf_counter()
        for _ in range(count):
            with placement.active():
                state, sums = update(state, [batch], rate, 0)
        loss = means(jax.device_get(sums))["loss"]
        times.append(1e3 * (time.perf_counter() - begin) / count)
    measured = times[1:]
    spread = {"minimum": min(measured), "maximum": max(measured)}
    return {"milliseconds": {"median": statistics.median(measured)} | spread, "loss": loss}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", help="of the model")
    parser.add_argument("--steps", type=int, default=20, help="of each of the five rounds")
    parser.add_argument("--sequences", type=int, help="of a step, in place of those above")
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    arguments = parser.parse_args()
    device = alone(device_kind)
    topology = SLICES.get(device)
    facts = {"device": device, "size": arguments.size, "steps": arguments.steps}
    report = started(arguments.output, ("jax",), **facts, rows=[])
    for name, length, sequences, attention in SHAPES[len(report["rows"]) :]:
        shape = (name, length, arguments.sequences or sequences, attention)
        config = config_of(*shape, arguments.size)
        row = dict(zip(("config", "length", "rows", "attention"), shape, strict=True))
        row |= alone(yardsticks, config, topology) if topology else {}
        row |= alone(measure, config, arguments.steps)
        report["rows"].append(row)
        write_json(arguments.output, report)
    print(tables.table_of_tpu_steps(report))


if __name__ == "__main__":
    main()
