"""Estimates steps on TPU slices, and compares transformers' FlaxBertForPreTraining; uses no TPU.

  python tests/benchmarks/tpu_estimates.py --peer_python=PYTHON --output=FILE.json

PYTHON is the interpreter of an environment with transformers==4.48.3 (the last with Flax), flax,
optax, and jax[tpu] in the version that is installed here. The same libtpu compiles both steps, and
the same code (`bertjax.compile_report`) adds the times of all instructions by both yardsticks,
without collectives.

  bertjax       configs/pretrain_base_16.py or pretrain_large_64.py, with the given batch
  transformers  its model in bfloat16 over float32 parameters, a vocabulary product at every
                position, dropout 0.1, optax.adamw, data parallel

MFU counts the same useful operations for both: those with a head on the masked positions.
It needs the extra `tpu`. Shapes that the output already has are not compiled again.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

# config, slice, sequence length, sequences
SHAPES = (
    ("pretrain_base_16", "v5e:4x4", 512, 256),
    ("pretrain_base_16", "v5e:4x4", 128, 1024),
    ("pretrain_base_16", "v5e:4x4", 128, 256),
    ("pretrain_base_16", "v6e:4x4", 512, 256),
    ("pretrain_base_16", "v6e:4x4", 128, 256),
    ("pretrain_large_64", "v5e:8x8", 512, 256),
    ("pretrain_large_64", "v5e:8x8", 128, 256),
    ("pretrain_large_64", "v6e:8x8", 512, 256),
    ("pretrain_large_64", "v6e:8x8", 128, 256),
)
SIZES = {  # layers, width, heads
    "pretrain_base_16": (12, 768, 12),
    "pretrain_large_64": (24, 1024, 16),
}


def bertjax_step(name: str, topology: str, length: int, rows: int) -> dict:
    """The report of `launch/compile_check.py` for one phase of this shape."""
    from bertjax.programs import compile_check

    config = importlib.import_module(f"configs.{name}").get_config()
    config.phase_1.update(share=1.0, length=length, batch_size=rows)
    config.phase_2.update(share=0.0)
    (report,) = compile_check.run(config, topology)
    return report.as_dict()


def transformers_step(python: str, shape: tuple, flops: float) -> dict:
    """The same report, made from what `compile_peer` writes in the other environment."""
    from bertjax.compile_report import bundles
    from bertjax.compile_report.program import Program
    from bertjax.compile_report.report import Step, report_of
    from bertjax.compile_report.topology import describe
    from bertjax.models.encoders.presets import SCOPES

    name, topology, length, rows = shape
    with tempfile.TemporaryDirectory() as folder:
        arguments = [name, topology, str(length), str(rows), folder]
        (dumps := Path(folder, "bundles")).mkdir()
        environment = os.environ | {"LIBTPU_INIT_ARGS": bundles.flags(dumps)}
        subprocess.run([python, __file__, "--peer", *arguments], check=True, env=environment)
        dumped = bundles.dumped(dumps, rounds={})
        text = Path(folder, "step.hlo").read_text(encoding="utf-8")
        memory = json.loads(Path(folder, "memory.json").read_text(encoding="utf-8"))
    step = Step(length=length, batch_size=rows, accumulate=1, steps=0, flops=flops)
    return report_of(Program(text), dumped, step, describe(topology), SCOPES, *memory).as_dict()


def compile_peer(name: str, topology: str, length: str, rows: str, folder: str) -> None:
    """Runs in the other environment: writes the compiled text and its bytes of memory."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from transformers import BertConfig, FlaxBertForPreTraining

    layers, width, heads = SIZES[name]
    sizes = dict(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads)
    config = BertConfig(intermediate_size=4 * width, **sizes)
    model = FlaxBertForPreTraining(config, dtype=jnp.bfloat16, _do_init=False)
    optimizer = optax.adamw(1e-4, weight_decay=0.01)

    def loss(params, batch, key):
        outputs = model(
            batch["input_ids"],
            attention_mask=batch["attention_mask"],
            token_type_ids=batch["token_type_ids"],
            params=params,
            dropout_rng=key,
            train=True,
        )
        of_tokens = optax.softmax_cross_entropy_with_integer_labels(
            outputs.prediction_logits.astype(jnp.float32), jnp.maximum(batch["labels"], 0)
        )
        chosen = batch["labels"] >= 0
        of_pairs = optax.softmax_cross_entropy_with_integer_labels(
            outputs.seq_relationship_logits.astype(jnp.float32), batch["next_sentence_label"]
        )
        return (of_tokens * chosen).sum() / chosen.sum() + of_pairs.mean()

    def step(params, state, batch, seed):
        value, gradient = jax.value_and_grad(loss)(params, batch, jax.random.key(seed))
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value

    found = topologies.get_topology_desc(topology_name=topology, platform="tpu")
    mesh = Mesh(np.array(found.devices), ("data",))
    whole, split = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))

    def shaped(tree, sharding):
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
        )

    params = jax.eval_shape(lambda key: model.init_weights(key, (1, 8)), jax.random.key(0))
    state = jax.eval_shape(optimizer.init, params)
    tokens = jax.ShapeDtypeStruct((int(rows), int(length)), jnp.int32)
    names = ("input_ids", "attention_mask", "token_type_ids", "labels")
    batch = dict.fromkeys(names, tokens)
    batch["next_sentence_label"] = jax.ShapeDtypeStruct((int(rows),), jnp.int32)
    compiled = (
        jax.jit(step, donate_argnums=(0, 1))
        .lower(
            *(shaped(tree, whole) for tree in (params, state)),
            shaped(batch, split),
            jax.ShapeDtypeStruct((), jnp.int32, sharding=whole),
        )
        .compile()
    )
    memory = compiled.memory_analysis()
    sizes = memory.argument_size_in_bytes, memory.temp_size_in_bytes
    Path(folder, "memory.json").write_text(json.dumps(sizes), encoding="utf-8")
    Path(folder, "step.hlo").write_text(compiled.as_text(), encoding="utf-8")


def table(rows: list[dict]) -> str:
    """The results as a Markdown table."""
    titles = ("config", "slice", "length", "sequences", "bertjax", "transformers", "")
    lines = [titles, ["---"] * len(titles)]
    for row in rows:
        result, reference = row["bertjax"], row["transformers"]
        cells = (
            "; ".join(
                f"{1e3 * way[by]['seconds']:.1f} ms by {by}, MFU {way[by]['mfu']:.1%}"
                for by in ("estimate", "count")
            )
            + f"; {(way['arguments'] + way['temporaries']) / 2**30:.1f} GiB"
            for way in (result, reference)
        )
        *shape, length, sequences = row["shape"]
        ratios = (
            f"{reference[by]['seconds'] / result[by]['seconds']:.2f}x"
            for by in ("estimate", "count")
        )
        lines.append((*shape, str(length), str(sequences), *cells, ", ".join(ratios)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer_python", required=True)
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    parser.add_argument("--shapes", default="", help="numbers of SHAPES, from 0; default: all")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from bertjax.base.files import write_json

    report = {"versions": {name: version(name) for name in ("jax", "libtpu")}, "rows": []}
    if arguments.output.exists():
        report = json.loads(arguments.output.read_text(encoding="utf-8"))
    chosen = [SHAPES[int(n)] for n in arguments.shapes.split(",") if n] or SHAPES
    for shape in chosen:
        if any(row["shape"] == list(shape) for row in report["rows"]):
            continue
        result = bertjax_step(*shape)
        reference = transformers_step(arguments.peer_python, shape, result["step"]["flops"])
        report["rows"].append({"shape": list(shape), "bertjax": result, "transformers": reference})
        write_json(arguments.output, report)
    print(table(report["rows"]))


if __name__ == "__main__":
    for name in ("TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"):
        os.environ[name] = "1"
    os.environ["JAX_PLATFORMS"] = "cpu"
    if sys.argv[1:2] == ["--peer"]:
        compile_peer(*sys.argv[2:])
    else:
        main()
