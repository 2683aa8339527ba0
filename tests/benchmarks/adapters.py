"""LoRA and frozen layers next to whole fine-tuning: scores, seconds, what is saved, memory.

  python tests/benchmarks/adapters.py --data=DATA --weights=FOLDER --tasks=banking77 \\
    --ways=whole,lora,frozen --train=2000 --epochs=5 --seeds=3 --output=adapters.json

Tasks and `--train` are those of `finetune_labels.py`, and besides them those of GLUE, with
`--data=DATA` a folder that has glue/. `--weights` is in the form of transformers. `WAYS` says what
the ways are. Of each, the output has

  parameters   what is trained
  state        bytes of the parameters that are trained and of their moments: a checkpoint's arrays
  update       of an update of 32 rows of 32 tokens: operations by XLA, and the bytes of temporary
               arrays, on this machine's CPU
  saved        bytes of the best model's weights: all of them, or those of the folder for peft
  seeds        seconds of training, dev predictions and scores; the first includes compilation.
               With `--seeds=0`, nothing is trained
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import finetune
import finetune_labels
import jax

from bertjax.base.files import write_json
from bertjax.interop.peft import ADAPTER_FOLDER, ADAPTER_WEIGHTS
from bertjax.objectives.fine_tuning import TaskObjective
from bertjax.runs.fine_tuning.model import encoder_with_head
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.initialize import learned_branches
from bertjax.runs.source import open_model
from bertjax.tasks.glue import SETS
from bertjax.training.experiment import Experiment
from bertjax.training.loop import Trainer
from bertjax.training.optimizers.optimizer import make_optimizer
from bertjax.training.sharding.placement import data_parallel
from bertjax.training.subset import with_subset

_MATRICES = "attention|layer_[0-9]+/(intermediate|output)"
# What a way sets in the config. Small changes of many weights need larger rates.
WAYS: dict[str, dict[str, Any]] = {
    "whole": {"rate": 5e-4},
    "lora": {"rate": 5e-3, "adapter": dict(name="lora", rank=8, alpha=16.0, targets=_MATRICES)},
    "frozen": {"rate": 5e-4, "frozen": "embeddings|layer_[0-2]/"},
}


def config_of(task: str, way: str, arguments: argparse.Namespace) -> Any:
    """The recipe of a task, trained in one way."""
    arguments = argparse.Namespace(**vars(arguments) | {"rate": WAYS[way]["rate"]})
    arguments.seeds = max(1, arguments.seeds)
    if task in SETS:
        config = finetune.common_config(arguments)
        config.data = str(Path(arguments.data) / "glue")
        config.task = dict(kind="glue", name=task)
    else:
        config = finetune_labels.config_of(task, arguments)
    config.adapter.update(WAYS[way].get("adapter", {}))
    config.frozen = WAYS[way].get("frozen", "")
    return config


def costs(config: Any) -> dict[str, Any]:
    """What is trained, the state's size, and what an update takes; nothing is trained."""
    recipe = TaskRecipe.from_config(config)
    pretrained, family = open_model(recipe.init_from), recipe.task.family
    branches = learned_branches({"": pretrained})
    whole = encoder_with_head(family, recipe.spec(pretrained))
    model = with_subset(whole, recipe.adapter, recipe.frozen, branches)
    objective, optimizer = TaskObjective(family.objective), make_optimizer(recipe.optimizer)
    experiment = Experiment(model, objective, optimizer, data_parallel(jax.devices()[:1]))
    shapes = objective.shapes(B=32, S=32, C=len(family.classes))
    with jax.default_device(jax.devices()[0]):
        update = Trainer(experiment).lowered_step(shapes, 1).compile()
    size = lambda tree: sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))  # noqa: E731
    return {
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(experiment.state.params)),
        "state": size(experiment.state),
        "update": {
            "operations": update.cost_analysis()["flops"],
            "temporary_bytes": update.memory_analysis().temp_size_in_bytes,
        },
    }


def main() -> None:
    """Runs what the output does not have yet."""
    arguments = finetune.parsed(__doc__, WAYS)
    report = finetune.started(arguments, ("jax",))
    for task in arguments.tasks:
        for way in arguments.ways:
            how = {name: getattr(arguments, name) for name in ("train", "epochs", "layers")}
            how |= WAYS[way]
            result = report["tasks"].setdefault(task, {}).setdefault(way, {"how": how})
            if result["how"] != how:
                sys.exit(f"{arguments.output}: {task} was trained in another way: {result['how']}")
            config, run = config_of(task, way, arguments), arguments.work / f"{task}-{way}"
            if "state" not in result:
                result |= costs(config)
                write_json(arguments.output, report)
                print(json.dumps({task: {way: result}}), flush=True)
            if len(result.get("seeds", {})) >= arguments.seeds:
                continue
            result["seeds"] = finetune.bertjax_seeds(config, run)
            adapter = run / "model" / ADAPTER_FOLDER / ADAPTER_WEIGHTS
            saved = adapter if adapter.exists() else run / "model" / "model.safetensors"
            result["saved"] = saved.stat().st_size
            write_json(arguments.output, report)
            print(json.dumps({task: {way: result}}), flush=True)


if __name__ == "__main__":
    main()
