"""From BERT to ModernBERT, one change at a time: the masked-LM loss of equal training.

  python tests/benchmarks/modern_walk.py --corpus=quickstart/corpus --output=modern_walk.json

Each step of the walk keeps the changes before it. All runs see the same number of tokens, in
batches of 32 x 128, and are compared on the same masked text (bertjax/programs/masked_text.py), whatever the run was
trained on. Results in the output are not computed again, and a stopped run goes on, so the command
can be repeated with more seeds or steps.

Beside the JSON it writes a picture of the same name, and prints the table.
"""

import argparse
import copy
import statistics
import time
from pathlib import Path
from typing import Any

import tables
from report import begun

from bertjax.base import figures
from bertjax.base.files import write_json
from bertjax.config import paper_config

LENGTH, BATCH = 128, 32
BERT = dict(encoder="bert", size="tiny")
# The modern family with BERT's parts; the walk exchanges them.
FIRST = dict(
    encoder="modernbert",
    size="tiny",
    positions="learned",
    norm="after",
    feed_forward="plain",
    intermediate_size=512,
    global_attn_every_n_layers=1,
)
# (what is changed, the changes): each stands on those before it.
WALK: tuple[tuple[str, dict[str, Any]], ...] = (
    ("BERT", {"model": BERT}),
    ("no biases, no token types", {"model": FIRST}),
    ("rotary positions", {"model": {"positions": "rotary"}}),
    ("norm before", {"model": {"norm": "before"}}),
    ("gated feed-forward", {"model": {"feed_forward": "gated", "intermediate_size": 336}}),
    ("local layers", {"model": {"global_attn_every_n_layers": 3}}),
    ("packed documents", {"packed": True, "short_probability": 0.0}),
    ("30 % masked", {"phase_1": {"masking": {"rate": 0.3}}}),
    ("constant rate, then decay", {"optimizer": {"schedule": "wsd"}}),
    ("StableAdamW", {"optimizer": {"name": "stable_adamw"}}),
    ("Muon, rate 5e-3", {"optimizer": {"name": "muon", "learning_rate": 5e-3}}),
)


def config_of(step: int, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """The config of a step of the walk: the changes of all steps up to it."""
    config = paper_config()
    config.total_steps, config.seed, config.corpus = arguments.steps, seed, arguments.corpus
    config.objective = "masked_lm"
    config.phase_1.update(share=1.0, length=LENGTH, batch_size=BATCH)
    del config.phase_2
    config.model.update(compute_dtype="float32", vocab_multiple=1, max_position_embeddings=LENGTH)
    config.model.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config.optimizer.update(learning_rate=2e-3, warmup_steps=arguments.steps // 10)
    config.intervals.update(log=50, evaluate=arguments.steps, checkpoint=arguments.steps)
    config.eval_batch_size = BATCH
    merged = config.to_dict()
    for _, changes in WALK[: step + 1]:
        if "encoder" in changes.get("model", {}):
            merged["model"] = _computation(merged["model"])
        merged = _merged(merged, changes)
    if merged["optimizer"].get("schedule") == "wsd":
        merged["optimizer"]["decay_steps"] = arguments.steps // 5
    return merged


def _computation(model: dict[str, Any]) -> dict[str, Any]:
    """The fields of `config.model` that both families have, without those that the walk changes."""
    walked = {key for _, changes in WALK for key in changes.get("model", {})}
    return {key: value for key, value in model.items() if key not in walked}


def _merged(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A nested dict with changes; neither is changed itself."""
    merged = copy.deepcopy(tree)
    for key, value in changes.items():
        merged[key] = _merged(merged.get(key, {}), value) if isinstance(value, dict) else value
    return merged


def draw(results: dict[str, Any], path: Path) -> None:
    """A PNG: the loss after each change, a point for each seed."""
    with figures.png(path, figsize=(8, 0.5 + 0.4 * len(results))) as figure:
        plot = figure.subplots()
        for place, seeds in enumerate(results.values()):
            losses = [seed["mlm_loss"] for seed in seeds.values()]
            plot.plot(losses, [place] * len(losses), "o", color="tab:blue", alpha=0.5)
            plot.plot(statistics.mean(losses), place, "|", color="black", markersize=14)
        plot.set_yticks(range(len(results)), results)
        plot.invert_yaxis()
        plot.grid(axis="x", alpha=0.3)
        plot.set(xlabel="masked-LM loss on held-out text (nats)", title="BERT to ModernBERT")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", required=True, help="a corpus of launch/prepare_corpus.py")
    parser.add_argument("--steps", type=int, default=1000, help="updates of each run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    parser.add_argument("--work", type=Path, help="folder of the runs; default: beside the output")
    arguments = parser.parse_args()
    work = arguments.work or arguments.output.with_suffix("")
    from bertjax.programs.masked_text import evaluate

    from bertjax.programs import pretrain

    walk = {name: {} for name, _ in WALK}
    report = begun(arguments.output, ("jax",), steps=arguments.steps, walk=walk)
    for seed in range(arguments.seeds):
        for step, (name, _) in enumerate(WALK):
            if str(seed) in report["walk"][name]:
                continue
            run, begin = work / f"{step}-{seed}", time.perf_counter()
            if pretrain.run(config_of(step, seed, arguments), str(run)):
                return
            seconds = time.perf_counter() - begin
            found = evaluate(str(run), arguments.corpus) | {"seconds": seconds}
            report["walk"][name][str(seed)] = found
            write_json(arguments.output, report)
            print(f"{name}, seed {seed}: {found}", flush=True)
    print(tables.table_of_walk(report))
    draw(report["walk"], arguments.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
