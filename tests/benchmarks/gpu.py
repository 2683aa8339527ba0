"""Everything on one GPU that is compared with what else a user would pick, in one call of minutes.

  python tests/benchmarks/gpu.py --output=gpu.json [--minutes=9] [--rows=step,attention]

Rows, those of the most worth first; each is a process of its own:

  step         an update of BERT-Base and of ModernBERT-base, in bfloat16 with float32 parameters,
               AdamW and clipping, by each `config.model.attention`; and of transformers by
               torch.compile, autocast and the fused AdamW. Its ModernBERT has one document a row,
               ours packed documents. The best of three rounds of ten updates
  attention    attention alone, forward and backward, by each way of `choice.py` that is here; its
               relative error next to float32, and whether five calls give the same bits. A call
               looks for the documents, too
  own_kernel   the same by this project's kernel, in rows of their own, as it may hang
  bits         whether three updates from the same state give the same bits. "exact": by XLA's flag
  kernels      what a GPU does in an update by "auto", from a trace: milliseconds by kind of kernel
  contrastive  an update with 1,024 pairs of 128 + 128 tokens, next to sentence-transformers with
               its tokenizer in the loop and without. A batch that does not fit is encoded in chunks
  vectors      texts to vectors, from a file to a file, next to sentence-transformers at the best of
               three batch sizes, which reads and writes nothing
  finetune     an epoch of pairs of texts by launch/finetune.py, next to transformers' Trainer: the
               seconds of the whole process, compilation included. "second": from JAX's cache
  losses       500 updates of a small model of packed documents, by einsum and by "auto"

A row that hangs is ended after `SECONDS`. All rows take longer than one call: a second one goes on.

Weights are random. Without --vocabulary, --texts and --pairs (a folder with train.jsonl and
dev.jsonl: premise, hypothesis, label) texts are random words, as long as those of Wikipedia and of
MNLI. The longest programs are first compiled, several at once, into a cache: "first" is the time of
that until the first update is done, and "again" the same from the cache. XLA chooses kernels by
timing them, which is disturbed then: --together=0 compiles each program alone. MFU counts what a
token sees of its document. Rows in the output are not measured again, failed ones are. --tiny:
small shapes, and without a GPU a CPU. It needs the extras `cuda` and `peers`.
"""

import argparse
import contextlib
import dataclasses
import gzip
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import numpy as np
import tables
from kernel_times import by_kind
from report import started
from train_step import (
    LEARNING_RATE,
    Shapes,
    Step,
    bertjax_experiment,
    bertjax_spec,
    bertjax_step,
    torch_bert,
    torch_inputs,
    torch_step,
)

from bertjax.base.files import write_json

STARTED = time.perf_counter()  # of this process
REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("jax", "jax-cuda13-plugin", "jax-cuda12-plugin", "dew-flash-attn-cu13")
PACKAGES += ("dew-flash-attn-cu12", "torch", "transformers", "sentence-transformers")
PEERS = ("transformers", "sentence-transformers", "compiled")
# Rows whose programs take long to compile. Kernels of this project may hang, and hold up others.
WARMED = re.compile("step/(?!.*/kernel)|(contrastive|vectors)/.*/bertjax")
# A row of a kind may take so many seconds, and is started with a third of them left.
SECONDS = {"step": 90, "attention": 90, "bits": 90, "kernels": 90, "losses": 90, "vectors": 120}
SECONDS |= {"contrastive": 180, "finetune": 300, "own_kernel": 60}
CHUNKS = (1, 2, 4, 8)
WINDOW = 64
MODELS = {"base": (12, 768, 512), "minilm": (6, 384, 256)}  # layers, width, most tokens of a text
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclasses.dataclass(frozen=True)
class Case:
    """A batch; with the mean length of its documents, packed for ModernBERT, else for BERT."""

    rows: int
    length: int
    mean: int = 0
    dropout: float = 0.0  # in attention; elsewhere BERT has 0.1, and ModernBERT none


CASES = {
    "modern_8192": Case(2, 8192, 700),
    "modern_1024": Case(16, 1024, 400),
    "base_512_dropout": Case(32, 512, dropout=0.1),
    "base_128_dropout": Case(128, 128, dropout=0.1),
    "base_512": Case(32, 512),
    "base_128": Case(128, 128),
}
TINY = {
    "modern_8192": Case(2, 288, 90),
    "modern_1024": Case(2, 136, 50),
    **{name: Case(2, 24, dropout=case.dropout) for name, case in list(CASES.items())[2:]},
}


# ------------------------------------------------------------------------------- a training step


def documents(case: Case, rng: np.random.Generator) -> np.ndarray:
    """The number of each token's document, int32 [rows, length]."""
    lengths = np.clip(rng.exponential(case.mean or 1e9, (case.rows, case.length)), 16, None)
    ends = lengths.astype(int).cumsum(1)
    places = np.arange(case.length)
    return np.stack([np.searchsorted(row, places, "right") for row in ends]).astype(np.int32) + 1


def shapes_of(case: Case, tiny: bool) -> Shapes:
    """What train_step.py calls it: 15 % are masked of BERT's tokens, 30 % of ModernBERT's."""
    layers, width, heads, vocabulary = (3, 32, 2, 500) if tiny else (12, 768, 12, 30_522)
    masked = int(case.length * (0.3 if case.mean else 0.15)) + (not case.mean)
    if case.mean and not tiny:
        vocabulary = 50_368
    return Shapes(layers, width, heads, vocabulary, case.rows, case.length, masked)


def bertjax_model(case: Case, attention: str, tiny: bool) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """The spec, the objective and the batch of a case."""
    from bertjax.models.encoders.presets import ModernBertSpec
    from bertjax.objectives.masked_lm import MaskedLM, MaskedLMNextSentence

    shapes = shapes_of(case, tiny)
    how, batch = dict(compute_dtype=dtype(), attention=attention), shapes.batch()
    if attention == "einsum" and case.length > 1024:
        how["remat"] = "attention"  # all pairs of all layers do not fit
    if not case.mean:
        spec = bertjax_spec(shapes, attention_probs_dropout_prob=case.dropout, **how)
        return spec, MaskedLMNextSentence(), batch
    sizes = dict(vocab_size=500, hidden_size=32, num_hidden_layers=3, num_attention_heads=2)
    spec = ModernBertSpec(**(sizes | dict(intermediate_size=48) if tiny else {}), **how)
    del batch["token_type_ids"], batch["next_sentence_labels"]
    return spec, MaskedLM(), batch | {"segment_ids": documents(case, np.random.default_rng(1))}


def dtype() -> str:
    """bfloat16, except on what has no units for it."""
    import jax

    from bertjax.training.hardware import compute_dtype

    return compute_dtype(jax.devices()[0])


def step(options: argparse.Namespace, case: str, way: str) -> dict[str, Any]:
    """An update of pre-training."""
    from bertjax.training.hardware import peak_flops

    shape = options.cases[case]
    shapes = shapes_of(shape, options.tiny)
    if way in PEERS:
        update, about = _peer_step(shape, shapes), {}
    else:
        spec, objective, batch = bertjax_model(shape, way, options.tiny)
        update = bertjax_step(spec, objective, batch)
        numbers = batch.get("segment_ids", np.zeros((1, shape.length), int))
        sizes = np.concatenate([np.bincount(row) for row in numbers])
        seen = float((sizes**2).sum() / sizes.sum())
        flops = spec.flops_per_token(shape.length, shapes.masked, seen)
        about = {"flops_per_token": flops, "attention": spec.attention_by(shape.length)}
    found = timed(update, options) | about
    if "milliseconds" in found:
        speed = 1e3 * shape.rows * shape.length / found["milliseconds"]
        found["million_tokens_per_second"] = speed / 1e6
        flops = found.pop("flops_per_token", 0.0)
        if flops and (peak := peak_flops(found["device"])):
            found["mfu"] = flops * speed / peak
    return found


def _peer_step(case: Case, shapes: Shapes) -> Step:
    import torch
    import transformers

    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch = shapes.batch()
    if case.mean:
        sizes: dict[str, Any] = {}
        if shapes.width != 768:
            sizes = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=2)
            sizes |= {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")}
        config = transformers.ModernBertConfig(vocab_size=shapes.vocabulary, **sizes)
        model = transformers.AutoModelForMaskedLM.from_config(config, attn_implementation="sdpa")
        del batch["token_type_ids"], batch["next_sentence_labels"]
    else:
        model = torch_bert(shapes, attention_probs_dropout_prob=case.dropout)
    model = model.train().to(device)
    inputs = torch_inputs(batch, device)
    forward = torch.compile(model) if device == "cuda" else model
    return torch_step(model, lambda: forward(**inputs).loss)


def timed(update: Step, options: argparse.Namespace) -> dict[str, Any]:
    """Calls an update until it is compiled, and then in rounds."""
    begin = time.perf_counter()
    loss = float(update())
    found: dict[str, Any] = {"first_seconds": time.perf_counter() - begin}
    if options.warm:
        return found
    float(update())
    rounds, count = (1, 2) if options.tiny else (3, 10)
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(count):
            loss = update()
        loss = float(loss)  # it waits for all updates
        times.append(1e3 * (time.perf_counter() - begin) / count)
    return found | {"milliseconds": min(times), "loss": loss, **device_facts()}


def device_facts() -> dict[str, Any]:
    """The device of this process, and the most memory that it had in use."""
    if "jax" in sys.modules:
        import jax

        device = jax.devices()[0]
        peak = (device.memory_stats() or {}).get("peak_bytes_in_use", 0)
        return {"device": device.device_kind, "peak_gib": peak / 2**30}
    import torch

    if not torch.cuda.is_available():
        return {"device": "cpu", "peak_gib": 0.0}
    peak = torch.cuda.max_memory_allocated()
    return {"device": torch.cuda.get_device_name(), "peak_gib": peak / 2**30}


# --------------------------------------------------------------------------------- attention, bits


def own_kernel(options: argparse.Namespace, case: str) -> dict[str, Any]:
    """Attention alone by this project's kernel."""
    return attention(options, case, own=True)


def attention(options: argparse.Namespace, case: str, *, own: bool = False) -> dict[str, Any]:
    """Attention alone: {way: its figures}."""
    import jax
    import jax.numpy as jnp

    from bertjax.models.attention.choice import (
        BLOCKS,
        CUDNN,
        EINSUM,
        FLASH,
        FUSED,
        KERNEL,
        this_device,
    )
    from bertjax.models.attention.contract import AttentionPattern, DropoutSpec, Mask
    from bertjax.models.attention.implementations import is_split, self_attention

    shape, here = options.cases[case], this_device()
    heads, width = (2, 8) if options.tiny else (12, 64)
    tokens = shape.rows, shape.length
    keys = jax.random.split(jax.random.key(0), 2)
    qkv = jax.random.normal(keys[0], (*tokens, 3, heads, width), dtype())
    gradient = jax.random.normal(keys[1], (*tokens, heads, width), dtype())
    numbers = documents(shape, np.random.default_rng(1)) if shape.mean else None
    mask = jax.device_put(Mask(np.ones(tokens, np.int32), numbers))
    dropping = shape.dropout > 0

    def both(way: str, window: int | None, precision: Any) -> Callable[[], Any]:
        def call(arrays: Any, gradient: jax.Array, mask: Mask) -> Any:
            attend = partial(
                self_attention, mask=mask, pattern=AttentionPattern(window=window), way=way
            )
            attend = partial(
                attend, drop=DropoutSpec(jnp.uint32(1), shape.dropout) if dropping else None
            )
            context, pull = jax.vjp(attend, arrays)
            return context, *pull(gradient), context[0, 0, 0, 0]

        arrays, of_context = qkv.astype(precision), gradient.astype(precision)
        arrays = tuple(arrays[:, :, i] for i in range(3)) if is_split(way) else arrays
        return partial(jax.jit(call), arrays, of_context, mask)

    found: dict[str, Any] = {}
    for window in (None, WINDOW) if shape.mean else (None,):
        ways = [FLASH] * here.flash + [CUDNN] * (here.cudnn_packed and not window)
        ways += [FUSED, BLOCKS] if window else [FUSED, EINSUM]
        ways = [KERNEL] if own else [EINSUM] if dropping else ways
        exact: Any = None
        if shape.length <= 1024:
            with jax.default_matmul_precision("highest"):
                exact = _fetched(both(EINSUM, window, jnp.float32))
        for way in ways:
            name = f"{way}, window {WINDOW}" if window else way
            try:
                found[name] = _attended(both(way, window, qkv.dtype), exact, options)
            except Exception as error:  # such as too little memory; the other ways go on
                found[name] = {"failed": " ".join(str(error).split())[:200]}
    assert any("milliseconds" in each for each in found.values()), found
    return found


def _fetched(call: Callable[[], Any]) -> tuple[np.ndarray, np.ndarray]:
    """The contexts and their gradients of queries, keys and values, which may be apart."""
    import jax

    context, gradients, _ = jax.device_get(call())
    return context, np.stack(gradients, 2) if isinstance(gradients, tuple) else gradients


def _attended(call: Callable[[], Any], exact: Any, options: argparse.Namespace) -> dict[str, Any]:
    first = _fetched(call)
    found = {"milliseconds": timed(lambda: call()[-1], options)["milliseconds"]}
    again = [zip(first, _fetched(call), strict=True) for _ in range(4)]
    found["same_bits"] = all(np.array_equal(*pair) for pairs in again for pair in pairs)
    for name, wide, narrow in zip(("error", "gradients_error"), exact or (), first, strict=False):
        narrow = narrow.astype(np.float32)
        found[name] = float(np.linalg.norm(wide - narrow) / np.linalg.norm(wide))
    return found


def bits(options: argparse.Namespace, way: str) -> dict[str, Any]:
    """Whether the same updates give the same parameters: ModernBERT with packed documents."""
    if way == "exact":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()
    import jax

    from bertjax.training.loop import Trainer

    case = options.cases["modern_1024"]
    spec, objective, batch = bertjax_model(case, "auto" if way == "exact" else way, options.tiny)
    experiment = bertjax_experiment(spec, objective)
    update, placement = Trainer(experiment).step(1), experiment.placement
    arrays = jax.device_put(batch, placement.batch)

    def run() -> list[np.ndarray]:
        state = experiment.initial_state(0)
        with placement.active():
            for _ in range(3):
                state, _ = update(state, [arrays], LEARNING_RATE, 0)
        return jax.device_get(jax.tree.leaves(state.params))

    first = run()
    again = list(itertools.chain.from_iterable(zip(first, run(), strict=True) for _ in range(3)))
    differing = [pair for pair in again if not np.array_equal(*pair)]
    greatest = max((np.abs(a - b).max() / np.abs(a).max() for a, b in differing), default=0.0)
    share = len(differing) / len(again)
    found = {"same_bits": not differing, "differing_arrays": share, "greatest": float(greatest)}
    found |= {"attention": spec.attention_by(case.length)}
    return found | timed(bertjax_step(spec, objective, batch), options)


def kernels(options: argparse.Namespace, case: str) -> dict[str, Any]:
    """What the device does in an update."""
    import jax

    update = bertjax_step(*bertjax_model(options.cases[case], "auto", options.tiny))
    for _ in range(2):
        float(update())
    folder, count = options.work / f"trace_{case}", 3
    with jax.profiler.trace(folder, create_perfetto_trace=True):
        for _ in range(count):
            loss = update()
        float(loss)
    *_, trace = sorted(folder.rglob("perfetto_trace.json.gz"))
    events = json.loads(gzip.decompress(trace.read_bytes()))
    return by_kind(events["traceEvents"] if isinstance(events, dict) else events, count)


def losses(options: argparse.Namespace, way: str) -> dict[str, Any]:
    """The losses of a small model that learns from phrases which each document repeats."""
    import jax

    from bertjax.models.encoders.presets import ModernBertSpec
    from bertjax.objectives.masked_lm import MaskedLM
    from bertjax.training.loop import Trainer

    updates, case = (6, Case(2, 136, 50)) if options.tiny else (500, Case(16, 1024, 200))
    vocabulary, masked = 2_000, int(0.3 * case.length)
    small = ModernBertSpec.sizes["tiny" if options.tiny else "17m"]
    sizes = dict(zip(ModernBertSpec.size_fields, small, strict=True))
    spec = ModernBertSpec(vocab_size=vocabulary, compute_dtype=dtype(), attention=way, **sizes)
    objective = MaskedLM()
    experiment = bertjax_experiment(spec, objective)
    state, update = experiment.initial_state(0), Trainer(experiment).step(1)
    found: list[float] = []
    for number in range(updates):
        rng = np.random.default_rng(number)
        numbers = documents(case, rng)
        phrases = (vocabulary * rng.random((case.rows, case.length, 16)) ** 2).astype(np.int32)
        places = np.arange(case.length)
        ids = np.stack([phrases[row, numbers[row], places % 16] for row in range(case.rows)])
        shapes = Shapes(1, 1, 1, vocabulary, case.rows, case.length, masked)
        batch = {k: v for k, v in shapes.batch().items() if k.startswith(("masked", "input_mask"))}
        positions = batch["masked_lm_positions"]
        batch["masked_lm_ids"] = np.take_along_axis(ids, positions, 1)
        np.put_along_axis(ids, positions, 4, 1)
        batch |= {"input_ids": ids, "segment_ids": numbers}
        arrays = jax.device_put(batch, experiment.placement.batch)
        with experiment.placement.active():
            state, sums = update(state, [arrays], 1e-3, 0)
        total, count = jax.device_get(sums["loss"])
        found.append(float(total / count))
    last = float(np.mean(found[-50:]))
    facts = device_facts() | {"attention": spec.attention_by(case.length)}
    return {"first_loss": found[0], "mean_of_the_last_50": last, "losses": found} | facts


# ------------------------------------------------------------------------------- texts and pairs


def contrastive(options: argparse.Namespace, size: str, way: str) -> dict[str, Any]:
    """An update with pairs of texts, in as few chunks as fit."""
    pairs, length = (4, 12) if options.tiny else (1024, 128)
    make = _peer_contrastive if way in PEERS else _contrastive
    for chunks in CHUNKS:
        try:
            ways = {
                name: timed(update, options)
                for name, update in make(options, size, pairs, length, chunks)
            }
        except Exception as error:
            full = any(words in str(error) for words in ("RESOURCE_EXHAUSTED", "out of memory"))
            if not full or chunks == CHUNKS[-1]:
                raise
            continue
        ways = {name: found | {"chunks": chunks} for name, found in ways.items()}
        return ways if way in PEERS else ways["tokens ready"]
    raise AssertionError


def _contrastive(
    options: argparse.Namespace, size: str, pairs: int, length: int, chunks: int
) -> Iterator[tuple[str, Step]]:
    from bertjax.models.heads.embedding import Embedding
    from bertjax.objectives.similarity import SimilarityObjective
    from bertjax.objectives.similarity_losses import Ranking

    layers, width, _ = options.models[size]
    heads = 2 if options.tiny else 12
    shapes = Shapes(layers, width, heads, 30_522, pairs, length, 0)
    objective = SimilarityObjective(embedding=Embedding(), loss=Ranking(), chunks=chunks)
    rng, numbers = np.random.default_rng(0), np.arange(pairs, dtype=np.int32)
    batch = {
        "is_real_example": np.ones(pairs, np.float32),
        "query_key": 2 * numbers,
        "passage_key": 2 * numbers[:, None] + 1,
        "scores": np.zeros((pairs, 1), np.float32),
    }
    for side, shape in (("query_", (pairs, length)), ("passage_", (pairs, 1, length))):
        batch[f"{side}input_ids"] = rng.integers(5, 30_522, shape, dtype=np.int32)
        batch[f"{side}token_type_ids"] = np.zeros(shape, np.int32)
        for name in ("input_mask", "counted_mask"):
            batch[side + name] = np.ones(shape, np.int32)
    spec = bertjax_spec(shapes, compute_dtype=dtype())
    yield "tokens ready", bertjax_step(spec, objective, batch)


def _sentence_transformer(
    options: argparse.Namespace, size: str, length: int, **fields: Any
) -> Any:
    from sentence_transformers import SentenceTransformer, models

    encoder = models.Transformer(str(options.work / size), max_seq_length=length, **fields)
    pooling = models.Pooling(options.models[size][1])
    return SentenceTransformer(modules=[encoder, pooling, models.Normalize()])


def _peer_contrastive(
    options: argparse.Namespace, size: str, pairs: int, length: int, chunks: int
) -> Iterator[tuple[str, Step]]:
    import torch
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.util import batch_to_device

    texts = words_of(options, [2 * length] * 2 * pairs)
    model = _sentence_transformer(options, size, length).train()
    device = next(model.parameters()).device
    loss_of: Any = losses.MultipleNegativesRankingLoss(model)
    if chunks > 1:
        loss_of = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=pairs // chunks)
        # It computes again in the backward pass, which autocast does not reach.
        model.forward = torch.autocast(device.type, torch.bfloat16)(model.forward)

    def tokens() -> list[dict[str, Any]]:
        sides = (model.tokenize(side) for side in (texts[:pairs], texts[pairs:]))
        moved = [batch_to_device(side, device) for side in sides]
        assert all(side["input_ids"].shape == (pairs, length) for side in moved)
        return moved

    ready = tokens()
    yield "tokens ready", torch_step(model, lambda: loss_of([dict(side) for side in ready], None))
    yield "its tokenizer in the loop", torch_step(model, lambda: loss_of(tokens(), None))


def vectors(options: argparse.Namespace, size: str, way: str) -> dict[str, Any]:
    """Texts a second that become vectors."""
    texts = (options.work / "texts.txt").read_text(encoding="utf-8").splitlines()
    longest, begin = options.models[size][2], time.perf_counter()
    works: dict[str, Callable[[], Any]] = {}
    if way in PEERS:
        import torch

        how = {"model_kwargs": {"dtype": torch.bfloat16}}
        model = _sentence_transformer(options, size, longest, **how).eval()
        model.encode(texts[:64])
        for count in (32, 128, 512):
            encode = partial(model.encode, texts, normalize_embeddings=True)
            works[f"batches of {count}"] = partial(encode, batch_size=count)
    else:
        from extract_features import bertjax_way

        how = dict(compute_dtype="auto", max_length=longest, truncate=True)
        work, settings = bertjax_way(texts, str(options.work / size), **how)
        works[settings] = work
    found: dict[str, Any] = {"first_seconds": time.perf_counter() - begin}
    if options.warm:
        return found
    seconds = {}
    for settings, work in works.items():
        for _ in range(1 if options.tiny else 2):
            begin = time.perf_counter()
            work()
            spent = time.perf_counter() - begin
            seconds[settings] = min(spent, seconds.get(settings, spent))
    best = min(seconds, key=seconds.__getitem__)
    speed = {"texts_per_second": len(texts) / seconds[best], "settings": best}
    return found | speed | device_facts()


def finetune(options: argparse.Namespace, way: str) -> dict[str, Any]:
    """An epoch and the predictions on dev: the seconds of a process."""
    if way in PEERS:
        accuracy = _trainer(options, way == "compiled")
        return {"seconds": time.perf_counter() - STARTED, "accuracy": accuracy} | device_facts()
    found: dict[str, Any] = {}
    for start in ("first", "second"):
        run = options.work / f"finetune_{start}"
        command = [
            *(sys.executable, "launch/finetune.py", f"--workdir={run}"),
            "--config=configs/finetune_table.py:classification",
            "--config.task.text=premise",
            "--config.task.text_b=hypothesis",
            "--config.task.label=label",
            f"--config.data={options.pairs or options.work / 'pairs'}",
            f"--config.init_from=hf:{options.work / 'base'}",
            "--config.grid.epochs=1",
        ]
        cache = {"JAX_COMPILATION_CACHE_DIR": str(options.work / "finetune_cache")}
        begin = time.perf_counter()
        subprocess.run(command, cwd=REPOSITORY, env=os.environ | cache, check=True)
        found[f"{start}_seconds"] = time.perf_counter() - begin
    (trial,) = json.loads((run / "results.json").read_text(encoding="utf-8"))["trials"]
    return found | {"accuracy": next(iter(trial["dev"].values()))["accuracy"]}


def _trainer(options: argparse.Namespace, compiled: bool) -> float:
    import torch
    import transformers

    from bertjax.tasks.rows import FORMATS, read_rows

    folder, data = str(options.work / "base"), Path(options.pairs or options.work / "pairs")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    classes: dict[Any, int] = {}

    def read(split: str) -> list[dict[str, Any]]:
        rows = [row.fields for row in read_rows(data, *(split + each for each in FORMATS))]
        sides = ([row[side] for row in rows] for side in ("premise", "hypothesis"))
        ids = tokenizer(*sides, truncation=True, max_length=128)
        labels = [classes.setdefault(row["label"], len(classes)) for row in rows]
        return [
            {"input_ids": a, "token_type_ids": b, "labels": label}
            for a, b, label in zip(ids["input_ids"], ids["token_type_ids"], labels, strict=True)
        ]

    train, dev = read("train"), read("dev")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=len(classes)
    )
    settings = transformers.TrainingArguments(
        str(options.work / "trainer"),
        per_device_train_batch_size=32,
        per_device_eval_batch_size=128,
        num_train_epochs=1,
        learning_rate=5e-5,
        warmup_steps=0.1,
        weight_decay=0.01,
        bf16=torch.cuda.is_available(),
        torch_compile=compiled,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model,
        settings,
        transformers.DataCollatorWithPadding(tokenizer),
        train,
        dev,
        compute_metrics=lambda found: {"right": (found[0].argmax(-1) == found[1]).mean()},
    )
    trainer.train()
    return 100 * float(trainer.evaluate()["eval_right"])


# ---------------------------------------------------------------------------------- the inputs


def words_of(options: argparse.Namespace, lengths: Any) -> list[str]:
    """Random texts of so many words of the vocabulary."""
    pieces = (options.work / "vocab.txt").read_text(encoding="utf-8").split("\n")
    words = np.array([word for word in pieces if word.isascii() and word.isalpha()])
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(words, max(1, int(length)))) for length in lengths]


def prepare(options: argparse.Namespace) -> None:
    """Writes the models, the texts and the pairs into the folder of work."""
    import transformers

    work, few = options.work, options.tiny
    letters = "abcdefghijklmnopqrstuvwxyz"
    made = [
        "".join(word) for word in itertools.islice(itertools.product(letters, repeat=4), 30_000)
    ]
    vocabulary = "\n".join([*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *made])
    if options.vocabulary:
        vocabulary = Path(options.vocabulary).read_text(encoding="utf-8").rstrip("\n")
    (work / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    rng, count = np.random.default_rng(0), 24 if few else 16_384
    if options.texts:
        from bertjax.inference.features.texts import read_texts

        texts = list(itertools.islice(filter(str.strip, read_texts(options.texts)), count))
    else:  # paragraphs of Wikipedia have 71 words in the median
        texts = words_of(options, np.clip(rng.lognormal(np.log(71), 0.8, count), 1, 400))
    (work / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    (work / "pairs").mkdir(exist_ok=True)
    for split, rows in (("train", 64 if few else 10_000), ("dev", 16 if few else 2_000)):
        sides = [words_of(options, rng.lognormal(np.log(n), 0.5, rows)) for n in (17, 9)]
        lines = [
            json.dumps(dict(premise=a, hypothesis=b, label=str(number % 3))) + "\n"
            for number, (a, b) in enumerate(zip(*sides, strict=True))
        ]
        (work / "pairs" / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    for name, (layers, width, _) in options.models.items():
        config = transformers.BertConfig(
            vocab_size=len(vocabulary.split("\n")),
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=2 if few else 12,
            intermediate_size=4 * width,
        )
        transformers.BertModel(config).save_pretrained(work / name)
        (work / name / "vocab.txt").write_text(vocabulary, encoding="utf-8")
        about = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512}
        (work / name / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")


# ------------------------------------------------------------------------------ rows, processes

Row = tuple[Callable[..., dict[str, Any]], tuple[str, ...]]


def all_rows() -> dict[str, Row]:
    """Every row by its name, those of the most worth first."""
    main, others = list(CASES)[:4], list(CASES)[4:]
    rows: list[Row] = [(step, (case, way)) for case in main for way in ("auto", "transformers")]
    rows += [(attention, (case,)) for case in (*main, *others)]
    rows += [(own_kernel, (case,)) for case in (*main, *others)]
    rows += [(step, (case, "kernel")) for case in main[2:]]
    rows += [(bits, (way,)) for way in ("auto", "exact", "fused")]
    both = [(size, way) for size in MODELS for way in ("bertjax", "sentence-transformers")]
    rows += [(contrastive, each) for each in both]
    rows += [(finetune, (way,)) for way in ("bertjax", "transformers", "compiled")]
    rows += [(vectors, each) for each in both]
    rows += [(kernels, (case,)) for case in main]
    rows += [(step, (case, "einsum")) for case in main]
    rows += [(step, (case, "fused")) for case in (*main[:2], *others)]
    rows += [(step, (case, way)) for case in others for way in ("auto", "transformers", "einsum")]
    rows += [(losses, (way,)) for way in ("auto", "einsum")]
    return {"/".join((row[0].__name__, *row[1])): row for row in rows}


class Measurement:
    """The processes of the rows, and the report."""

    def __init__(self, options: argparse.Namespace):
        self._options = options
        self._deadline = time.monotonic() + 60 * options.minutes
        found = [name for name in PACKAGES if any(Distribution.discover(name=name))]
        self.report = started(options.output, tuple(found), warmed_at_once=options.together)
        for key in ("first", "rows", "failed"):
            self.report.setdefault(key, {})

    def run(self, names: list[str]) -> None:
        """Measures rows; where programs take long to compile, those of several rows at once."""
        names = [name for name in names if name not in self.report["rows"]]
        cold = [name for name in names if WARMED.match(name) and name not in self.report["first"]]
        for name in names:
            if self._options.together and name in cold:
                several, cold = cold[: self._options.together], cold[self._options.together :]
                self._warm(several)
            if self._left() > _seconds(name) / 3:
                self._measure(name)

    def _warm(self, names: list[str]) -> None:
        most = min(self._left() - 30, 120)
        if most < 30:
            return
        started = [(name, self._start(name, "--warm")) for name in names]
        until = time.monotonic() + most
        for name, process in started:
            if (found := self._end(name, process, until)) is not None:
                self.report["first"][name] = found["first_seconds"]

    def _measure(self, name: str) -> None:
        until = time.monotonic() + min(_seconds(name), self._left() + 15)
        found = self._end(name, self._start(name), until)
        if found is None:
            return
        if name in self.report["first"] and "first_seconds" in found:
            found["again_seconds"] = found["first_seconds"]
            found["first_seconds"] = self.report["first"][name]
        self.report["rows"][name] = found
        self.report["failed"].pop(name, None)
        write_json(self._options.output, self.report)
        small = {key: value for key, value in found.items() if not isinstance(value, list)}
        print(f"{name}: {json.dumps(small)}", flush=True)

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    def _paths(self, name: str) -> tuple[Path, Path]:
        path = self._options.work / name.replace("/", "-")
        return path.with_suffix(".json"), path.with_suffix(".log")

    def _start(self, name: str, *flags: str) -> subprocess.Popen:
        work, (result, log) = self._options.work, self._paths(name)
        result.unlink(missing_ok=True)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path[1:]]),
            "JAX_COMPILATION_CACHE_DIR": str(work / "cache"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.92",  # PyTorch takes all
            "HF_HUB_OFFLINE": "1",
        }
        command = [sys.executable, __file__, *sys.argv[1:], f"--only={name}", *flags]
        with open(log, "w", encoding="utf-8") as file:
            return subprocess.Popen(
                command, env=environment, stdout=file, stderr=file, start_new_session=True
            )

    def _end(self, name: str, process: subprocess.Popen, until: float) -> dict[str, Any] | None:
        result, log = self._paths(name)
        try:
            process.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if result.exists():
            return json.loads(result.read_text(encoding="utf-8"))
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
        why = "too long" if process.returncode == -signal.SIGKILL else " ".join(lines[-4:]).strip()
        self.report["failed"][name] = why[-300:]
        write_json(self._options.output, self.report)
        print(f"{name}: failed: {self.report['failed'][name]}", flush=True)
        return None


def _seconds(name: str) -> float:
    return SECONDS[name.partition("/")[0]]


def main() -> None:
    """Runs what the flags say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="beginnings of names, with commas between")
    parser.add_argument("--minutes", type=float, default=9, help="starts no row after them")
    parser.add_argument("--together", type=int, default=6, help="compiled at once; 0: none")
    parser.add_argument("--vocabulary", default="", help="a vocab.txt")
    parser.add_argument("--texts", default="", help="a file of texts on lines")
    parser.add_argument("--pairs", default="", help="a folder: MNLI, or the like")
    parser.add_argument("--tiny", action="store_true", help="small shapes")
    parser.add_argument("--work", type=Path, help="a folder; default: next to the output")
    parser.add_argument("--output", type=Path, required=True, help="a JSON file")
    parser.add_argument("--only", default="", help=argparse.SUPPRESS)  # a row, in this process
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.work = (options.work or options.output.with_suffix("")).resolve()
    options.cases = TINY if options.tiny else CASES
    options.models = dict.fromkeys(MODELS, (2, 32, 64)) if options.tiny else MODELS
    rows = all_rows()
    if options.only:
        function, names = rows[options.only]
        found = function(options, *names)
        write_json(options.work / f"{options.only.replace('/', '-')}.json", found)
        return
    chosen = [name for name in rows if name.startswith(tuple(options.rows.split(",")))]
    if not chosen:
        sys.exit(f"--rows={options.rows}: no row begins so; there are {', '.join(rows)}")
    options.work.mkdir(parents=True, exist_ok=True)
    needing = ("contrastive", "vectors", "finetune")
    if any(name.startswith(needing) for name in chosen) and not (options.work / "pairs").exists():
        with contextlib.redirect_stdout(sys.stderr):
            prepare(options)
    measurement = Measurement(options)
    measurement.run(chosen)
    print(tables.table_of_gpu(measurement.report))


if __name__ == "__main__":
    main()
