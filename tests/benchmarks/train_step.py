"""Sequences a second of the training step on a CPU, next to transformers (PyTorch).

  python tests/benchmarks/train_step.py [--layers=6 --width=384 ...] [--output=FILE.json]

The ways, each in its own process on all cores, run their rounds alternately while the others
sleep:

  bertjax      the package's own step, as launch/pretrain.py compiles it
  shipped      transformers' BertForPreTraining: a vocabulary product at every position
  gathered     the same, with its head on the masked positions only, as in bertjax

All use the same shapes and batch, dropout 0.1 everywhere, clipping at 1.0 and AdamW, and compute in
float32. A round is the mean of a few steps. bertjax has the variables of "Memory
and compilation" in docs/pretraining.md. On a GPU: gpu.py. It needs the extra `peers`.
"""

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

Step = Callable[[], Any]  # one update; its loss, which may still be computed
WAYS = ("bertjax", "shipped", "gathered")
LEARNING_RATE, WEIGHT_DECAY, CLIP_NORM = 1e-4, 0.01, 1.0
MALLOC = dict(MALLOC_ARENA_MAX="1", MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(2**30))


@dataclasses.dataclass(frozen=True)
class Shapes:
    """The model and the batch; dropout is 0.1 everywhere, by default on both sides."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    batch_size: int
    length: int
    masked: int

    def batch(self) -> dict[str, np.ndarray]:
        """Makes random ids without padding, with exactly `masked` predictions a sequence."""
        rng = np.random.default_rng(0)
        rows, length, masked = self.batch_size, self.length, self.masked
        places = rng.permuted(np.tile(np.arange(length), (rows, 1)), axis=1)[:, :masked]
        return {
            "input_ids": rng.integers(self.vocabulary, size=(rows, length), dtype=np.int32),
            "input_mask": np.ones((rows, length), np.int32),
            "token_type_ids": np.tile(np.arange(length, dtype=np.int32) * 2 // length, (rows, 1)),
            "masked_lm_positions": np.sort(places).astype(np.int32),
            "masked_lm_ids": rng.integers(self.vocabulary, size=(rows, masked), dtype=np.int32),
            "masked_lm_weights": np.ones((rows, masked), np.float32),
            "next_sentence_labels": rng.integers(2, size=rows, dtype=np.int32),
        }


def bertjax_spec(shapes: Shapes, **fields: Any) -> Any:
    """The BERT of these shapes."""
    from bertjax.models.encoders.presets import BertSpec

    return BertSpec(
        vocab_size=shapes.vocabulary,
        hidden_size=shapes.width,
        num_hidden_layers=shapes.layers,
        num_attention_heads=shapes.heads,
        intermediate_size=4 * shapes.width,
        max_position_embeddings=max(512, shapes.length),
        **fields,
    )


def bertjax_experiment(spec: Any, objective: Any) -> Any:
    """The package's experiment on one device."""
    from bertjax.training.experiment import Experiment
    from bertjax.training.optimizers.optimizer import make_optimizer
    from bertjax.training.optimizers.spec import OptimizerSpec
    from bertjax.training.sharding.placement import data_parallel

    adamw = OptimizerSpec(
        learning_rate=LEARNING_RATE, weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM
    )
    optimizer = make_optimizer(adamw)
    return Experiment(objective.model(spec), objective, optimizer, data_parallel())


def bertjax_step(spec: Any, objective: Any, batch: dict[str, np.ndarray]) -> Step:
    """The package's step."""
    import jax

    from bertjax.training.loop import Trainer

    experiment = bertjax_experiment(spec, objective)
    state, update = experiment.initial_state(0), Trainer(experiment).step(1)
    placement = experiment.placement
    arrays = jax.device_put(batch, placement.batch)

    def step() -> jax.Array:
        nonlocal state
        with placement.active():
            state, sums = update(state, [arrays], LEARNING_RATE, 0)
        return sums["loss"][0]

    return step


def torch_bert(shapes: Shapes, **fields: Any) -> Any:
    """transformers' BERT of these shapes, with the heads of pre-training."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=shapes.vocabulary,
        hidden_size=shapes.width,
        num_hidden_layers=shapes.layers,
        num_attention_heads=shapes.heads,
        intermediate_size=4 * shapes.width,
        max_position_embeddings=max(512, shapes.length),
        **fields,
    )
    return transformers.BertForPreTraining(config)


def torch_step(model: Any, compute_loss: Callable[[], Any]) -> Step:
    """An update; on a GPU by autocast to bfloat16, with the fused AdamW."""
    import torch

    device = next(model.parameters()).device.type
    on_gpu = device == "cuda"
    # transformers' own rule: no decay of biases and LayerNorm.
    decayed = [p for p in model.parameters() if p.ndim > 1]
    undecayed = [p for p in model.parameters() if p.ndim == 1]
    groups = [{"params": decayed}, {"params": undecayed, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(
        groups, LEARNING_RATE, eps=1e-6, weight_decay=WEIGHT_DECAY, fused=on_gpu
    )

    def step() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=on_gpu):
            loss = compute_loss()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def torch_inputs(batch: dict[str, np.ndarray], device: str) -> dict[str, Any]:
    """The arguments of transformers' BERT: its labels are -100 where nothing is masked."""
    import torch

    tensors = {name: torch.from_numpy(array).long().to(device) for name, array in batch.items()}
    names = {"input_ids": "input_ids", "attention_mask": "input_mask"}
    names |= {"token_type_ids": "token_type_ids", "next_sentence_label": "next_sentence_labels"}
    inputs = {
        reference: tensors[result] for reference, result in names.items() if result in tensors
    }
    labels = torch.full_like(inputs["input_ids"], -100)
    positions, ids = (tensors[f"masked_lm_{name}"] for name in ("positions", "ids"))
    return inputs | {"labels": labels.scatter(1, positions, ids)}


def transformers_step(shapes: Shapes, way: str) -> Step:
    """BertForPreTraining as published, or with the head on the masked positions only."""
    import torch

    torch.manual_seed(0)
    model, batch = torch_bert(shapes).train(), shapes.batch()
    inputs = torch_inputs(batch, "cpu")
    positions, masked_ids = (
        torch.from_numpy(batch[f"masked_lm_{name}"]).long() for name in ("positions", "ids")
    )
    unlabelled = {name: x for name, x in inputs.items() if not name.endswith(("labels", "label"))}

    def loss_gathered() -> Any:
        sequence, pooled = model.bert(**unlabelled, return_dict=False)
        width = sequence.shape[-1]
        hidden = sequence.gather(1, positions[..., None].expand(-1, -1, width))
        logits, next_logits = model.cls(hidden, pooled)
        cross_entropy = torch.nn.functional.cross_entropy
        return cross_entropy(logits.flatten(0, 1), masked_ids.flatten()) + cross_entropy(
            next_logits, inputs["next_sentence_label"]
        )

    return torch_step(model, loss_gathered if way == "gathered" else lambda: model(**inputs).loss)


def serve(connection: Connection, way: str, shapes: Shapes) -> None:
    """Runs a worker: for each number of steps it sends (wall, processor) seconds and the loss."""
    if way == "bertjax":
        os.environ["JAX_PLATFORMS"] = "cpu"
        from bertjax.objectives.masked_lm import MaskedLMNextSentence

        step = bertjax_step(bertjax_spec(shapes), MaskedLMNextSentence(), shapes.batch())
    else:
        step = transformers_step(shapes, way)
    while steps := connection.recv():
        wall, processor = time.perf_counter(), time.process_time()
        for _ in range(steps):
            loss = float(step())
        seconds = (time.perf_counter() - wall) / steps, (time.process_time() - processor) / steps
        connection.send((*seconds, loss))


@contextlib.contextmanager
def worker(way: str, shapes: Shapes) -> Iterator[Connection]:
    """Starts a separate process, so that thread pools do not disturb each other."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(there, way, shapes), daemon=True)
    with mock.patch.dict(os.environ, MALLOC if way == "bertjax" else {}):
        process.start()
    there.close()  # if the worker dies, this process gets an EOFError instead of waiting
    try:
        yield here
    finally:
        with contextlib.suppress(BrokenPipeError):
            here.send(0)
        process.join()


def measure(shapes: Shapes, rounds: int, steps: int) -> dict[str, list[tuple[float, float, float]]]:
    """Returns {way: [(wall, processor) seconds of a step and the last loss, for every round]}."""
    with contextlib.ExitStack() as stack:
        workers = {way: stack.enter_context(worker(way, shapes)) for way in WAYS}
        results: dict[str, list] = {way: [] for way in WAYS}
        for number in range(rounds + 1):
            for way, connection in workers.items():
                connection.send(steps)
                result = connection.recv()
                if number:  # the first compiles and warms up
                    results[way].append(result)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = {"--layers": 6, "--width": 384, "--heads": 12, "--vocabulary": 30_522}
    sizes |= {"--batch_size": 16, "--length": 128, "--masked": 20}
    for flag, default in sizes.items():
        parser.add_argument(flag, type=int, default=default)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3, help="of a round")
    parser.add_argument("--output", type=Path, help="a JSON file")
    arguments = parser.parse_args()
    names = (field.name for field in dataclasses.fields(Shapes))
    shapes = Shapes(**{name: getattr(arguments, name) for name in names})

    load = os.getloadavg()[0]
    results = measure(shapes, arguments.rounds, arguments.steps)
    cores = len(os.sched_getaffinity(0))
    table = {}
    for way, rows in results.items():
        wall, processor, losses = zip(*rows, strict=True)
        table[way] = {
            "milliseconds": {
                "minimum": min(wall) * 1e3,
                "median": statistics.median(wall) * 1e3,
                "maximum": max(wall) * 1e3,
            },
            "processor_milliseconds": min(processor) * 1e3,
            "sequences_per_second": shapes.batch_size / statistics.median(wall),
            "ratio": statistics.median(
                reference[0] / result[0]
                for reference, result in zip(rows, results["bertjax"], strict=True)
            ),
            "last_loss": losses[-1],
        }
    print(
        f"{shapes.layers} layers of {shapes.width}, {shapes.batch_size} x {shapes.length}, "
        f"{shapes.masked} masked, float32, {cores} cores, load before {load:.1f}; "
        f"{arguments.rounds} rounds of {arguments.steps} steps\n"
        "milliseconds a step, wall and (least) processor time; sequences/s of the median; the "
        "median of the rounds' ratios to bertjax\n\n"
        f"{'way':10}{'min':>8}{'median':>8}{'max':>8}{'processor':>11}{'seq/s':>8}{'ratio':>7}"
    )
    for way, row in table.items():
        spread = "".join(f"{value:8.1f}" for value in row["milliseconds"].values())
        print(
            f"{way:10}{spread}{row['processor_milliseconds']:11.0f}"
            f"{row['sequences_per_second']:8.1f}{row['ratio']:7.2f}"
        )
    if arguments.output:
        facts = {
            "shapes": dataclasses.asdict(shapes),
            "cores": cores,
            "machine": platform.machine(),
            "versions": {name: version(name) for name in ("jax", "torch", "transformers")},
            "rounds": arguments.rounds,
            "steps": arguments.steps,
            "load": load,
        }
        arguments.output.write_text(json.dumps(facts | {"ways": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
