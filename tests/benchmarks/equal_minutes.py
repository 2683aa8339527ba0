"""Masked-LM loss after equal minutes on the same machine, next to transformers' Trainer.

  python tests/benchmarks/equal_minutes.py --corpus=corpora/enwiki-8k --minutes=20 \\
    --output=equal_minutes.json
  python tests/benchmarks/equal_minutes.py --corpus=corpora/enwiki-8k --minutes=20 \\
    --ways=fast,transformers,transformers_modernbert --pairs=blimp.jsonl.xz --output=peers.json

All models have 4 layers of 256 and the vocabulary of the corpus, and compute in float32 without
dropout:

  bert          configs/pretrain_tiny.py with --config.model.size=mini, in batches of 16 x 128, rate
                1e-3
  modernbert    configs/pretrain_modern_tiny.py with --config.model.size=mini: 16 x 256
  electra       configs/pretrain_electra_tiny.py with --config.model.size=mini, in batches of
                16 x 128, rate 1e-3
  fast          configs/pretrain_fast_mini.py: 8 x 128
  modern_electra  modernbert with ELECTRA's objective, and a generator of one layer
  transformers  BertForMaskedLM and the Trainer: the documents one after the other, cut into rows of
                128 tokens, its own collator (15 % masked), AdamW, batches of 16, rate 1e-3
  transformers_modernbert  the same with ModernBertForMaskedLM of the sizes of `fast`, 30 % masked

Schedules need their number of steps. So each way first makes a short trial, from whose time follows
how many updates fit into the minutes; starting and compiling counts. The trials, all at the
beginning, need the machine for themselves. The runs do not, because their updates are counted then.
All that fill masks are compared on the same masked text (bertjax/runs/same_text.py), at eight
points of their runs, and with --pairs by their grammar (100 pairs of each paradigm of a file of
minimal pairs). The picture next to the output has the losses over the minutes. What the output
already has is not done again, and a stopped run of bertjax goes on. It needs the extra `peers`.
"""

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tables
from report import started

from bertjax.base.files import write_json

SIZE, LENGTH, BATCH, RATE = "mini", 128, 16, 1e-3
TRIAL_STEPS = 40
POINTS = 8  # of a run, at which it is evaluated


class Trained(NamedTuple):
    """A finished run: its models by their steps, as `open_model` names them, and its times."""

    models: dict[int, str]
    seconds: float
    seconds_a_step: float
    tokens_a_step: int


def bert(corpus: str, steps: int, folder: Path) -> Trained:
    """BERT's recipe, for masked tokens of pairs and the next sentence."""
    from configs.pretrain_tiny import get_config

    config = get_config()
    config.phase_1.update(share=1.0, length=LENGTH, batch_size=BATCH)
    del config.phase_2
    config.optimizer.learning_rate = RATE
    return _pretrain(config, corpus, steps, folder)


def modernbert(corpus: str, steps: int, folder: Path) -> Trained:
    """The modern recipe."""
    from configs.pretrain_modern_tiny import get_config

    return _pretrain(get_config(), corpus, steps, folder)


def fast(corpus: str, steps: int, folder: Path) -> Trained:
    """The fast recipe."""
    from configs.pretrain_fast_mini import get_config

    return _pretrain(get_config(), corpus, steps, folder)


def electra(corpus: str, steps: int, folder: Path) -> Trained:
    """ELECTRA's recipe."""
    from configs.pretrain_electra_tiny import get_config

    config = get_config()
    config.phase_1.update(batch_size=BATCH)
    config.model.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config.optimizer.learning_rate = RATE
    return _pretrain(config, corpus, steps, folder)


def modern_electra(corpus: str, steps: int, folder: Path) -> Trained:
    """The modern recipe, for replaced tokens."""
    from configs.pretrain_modern_tiny import get_config

    config = get_config()
    del config.objective  # a name; here it is a section
    config.objective = dict(name="electra", generator_width=1.0, generator_layers=0.25)
    return _pretrain(config, corpus, steps, folder)


def _pretrain(config: Any, corpus: str, steps: int, folder: Path) -> Trained:
    from bertjax.programs import pretrain
    from bertjax.training.checkpoint import saved_steps
    from bertjax.training.metrics_log import read_metrics

    config.corpus, config.total_steps, config.model.size = corpus, steps, SIZE
    config.optimizer.warmup_steps = steps // 10
    if config.optimizer.schedule == "wsd":
        config.optimizer.decay_steps = steps // 3
    config.intervals.update(log=10, evaluate=steps, checkpoint=-(-steps // POINTS), eval_batches=1)
    config.keep_checkpoints, config.model.compute_dtype = POINTS, "float32"
    begin = time.perf_counter()
    if pretrain.run(config, str(folder)):
        raise SystemExit("stopped")
    seconds = time.perf_counter() - begin
    rows = [row for row in read_metrics(folder) if row["split"] == "train"]
    pace = statistics.median(row["tokens_per_second"] for row in rows[1:])
    tokens = config.phase_1.batch_size * config.phase_1.length
    models = {step: f"{folder}@{step}" for step in saved_steps(folder / "checkpoints")}
    return Trained(models, seconds, tokens / pace, tokens)


def transformers(corpus: str, steps: int, folder: Path) -> Trained:
    """What a user of transformers would write for BERT."""
    from transformers import BertConfig, BertForMaskedLM

    from bertjax.models.encoders.presets import BertSpec

    sizes = BertSpec.named(SIZE)

    def make(vocabulary: int) -> BertForMaskedLM:
        return BertForMaskedLM(
            BertConfig(
                vocab_size=vocabulary,
                hidden_size=sizes.hidden_size,
                num_hidden_layers=sizes.num_hidden_layers,
                num_attention_heads=sizes.num_attention_heads,
                intermediate_size=sizes.intermediate_size,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )

    return _by_trainer(make, 0.15, corpus, steps, folder)


def transformers_modernbert(corpus: str, steps: int, folder: Path) -> Trained:
    """The same for ModernBERT, of which 30 % of the tokens are masked."""
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    from bertjax.models.encoders.presets import ModernBertSpec

    sizes = ModernBertSpec.named(SIZE)

    def make(vocabulary: int) -> ModernBertForMaskedLM:
        return ModernBertForMaskedLM(
            ModernBertConfig(
                vocab_size=vocabulary,
                hidden_size=sizes.hidden_size,
                num_hidden_layers=sizes.num_hidden_layers,
                num_attention_heads=sizes.num_attention_heads,
                intermediate_size=sizes.intermediate_size,
                pad_token_id=0,
                **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
            )
        )

    return _by_trainer(make, 0.3, corpus, steps, folder)


def _by_trainer(
    make: Callable[[int], Any], masked: float, corpus: str, steps: int, folder: Path
) -> Trained:
    """Trains a model of transformers, made for so many pieces, with its Trainer and collator."""
    from transformers import (
        AutoTokenizer,
        DataCollatorForLanguageModeling,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        set_seed,
    )

    from bertjax.data.corpus.store import open_tokenizer
    from bertjax.interop.tokenizer_files import write_tokenizer

    begin = time.perf_counter()
    tokenizer = open_tokenizer(corpus)
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(tokenizer, folder, 512)
    set_seed(0)
    model = make(tokenizer.vocabulary_size)
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            ends.append(time.perf_counter())

    trainer = Trainer(
        model,
        TrainingArguments(
            output_dir=str(folder),
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            learning_rate=RATE,
            warmup_steps=steps // 10,
            weight_decay=0.01,
            use_cpu=True,
            report_to="none",
            save_strategy="steps",
            save_steps=-(-steps // POINTS),
            save_only_model=True,
            logging_steps=100,
        ),
        data_collator=DataCollatorForLanguageModeling(
            AutoTokenizer.from_pretrained(folder), mlm_probability=masked
        ),
        train_dataset=[{"input_ids": row} for row in token_rows(corpus)],
        callbacks=[Clock()],
    )
    trainer.train()
    seconds = time.perf_counter() - begin
    folders = {int(path.name.rpartition("-")[2]): path for path in folder.glob("checkpoint-*")}
    for path in folders.values():
        write_tokenizer(tokenizer, path, 512)
    models = {step: f"hf:{folders[step]}" for step in sorted(folders)}
    return Trained(models, seconds, statistics.median(np.diff(ends)), BATCH * LENGTH)


def token_rows(corpus: str) -> np.ndarray:
    """The training documents, each in [CLS] ... [SEP], one after the other: int32 [rows, 128]."""
    from bertjax.data.corpus.store import TokenStore, open_tokenizer

    tokenizer, store = open_tokenizer(corpus), TokenStore.open(corpus)
    starts, ends = store.document_starts[:-1], store.document_starts[1:]
    tokens = store.read_spans(starts, ends - starts).astype(np.int32)
    borders = np.stack([starts, ends], 1).ravel() - starts[0]
    special = np.tile([tokenizer.cls_id, tokenizer.sep_id], len(starts))
    tokens = np.insert(tokens, borders, special)
    return tokens[: len(tokens) // LENGTH * LENGTH].reshape(-1, LENGTH)


WAYS: dict[str, Callable[[str, int, Path], Trained]] = {
    "bert": bert,
    "modernbert": modernbert,
    "electra": electra,
    "modern_electra": modern_electra,
    "transformers": transformers,
    "fast": fast,
    "transformers_modernbert": transformers_modernbert,
}


def plan(way: str, corpus: str, minutes: float, work: Path) -> dict[str, Any]:
    """How many updates of one way fit into the minutes."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    trial = WAYS[way](corpus, TRIAL_STEPS, work / f"{way}-trial")
    start = trial.seconds - TRIAL_STEPS * trial.seconds_a_step
    steps = int((60 * minutes - start) / trial.seconds_a_step)
    times = {"start_seconds": start, "seconds_a_step": trial.seconds_a_step}
    return {"steps": steps, "tokens": steps * trial.tokens_a_step} | times


def train(way: str, corpus: str, steps: int, pairs: str, work: Path) -> dict[str, Any]:
    """Trains one way, and evaluates it; a discriminator by its own held-out text."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    from bertjax.programs import score
    from bertjax.runs.same_text import evaluate
    from bertjax.runs.source import open_model
    from bertjax.training.metrics_log import read_metrics

    run = WAYS[way](corpus, steps, work / way)
    last = run.models[max(run.models)]
    if "electra" not in way:
        points = {}
        for step, name in run.models.items():
            if not (model := open_model(name)).spec.causal:
                points[step] = evaluate(model, corpus)
        found = {"seconds": run.seconds} | points[max(points)]
        found["curve"] = {step: point["mlm_loss"] for step, point in points.items()}
        return found | ({"grammar": score.run(last, pairs, most=100)["overall"]} if pairs else {})
    last = [row for row in read_metrics(work / way) if row["split"] == "heldout"][-1]
    names = ("disc_loss", "disc_accuracy", "mlm_loss", "mlm_accuracy", "sampled_accuracy")
    return {"seconds": run.seconds, "heldout": {name: last[name] for name in names}}


def baseline(corpus: str) -> float:
    """The loss (nats) of the best guess without context on the same masked text."""
    from bertjax.data.corpus.frequencies import word_frequencies
    from bertjax.data.corpus.store import TokenStore, open_tokenizer
    from bertjax.data.examples.masking import MaskingRule

    special = open_tokenizer(corpus).special_ids
    return MaskingRule().unigram_baseline(word_frequencies(TokenStore.open(corpus), special))


def draw(report: dict[str, Any], path: Path) -> None:
    """Draws the losses of the runs over the minutes that they take."""
    from bertjax.base import figures

    curves = []
    for way, each in report["ways"].items():
        if curve := each.get("curve"):
            start, step = each["start_seconds"], each["seconds_a_step"]
            points = [((start + int(steps) * step) / 60, loss) for steps, loss in curve.items()]
            curves.append(figures.Curve.of(tables.MINUTES_WAYS[way], points))
    baseline = figures.Level("unigram baseline", report["baseline"])
    axes = dict(xlabel="minutes of two cores", ylabel="held-out masked-LM loss, nats")
    figures.draw(path, curves, [baseline], **axes, xlim=(0, None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", required=True, help="a corpus of launch/prepare_corpus.py")
    parser.add_argument("--ways", default="bert,modernbert,electra,modern_electra,transformers")
    parser.add_argument("--pairs", default="", help="minimal pairs, as launch/score.py takes them")
    parser.add_argument("--minutes", type=float, default=20.0, help="of each way")
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    parser.add_argument("--work", type=Path, help="folder of the runs; default: next to the output")
    arguments = parser.parse_args()
    work = arguments.work or arguments.output.with_suffix("")
    packages = ("jax", "torch", "transformers")
    report = started(arguments.output, packages, minutes=arguments.minutes, ways={})
    spawn = multiprocessing.get_context("spawn")  # a new process, with its own threads, for each

    def alone(function: Callable[..., dict[str, Any]], way: str, *rest: Any) -> dict[str, Any]:
        with ProcessPoolExecutor(1, mp_context=spawn) as pool:
            return pool.submit(function, way, arguments.corpus, *rest, work).result()

    ways, asked = report["ways"], arguments.ways.split(",")
    for way in asked:
        if way not in ways:
            ways[way] = alone(plan, way, arguments.minutes)
            write_json(arguments.output, report)
    for way in asked:
        if "seconds" not in ways[way]:
            ways[way] |= alone(train, way, ways[way]["steps"], arguments.pairs)
            write_json(arguments.output, report)
    if "baseline" not in report:
        report["baseline"] = baseline(arguments.corpus)
        write_json(arguments.output, report)
    draw(report, arguments.output.with_suffix(".png"))
    print(tables.table_of_minutes(report))


if __name__ == "__main__":
    main()
