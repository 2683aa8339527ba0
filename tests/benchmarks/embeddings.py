"""Vectors of texts after contrastive training on a CPU, next to sentence-transformers (PyTorch).

  python tests/benchmarks/embeddings.py --data=DATA --weights=FOLDER --layers=2 --seeds=3 \\
    --output=embeddings.json

DATA has nli/, babylm/glue/, glue/STS-B/, sts/, sick/ and retrieval/cranfield/. Training pairs are
the entailments of NLI (MultiNLI and XNLI in English) and the duplicates of Quora's questions. Both
ways begin with the same weights, of which `--layers=N` keeps the first N layers, and have the same
pairs, batches of the same size, loss (in-batch negatives, cosine, scale 20), rate, warm-up, AdamW,
dropout and length. Both models are scored by launch/evaluate.py, as folders of
sentence-transformers: STS 2012 to 2016, STS-B, SICK and Cranfield. The weights are scored before,
too, by the mean of the tokens.

  bertjax                launch/finetune.py in a process of its own
  sentence-transformers  its model, its loss and a plain loop in a process of its own; each batch is
                         padded to its longest text

Seconds are those of training alone, without compilation, loading and scores. Results in the output
are not computed again. `--ways=bertjax` leaves sentence-transformers out. It needs the extra
`peers`.
"""

import argparse
import json
import lzma
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from finetune import write_first_layers

REPOSITORY = Path(__file__).parents[2]
WAYS = ("bertjax", "sentence-transformers")
LENGTH, SCALE = 64, 20.0
SETS = {
    **{f"STS{year}": f"similarity:sts:{{data}}/sts/sts{year}.test.tsv.xz" for year in (2012, 2014)},
    **{f"STS{year}": f"similarity:sts:{{data}}/sts/sts{year}.test.tsv.xz" for year in (2015, 2016)},
    "STS-B": "similarity:benchmark:{data}/glue/STS-B/sts-test.tsv.xz",
    "SICK": "similarity:sick:{data}/sick/SICK_test_annotated.txt.xz",
    "Cranfield": "retrieval:{work}/cranfield",
}


def pairs(data: Path) -> Iterator[tuple[str, str]]:
    """Texts that belong together: entailments, and questions that ask the same."""
    for name in ("mnli_en", "xnli_en"):
        for row in _rows(data / "nli" / f"{name}.train.jsonl.xz"):
            if row["label"] in (0, "entailment"):
                yield row["premise"], row["hypothesis"]
    for row in _rows(data / "babylm" / "glue" / "qqp.train.jsonl.xz"):
        if row["label"] == 1:
            yield row["question1"], row["question2"]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def prepare(arguments: argparse.Namespace) -> None:
    """Writes the pairs, the weights with fewer layers, and Cranfield as a collection."""
    work = arguments.work
    (work / "pairs").mkdir(parents=True, exist_ok=True)
    found = [dict(query=a, passage=b) for a, b in pairs(arguments.data)]
    with open(work / "pairs" / "train.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in found)
    print(f"{len(found):,} pairs", flush=True)
    if not (work / "cranfield").exists():
        source = arguments.data / "retrieval" / "cranfield"
        _run("tests/benchmarks/cranfield.py", f"--source={source}", f"--output={work}/cranfield")
    if not (work / "weights").exists():
        weights = Path(arguments.weights)
        if arguments.layers:
            write_first_layers(weights, arguments.layers, work / "weights")
        else:
            (work / "weights").symlink_to(weights.resolve())


def _run(program: str, *flags: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, REPOSITORY / program, *flags], env=environment, check=True)


def by_bertjax(arguments: argparse.Namespace, seed: int) -> tuple[Path, float]:
    """Trains; returns the model's folder and the seconds."""
    run = arguments.work / f"bertjax-{seed}"
    _run(
        "launch/finetune.py",
        f"--config={REPOSITORY}/configs/finetune_embeddings.py",
        f"--config.data={arguments.work}/pairs",
        f"--config.init_from=hf:{arguments.work}/weights",
        f"--config.batch_size={arguments.batch_size}",
        f"--config.epochs={arguments.epochs}",
        f"--config.optimizer.learning_rate={arguments.rate}",
        f"--config.task.query_length={LENGTH}",
        f"--config.task.passage_length={LENGTH}",
        f"--config.seed={seed}",
        "--config.intervals.log=10",
        "--config.intervals.evaluate=100000",
        "--config.intervals.checkpoint=100000",
        f"--workdir={run}",
    )
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [line for line in lines if line["split"] == "train"]
    tokens = json.loads((run / "results.json").read_text())["chosen"]["batch_tokens"]
    # The clock of a line begins at the line before, and stops while a program is compiled.
    seconds, before = 0.0, 0
    for row in rows:
        seconds += (row["step"] - before) * tokens / row["tokens_per_second"]
        before = row["step"]
    return run / "model", seconds


def by_sentence_transformers(arguments: argparse.Namespace, seed: int) -> tuple[Path, float]:
    """The same."""
    import torch
    from sentence_transformers import SentenceTransformer, models
    from sentence_transformers.sentence_transformer import losses

    torch.manual_seed(seed)
    encoder = models.Transformer(str(arguments.work / "weights"), max_seq_length=LENGTH)
    pooling = models.Pooling(encoder.get_word_embedding_dimension())
    model = SentenceTransformer(modules=[encoder, pooling, models.Normalize()], device="cpu")
    rows = [json.loads(line) for line in open(arguments.work / "pairs" / "train.jsonl")]
    size = arguments.batch_size
    steps = -(-round(arguments.epochs * len(rows)) // size)
    decays, still = [], []
    for parameter in model.parameters():
        (still if parameter.ndim == 1 else decays).append(parameter)
    optimizer = torch.optim.AdamW(
        [dict(params=decays, weight_decay=0.01), dict(params=still, weight_decay=0.0)],
        lr=arguments.rate,
        eps=1e-6,
    )
    warm_up = round(steps * 0.1)

    def factor(step: int) -> float:
        return min((step + 1) / max(warm_up, 1), (steps - step) / steps)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    loss_of = losses.MultipleNegativesRankingLoss(model, scale=SCALE)
    order: list[dict[str, str]] = []
    rng, begin = random.Random(seed), time.perf_counter()
    model.train()
    for _ in range(steps):
        if len(order) < size:
            order += rng.sample(rows, len(rows))
        batch, order = order[:size], order[size:]
        sides = [model.tokenize([row[side] for row in batch]) for side in ("query", "passage")]
        loss = loss_of(sides, None)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    seconds = time.perf_counter() - begin
    folder = arguments.work / f"sentence-transformers-{seed}"
    model.save(str(folder))
    return folder, seconds


def score(arguments: argparse.Namespace, model: str, name: str) -> dict[str, float]:
    """The main metric of each set."""
    sets = [each.format(data=arguments.data, work=arguments.work) for each in SETS.values()]
    output = arguments.work / f"scores-{name}.json"
    _run("launch/evaluate.py", f"--model={model}", f"--on={','.join(sets)}", f"--output={output}")
    scores = json.loads(output.read_text())["scores"]
    main_metric = [("ndcg@10" if each.startswith("retrieval") else "spearman") for each in sets]
    return {
        name: scores[each][metric]
        for name, each, metric in zip(SETS, sets, main_metric, strict=True)
    }


def one(arguments: argparse.Namespace, way: str, seed: int) -> dict[str, Any]:
    """Trains and scores in this process."""
    train = by_bertjax if way == "bertjax" else by_sentence_transformers
    folder, seconds = train(arguments, seed)
    return {
        "seconds": round(seconds, 1),
        "scores": score(arguments, f"hf:{folder}", f"{way}-{seed}"),
    }


def table(results: dict[str, Any]) -> str:
    """The scores and the seconds: mean and standard deviation over the seeds."""
    lines = [f"{'':22}" + "".join(f"{name:>14}" for name in (*SETS, "mean", "seconds"))]
    for way, runs in results.items():
        columns = [[run["scores"][name] for run in runs.values()] for name in SETS]
        columns.append([statistics.mean(run["scores"].values()) for run in runs.values()])
        columns.append([run["seconds"] for run in runs.values() if "seconds" in run])
        lines.append(f"{way:22}" + "".join(f"{_spread(column):>14}" for column in columns))
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def main() -> None:
    """Runs what the flags say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", required=True, help="a folder of transformers")
    parser.add_argument("--layers", type=int, default=0, help="keep so many; 0: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--work", type=Path, default=Path("embeddings_work"))
    parser.add_argument("--output", type=Path, default=Path("embeddings.json"))
    parser.add_argument("--only", default="", help=argparse.SUPPRESS)  # WAY:SEED, in this process
    arguments = parser.parse_args()
    arguments.data, arguments.work = arguments.data.resolve(), arguments.work.resolve()
    if arguments.only:
        way, _, seed = arguments.only.rpartition(":")
        result = one(arguments, way, int(seed))
        (arguments.work / "one.json").write_text(json.dumps(result))
        return
    content: dict[str, Any] = {}
    if arguments.output.exists():
        content = json.loads(arguments.output.read_text())
    prepare(arguments)
    results: dict[str, Any] = content.setdefault("results", {})
    content["machine"] = {"cores": os.cpu_count(), "cpu": platform.processor() or "unknown"}
    content["versions"] = {
        name: version(name) for name in ("jax", "torch", "sentence-transformers", "transformers")
    }
    keys = ("layers", "epochs", "batch_size", "rate")
    content["settings"] = {name: getattr(arguments, name) for name in keys}
    if "before" not in results:
        before = score(arguments, f"hf:{arguments.work}/weights", "before")
        results["before"] = {"": {"scores": before}}
    for seed in range(arguments.seeds):
        for way in arguments.ways.split(","):
            if str(seed) in results.get(way, {}):
                continue
            flags = [flag for flag in sys.argv[1:] if not flag.startswith("--only")]
            command = [sys.executable, __file__, *flags, f"--only={way}:{seed}"]
            environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
            subprocess.run(command, env=environment, check=True)
            found = json.loads((arguments.work / "one.json").read_text())
            results.setdefault(way, {})[str(seed)] = found
            arguments.output.write_text(json.dumps(content, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()
