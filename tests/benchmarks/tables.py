"""Writes every table of figures in README.md and docs/ anew, from the files in results/.

  python tests/benchmarks/tables.py

A table stands between the lines `<!-- table: NAME -->` and `<!-- end of table -->`, where NAME is
a key of `TABLES`. What stands there is replaced.
"""

import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bertjax.lab.studies import table as studies

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"

STUDIES = (
    "figure_5",
    "modern_walk",
    "modern_walk_cpu",
    "table_6",
    "table_7",
    "table_8",
)

_WAYS = ("bertjax", "transformers")
_YARDSTICKS = ("estimate", "count")  # of a step on a TPU
_GIB = 2**30

_MARKED = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def documents() -> list[Path]:
    """README.md and the pages of docs/."""
    return [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]


def render(text: str, results: Path = RESULTS) -> str:
    """The text of a document, with its tables made from the files in `results`."""
    return _MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]](results)}\n{found[3]}", text)


# ------------------------------------------------------------------------------- measured here


def train_step(results: Path, name: str = "train_step") -> str:
    """Milliseconds of one update, and the sequences a second that follow from them."""
    content = _read(results / f"{name}.json")
    shapes, ways, gpu = content["shapes"], content["ways"], content.get("gpu")
    names = {
        "bertjax": "bertjax",
        "shipped": "transformers, as shipped",
        "gathered": "transformers, head on the masked positions",
    }
    rows = []
    for way, figures in ways.items():
        rows.append(
            (
                names[way],
                _range(figures["milliseconds"], "{:,.1f}" if gpu else "{:,.0f}"),
                f"{figures['sequences_per_second']:,.1f}",
                "" if way == "bertjax" else _times(figures["ratio"]),
            )
        )
    caption = (
        f"{shapes['layers']} layers of {shapes['width']}, {shapes['batch_size']} sequences of "
        f"{shapes['length']} tokens, {shapes['masked']} of them masked; {content['rounds']} rounds "
        f"of {content['steps']} steps. {_machine(content)}"
    )
    caption += f" On one {gpu}, in bfloat16." if gpu else ""
    return _table(caption, ("way", "ms a step (range)", "sequences/s", "bertjax is"), rows)


def train_step_compiled(results: Path) -> str:
    """The best round of bertjax and of torch.compile, for each batch."""
    contents = _read(results / "train_step_compiled.json")
    rows = []
    for content in contents:
        result, reference = _best(content)
        batch = f"{content['shapes']['batch_size']} x {content['shapes']['length']}"
        rows.append((batch, f"{result:.1f}", f"{reference:.1f}", _times(reference / result)))
    first = contents[0]
    caption = (
        f"{first['shapes']['layers']} layers of {first['shapes']['width']}; the best of "
        f"{first['rounds']} rounds of {first['steps']} steps. {_versions(first['versions'])}. On "
        f"one {first['gpu']}, in bfloat16."
    )
    return _table(caption, ("batch", "bertjax, ms", "`torch.compile`, ms", "bertjax is"), rows)


def _best(content: dict[str, Any]) -> list[float]:
    """The milliseconds of a step of bertjax and of torch.compile in a report of train_step.py."""
    return [content["ways"][way]["milliseconds"]["minimum"] for way in ("bertjax", "compiled")]


def table_of_gpu(content: dict[str, Any]) -> str:
    """The tables of a report of gpu.py: one for each kind of rows."""
    kinds: dict[str, dict[str, dict[str, Any]]] = {}
    for name, found in content["rows"].items():
        kind, _, rest = name.partition("/")
        of_kind = kinds.setdefault(kind, {})
        if all(isinstance(figures, dict) for figures in found.values()):
            of_kind |= {f"{rest}, {way}": figures for way, figures in found.items()}
        else:
            of_kind[rest] = found
    texts = [f"{_versions(content['versions'])}."]
    for kind, rows in kinds.items():
        cells_of = [(key, x) for row in rows.values() for key, x in row.items()]
        keys = dict.fromkeys(key for key, x in cells_of if not isinstance(x, list | dict))
        lines = sorted(rows.items(), key=lambda line: line[0].partition(", ")[0])
        cells = [[name, *(_figure(row.get(key)) for key in keys)] for name, row in lines]
        texts.append(_table("", (kind, *(key.replace("_", " ") for key in keys)), cells))
    return "\n\n".join(texts)


def attention_gpu(results: Path) -> str:
    """Attention alone on GPUs, by length and way."""
    content = _read(results / "attention_gpu.json")
    rows = [
        (card["gpu"], way, *("" if each is None else f"{each:.3f}" for each in milliseconds))
        for card in content["cards"]
        for way, milliseconds in card["milliseconds"].items()
    ]
    cards = "; ".join(f"{card['gpu']}: {_versions(card['versions'])}" for card in content["cards"])
    caption = (
        "Milliseconds, forward and backward, 12 heads of 64, bfloat16; the best of 3 rounds of 20 "
        f"calls. {content['date']}, {content['note']}. {cards}."
    )
    return _table(caption, ("GPU", "way", *content["columns"]), rows)


def _figure(value: Any) -> str:
    """A cell of a table of all kinds of figures."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def input_pipeline(results: Path) -> str:
    """Tokens a second of finished batches."""
    content = _read(results / "input_pipeline.json")
    cases: dict[tuple, dict[str, str]] = {}
    for row in content["results"]:
        case = cases.setdefault((row["text"], f"{row['length']:,}", row["masking"]), {})
        columns = ("minimum", "tokens_per_second", "maximum")
        minimum, median, maximum = (f"{row[column] / 1e6:.1f}" for column in columns)
        case[row["way"]] = f"{median} ({minimum} to {maximum})"
    caption = (
        f"Millions of tokens a second on one core, from a corpus of {content['corpus_tokens']:,} "
        f"tokens, {content['batch_size']} sequences a batch; {content['rounds']} rounds. "
        f"Load average {content['load']:.1f}."
    )
    titles = ("text", "length", "masking", "all rows at once", "one example at a time")
    rows = [
        (*case, ways["batch at once"], ways.get("per example", "")) for case, ways in cases.items()
    ]
    return _table(caption, titles, rows)


def extract_features(results: Path) -> str:
    """Sentences a second that become vectors."""
    content = _read(results / "extract_features.json")
    rows = [
        (
            f"{way}, {figures['settings']}",
            _range(figures["sentences_per_second"], "{:.0f}"),
            "" if way == "bertjax" else _times(figures["ratio"]),
        )
        for way, figures in content["ways"].items()
    ]
    caption = (
        f"{content['sentences']:,} sentences, {content['rounds']} rounds. No element of any vector "
        f"differs by more than {content['greatest_difference']:.1e}. {_machine(content)}"
    )
    return _table(caption, ("way", "sentences/s (range)", "bertjax is"), rows)


def tokenization(results: Path) -> str:
    """Megabytes of text a second that become token ids."""
    content = _read(results / "tokenization.json")
    ratios = ("", _times(content["ratio"]))
    rows = []
    for row, ratio in zip(content["results"], ratios, strict=True):
        speeds = row | {"median": row["megabytes_per_second"]}
        rows.append((row["way"], _range(speeds, "{:.2f}"), ratio))
    caption = (
        f"{content['text_bytes'] / 1e6:.1f} MB of text, {content['workers']} processes or threads, "
        f"{content['rounds']} rounds. Load average {content['load']:.1f}."
    )
    return _table(caption, ("way", "MB/s (range)", "bertjax is"), rows)


def bfloat16(results: Path) -> str:
    """How far bfloat16 and float32 agree on masked tokens."""
    content = _read(results / "bfloat16.json")
    titles = (
        "masked tokens",
        "same prediction as in float32",
        "right in float32",
        "greatest difference of a logit",
    )
    row = (
        f"{content['masked_tokens']:,}",
        f"{content['same_prediction']:.1%}",
        f"{content['right_in_float32']:.1%}",
        f"{content['greatest_difference_of_logits']:.3f}",
    )
    return _table("", titles, [row])


def dtypes(results: Path) -> str:
    """A row for each task: the loss and the score in both dtypes, and how they differ by seed."""
    content = _read(results / "dtypes.json")
    rows = []
    for task, found in content["tasks"].items():
        seeds = {dtype: list(runs.values()) for dtype, runs in found.items()}
        *_, metric = seeds["float32"][0]
        differences = [
            narrow[metric] - exact[metric]
            for exact, narrow in zip(seeds["float32"], seeds["bfloat16"], strict=True)
        ]
        rows.append(
            (
                task,
                f"{seeds['float32'][0]['updates']}",
                *(_spread([run["loss"] for run in runs], 4) for runs in seeds.values()),
                _METRIC_NAMES.get(metric, metric),
                *(_spread([run[metric] for run in runs]) for runs in seeds.values()),
                f"{min(differences):+.2f} to {max(differences):+.2f}",
                f"{len(differences)}",
            )
        )
    recipe = content["recipe"]
    titles = ("task", "updates", *(f"loss, {dtype}" for dtype in seeds), "score", *seeds)
    caption = (
        f"From {content['weights']}, batches of {recipe['batch_size']}, rate "
        f"{recipe['learning_rate']:g}; mean and standard deviation over the seeds. "
        f"{_machine(content)}"
    )
    return _table(caption, (*titles, "bfloat16 less float32, by seed", "seeds"), rows)


def finetune(results: Path, name: str = "finetune") -> str:
    """A row for each task: its scores on dev, and the seconds of a seed."""
    content = _read(results / f"{name}.json")
    titles = (
        *("task", "dev examples", "figure", "bertjax", "transformers"),
        *("bertjax, s a seed", "transformers, s a seed", "bertjax is", "seeds", "how"),
    )
    rows = []
    for task, result in content["tasks"].items():
        seeds = [list(result[way].values()) for way in _WAYS]
        dev = [[next(iter(seed["dev"].values())) for seed in each] for each in seeds]
        metrics = _main_metrics(task, dev[0][0])
        seconds = [_seconds(each) for each in seeds]
        rows.append(
            (
                _task_name(task),
                f"{result['examples']:,}",
                ", ".join(_METRIC_NAMES.get(metric, metric) for metric in metrics),
                *(_scores(each, metrics) for each in dev),
                *(f"{value:,.0f}" if value else "" for value in seconds),
                _times(seconds[1] / seconds[0]) if all(seconds) else "",
                " and ".join(dict.fromkeys(str(len(each)) for each in seeds if each)),
                _how(result["recipe"]),
            )
        )
    caption = (
        f"From {content['weights']}, in float32. {content['machine']}; "
        f"{_versions(content['versions'])}."
    )
    return _table(caption, titles, rows)


def embeddings(results: Path) -> str:
    """A row for each data set: the scores before, and after training by each way."""
    content = _read(results / "embeddings.json")
    runs = {way: list(seeds.values()) for way, seeds in content["results"].items()}
    names = list(runs["before"][0]["scores"])
    rows: list[Sequence[str]] = [
        (name, *(_spread([run["scores"][name] for run in each]) for each in runs.values()))
        for name in names
    ]
    means = ([statistics.mean(run["scores"].values()) for run in each] for each in runs.values())
    rows.append(("mean", *map(_spread, means)))
    settings = content["settings"]
    caption = (
        f"The first {settings['layers']} layers of all-MiniLM-L6-v2, {settings['epochs']:g} epoch, "
        f"batches of {settings['batch_size']}, rate {settings['rate']:g}, "
        f"{len(runs['bertjax'])} seeds. {content['machine']['cores']} cores; "
        f"{_versions(content['versions'])}."
    )
    return _table(caption, ("", *runs), rows)


_METRIC_NAMES = {
    **{"f1": "F1", "macro_f1": "macro F1", "micro_f1": "micro F1"},
    **{"exact": "exact match", "exact_match": "exact match"},
    **{metric: metric.capitalize() for metric in ("matthews", "pearson", "spearman")},
}


def _task_name(task: str) -> str:
    names = {
        "ner": "CoNLL-2003, each sentence alone",
        "ner-context": "CoNLL-2003, with document context",
        "squad": "SQuAD 1.1",
    }
    if task.startswith("ner-") and task not in names:
        return f"CoNLL-2003, BiLSTM over {task.removeprefix('ner-')}"
    return names.get(task, task)


def _main_metrics(task: str, scores: dict[str, float]) -> list[str]:
    """The figures that papers print: of entities F1, else all but the mean of the others."""
    if task.startswith("ner"):
        return ["f1"]
    return [metric for metric in scores if metric != "mean" and "_at_" not in metric]


def _scores(dev: list[dict[str, float]], metrics: list[str]) -> str:
    """The figures of all seeds; "" without a seed."""
    return ", ".join(_spread([scores[metric] for scores in dev]) for metric in metrics if dev)


def _seconds(seeds: list[dict[str, Any]]) -> float | None:
    """The mean; the time of a seed that was interrupted is null."""
    known = [seed["seconds"] for seed in seeds if seed["seconds"]]
    return statistics.mean(known) if known else None


_TRAINED = {  # the ways of adapters.py -> in the table
    "whole": "all",
    "lora": "LoRA of rank 8 in all kernels of the layers",
    "frozen": "all but the embeddings and three of six layers",
}


def adapters(results: Path) -> str:
    """What is trained in each way, what an update and a model take, and the scores."""
    content = _read(results / "adapters.json")
    rows = []
    for task, ways in content["tasks"].items():
        for way, figures in ways.items():
            dev = [seed["dev"]["dev"] for seed in figures["seeds"].values()]
            metrics = _main_metrics(task, dev[0])
            rows.append(
                (
                    f"{_task_name(task)}: {', '.join(metrics)}",
                    _TRAINED[way],
                    f"{figures['parameters'] / 1e6:.2f}",
                    f"{figures['state'] / 1e6:.1f}",
                    f"{figures['saved'] / 1e6:.1f}",
                    f"{figures['update']['operations'] / 1e9:.0f}",
                    _scores(dev, metrics),
                    f"{figures['how']['rate']:g}",
                )
            )
    titles = ("task", "trained", "million parameters", "MB of a checkpoint", "MB of the model")
    titles += ("10^9 operations of 32 x 32 tokens", "score on dev", "rate")
    caption = (
        f"From {content['weights']}, in float32, {len(dev)} seeds. {content['machine']}; "
        f"{_versions(content['versions'])}."
    )
    return _table(caption, titles, rows)


def _how(recipe: dict[str, Any]) -> str:
    grid = recipe["grid"]
    (size,), (epochs,), (rate,) = grid["batch_size"], grid["epochs"], grid["learning_rate"]
    words = [f"{epochs} epochs, batches of {size}, rate {rate:g}".replace("e-0", "e-")]
    if recipe.get("layers"):
        words.append(f"the first {recipe['layers']} layers")
    if recipe.get("train"):
        words.append(f"the first {recipe['train']:,} examples to learn from")
    return "; ".join(words)


def equal_minutes(results: Path, name: str = "equal_minutes") -> str:
    """The models that were trained for equal minutes."""
    return table_of_minutes(_read(results / f"{name}.json"))


MINUTES_WAYS = {  # of equal_minutes.py -> in the tables
    "bert": "BERT's recipe",
    "modernbert": "the modern recipe",
    "electra": "ELECTRA's recipe",
    "modern_electra": "the modern recipe, replaced tokens",
    "transformers": "transformers, Trainer with BertForMaskedLM",
    "fast": "the fast recipe",
    "transformers_modernbert": "transformers, Trainer with ModernBertForMaskedLM",
}


def fine_tuned_minutes(results: Path) -> str:
    """The models that were trained for equal minutes, fine-tuned by the same recipe."""
    files = {way: results / f"finetune_{way}_mini.json" for way in MINUTES_WAYS}
    contents = {way: _read(file) for way, file in files.items() if file.exists()}
    first, rows = next(iter(contents.values())), []
    for task, result in first["tasks"].items():
        metrics, seeds, cells = (), {}, []
        for content in contents.values():
            if task not in content["tasks"]:
                cells.append("")
                continue
            trials = content["tasks"][task]["bertjax"].values()
            dev = [next(iter(trial["dev"].values())) for trial in trials]
            metrics = metrics or _main_metrics(task, dev[0])
            seeds[str(len(dev))] = None
            cells.append(_scores(dev, metrics))
        figures = ", ".join(_METRIC_NAMES.get(metric, metric) for metric in metrics)
        how = _how(result["recipe"])
        rows.append((_task_name(task), figures, *cells, " and ".join(seeds), how))
    titles = ("task", "figure", *(MINUTES_WAYS[way] for way in contents), "seeds", "how")
    where: dict[str, list[str]] = {}
    for way, content in contents.items():
        place = f"{content['machine']}; {_versions(content['versions'])}"
        where.setdefault(place, []).append(MINUTES_WAYS[way])
    places = (f"{' and '.join(ways)}: {place}" for place, ways in where.items())
    return _table(f"On dev. {'; '.join(places)}.", titles, rows)


def table_of_minutes(content: dict[str, Any]) -> str:
    """A row for each way of a report of equal_minutes.py; a discriminator fills no masks."""
    rows = [
        (
            MINUTES_WAYS[way],
            f"{figures['steps']:,}",
            f"{figures['tokens'] / 1e6:.2f}",
            f"{figures['seconds_a_step'] * 1e3:,.0f}",
            *(
                (
                    f"{figures['mlm_loss']:.2f}",
                    f"{figures['mlm_accuracy']:.1%} ± {figures['mlm_accuracy_stderr']:.1%}",
                )
                if "mlm_loss" in figures
                else ("", "")
            ),
        )
        for way, figures in content["ways"].items()
    ]
    caption = f"{content['minutes']:.0f} minutes each, one seed. {_machine(content)}"
    titles = ("way", "updates", "million tokens", "ms an update", "loss, nats", "accuracy")
    return _table(caption, titles, rows)


def study(name: str, results: Path) -> str:
    """The table of a study (launch/study.py), and the time of all its runs."""
    content = _read(results / f"{name}.json")
    minutes = content["seconds"] / 60
    return f"{studies.text(content)} The times of its runs add up to {minutes:,.0f} minutes."


# ----------------------------------------------------------------- estimated by the TPU compiler


def tpu_steps(results: Path) -> str:
    """A row for each phase of each shipped config: memory and time of one update."""
    rows = [
        (
            config,
            phase["slice"],
            libtpu,
            f"{phase['step']['length']:,}",
            _sequences(phase["step"]),
            f"{_gib(phase):.2f} of {phase['memory'] / _GIB:.2f}",
            *(_step(phase, yardstick) for yardstick in _YARDSTICKS),
            f"{phase['estimate']['tokens_per_second'] / 1e6:.2f}",
            f"{phase['collective_seconds'] * 1e3:.1f}",
        )
        for config, libtpu, phases in _reports(results)
        for phase in phases
    ]
    titles = (
        *("config", "slice", "libtpu", "length", "sequences", "GiB of a device"),
        *("a step, estimate", "a step, count", "million tokens/s, estimate", "collectives, ms"),
    )
    return _table("", titles, rows)


def tpu_runs(results: Path) -> str:
    """A row for each shipped config: the time of its run, with all collectives hidden or none."""
    rows = []
    for config, _, phases in _reports(results):
        hidden = sum(phase["step"]["steps"] * phase["estimate"]["seconds"] for phase in phases)
        moved = sum(phase["step"]["steps"] * phase["collective_seconds"] for phase in phases)
        both = hidden, hidden + moved
        rows.append(
            (
                config,
                phases[0]["slice"],
                f"{max(map(_gib, phases)):.2f} of {phases[0]['memory'] / _GIB:.2f}",
                " to ".join(f"{seconds / 86_400:.2f}" for seconds in both),
                " to ".join(f"{seconds / 3_600 * phases[0]['chips']:,.0f}" for seconds in both),
            )
        )
    return _table("", ("config", "slice", "GiB of a device", "days", "chip-hours"), rows)


def tpu_parts(results: Path) -> str:
    """The time of each part of the model in base_16 on v5e."""
    phases = _read(results / "base_16_v5e.json")["phases"]
    rows = [
        (
            part,
            *(
                f"{sum(phase[yardstick]['parts'][part].values()) * 1e3:.1f}"
                for phase in phases
                for yardstick in _YARDSTICKS
            ),
        )
        for part in phases[0]["estimate"]["parts"]
        if any(sum(phase["estimate"]["parts"][part].values()) for phase in phases)
    ]
    titles = (
        "part",
        *(
            f"ms at length {phase['step']['length']}, {yardstick}"
            for phase in phases
            for yardstick in _YARDSTICKS
        ),
    )
    return _table("", titles, rows)


def tpu_calibration(results: Path) -> str:
    """Operations whose least time is known, by both yardsticks."""
    return table_of_calibration(_read(results / "tpu_calibration.json"))


def table_of_calibration(content: dict[str, Any]) -> str:
    """The same for a report of tpu_calibration.py."""
    rows = [
        (
            name,
            *(
                f"{1e3 * seconds:.3f}"
                for seconds in (
                    *(found["least"], found["xla"]["estimate"], found["xla"]["count"]),
                    found["pallas"]["count"],
                )
            ),
        )
        for name, found in content["operations"].items()
    ]
    caption = (
        f"Milliseconds on one chip of {content['topology']}, bfloat16. "
        f"{_versions(content['versions'])}."
    )
    titles = ("operation", "least", "XLA, estimate", "XLA, count", "Pallas, count")
    return _table(caption, titles, rows)


def tpu_kernels(results: Path) -> str:
    """Attention alone, by kernels and by einsum."""
    return table_of_kernels(_read(results / "tpu_kernels.json"))


def table_of_kernels(content: dict[str, Any]) -> str:
    """The same for a report of tpu_kernels.py."""

    def cell(found: dict[str, Any], name: str) -> str:
        return f"{1e3 * found[name]:.3f}" if name in found else "-"

    rows = [
        (
            f"{topology.partition(':')[0]}, {shape}",
            *(cell(found.get("einsum", {}), name) for name in ("estimate", "count")),
            *(cell(found["kernel"], f"attention_{way}") for way in ("forward", "backward")),
            *(cell(found["kernel"], name) for name in ("estimate", "count")),
        )
        for topology, shapes in content["chips"].items()
        for shape, found in shapes.items()
    ]
    caption = (
        "Milliseconds of attention alone on one chip, forward and backward, bfloat16. "
        f"{_versions(content['versions'])}."
    )
    einsum = ("einsum, estimate", "einsum, count")
    kernels = ("kernel forward", "kernel backward", "kernels, estimate", "kernels, count")
    return _table(caption, ("chip and shape", *einsum, *kernels), rows)


def tpu_layers(results: Path) -> str:
    """The time of one layer of each kind, of the encoders that have several."""
    rows = []
    for config, _, phases in _reports(results):
        for phase in phases:
            if kinds := phase["estimate"]["layers"]:
                step = phase["step"]
                tokens = step["batch_size"] * step["length"] // phase["chips"]
                rows.append(
                    (
                        config,
                        phase["slice"],
                        f"{step['length']:,}",
                        f"{tokens:,}",
                        *(_layer(kinds[kind]) for kind in ("global", "local")),
                    )
                )
    titles = ("config", "slice", "length", "tokens of a chip", "a global layer", "a local layer")
    return _table("", titles, rows)


def _layer(kind: dict[str, float]) -> str:
    return f"{1e3 * (kind['forward'] + kind['backward']):.1f} ms (of {kind['count']})"


def tpu_estimates(results: Path) -> str:
    """Updates of bertjax and of FlaxBertForPreTraining, by each yardstick that both have."""
    content = _read(results / "tpu_estimates.json")
    rows = []
    for row in content["rows"]:
        config, topology, length, sequences = row["shape"]
        ways = [row[way] for way in _WAYS]
        for yardstick in _YARDSTICKS:
            if all(yardstick in way for way in ways):
                result, reference = (way[yardstick]["seconds"] for way in ways)
                rows.append(
                    (
                        config.removeprefix("pretrain_"),
                        topology,
                        f"{length}",
                        f"{sequences:,}",
                        yardstick,
                        *(_step(way, yardstick) for way in ways),
                        _times(reference / result),
                    )
                )
    titles = ("config", "slice", "length", "sequences", "by", *_WAYS, "bertjax is")
    return _table(f"Compiled with {_versions(content['versions'])}.", titles, rows)


def table_of_tpu_steps(content: dict[str, Any]) -> str:
    """The table of a report of tpu_step.py."""
    rows = [
        (
            row["config"],
            f"{row['length']}",
            f"{row['rows']}",
            row["attention"],
            _range(row["milliseconds"], "{:.1f}"),
            *(
                f"{1e3 * row[yardstick]:.1f}" if yardstick in row else ""
                for yardstick in _YARDSTICKS
            ),
        )
        for row in content["rows"]
    ]
    caption = (
        f"Milliseconds of a step of size {content['size']} on one {content['device']}; five rounds "
        f"of {content['steps']} steps. "
        f"{_versions(content['versions'])}."
    )
    titles = ("config", "length", "sequences", "attention", "measured (range)", *_YARDSTICKS)
    return _table(caption, titles, rows)


def _step(report: dict[str, Any], yardstick: str) -> str:
    times = report[yardstick]
    return f"{times['seconds'] * 1e3:,.1f} ms, MFU {times['mfu']:.1%}"


def _reports(results: Path) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """(config, version of libtpu, its phases) of every report of launch/compile_check.py."""
    paths = sorted(results.glob("*_v[0-9]*.json"), key=lambda path: path.stem.rpartition("_"))
    reports = ((path.stem.rpartition("_")[0], _read(path)) for path in paths)
    return [(name, report["versions"]["libtpu"], report["phases"]) for name, report in reports]


def _gib(phase: dict[str, Any]) -> float:
    return (phase["arguments"] + phase["temporaries"]) / _GIB


def _sequences(step: dict[str, Any]) -> str:
    microbatches = f" in {step['accumulate']} microbatches" if step["accumulate"] > 1 else ""
    return f"{step['batch_size']:,}{microbatches}"


# ------------------------------------------------------------------------------------ a summary


def speed(results: Path) -> str:
    """A line or two of each comparison, the slower ones too, for README."""
    steps = _read(results / "train_step.json")["ways"]
    vectors = _read(results / "extract_features.json")["ways"]
    text = _read(results / "tokenization.json")
    megabytes = [f"{row['megabytes_per_second']:.1f}" for row in text["results"]]
    contents = [_read(results / f"{name}.json") for name in ("finetune", "finetune_labels")]
    tasks = [task for content in contents for task in content["tasks"].values()]
    seconds = [[_seconds(list(task[way].values())) for way in _WAYS] for task in tasks]
    ratios = [reference / result for result, reference in filter(all, seconds)]
    rows = [
        (
            f"training step, CPU, {how}",
            f"{steps['bertjax']['sequences_per_second']:.1f} sequences/s",
            f"{steps[way]['sequences_per_second']:.1f}",
            _times(steps[way]["ratio"]),
        )
        for way, how in (("shipped", "as shipped"), ("gathered", "head on masked positions"))
    ]
    for content in _read(results / "train_step_compiled.json"):
        result, reference = _best(content)
        work = f"training step, H100, BERT-Base, length {content['shapes']['length']}"
        rows.append((work, f"{result:.1f} ms", f"{reference:.1f}", _times(reference / result)))
    # Of the runs that train vectors, only the last seeds had the machine alone.
    alone = [
        list(runs.values())[-1] for runs in _read(results / "embeddings.json")["results"].values()
    ]
    result, reference = (run["seconds"] for run in alone[1:])
    return _table(
        "",
        ("work", "bertjax", "other library", "bertjax is"),
        [
            *rows,
            (
                f"fine-tuning, CPU, {len(ratios)} tasks",
                "",
                "",
                f"{min(ratios):.2f} to {_times(max(ratios))}",
            ),
            (
                "training of vectors, CPU, sentence-transformers",
                f"{result:.0f} s",
                f"{reference:.0f}",
                _times(reference / result),
            ),
            (
                "vectors of sentences, CPU",
                f"{vectors['bertjax']['sentences_per_second']['median']:.0f} sentences/s",
                f"{vectors['transformers']['sentences_per_second']['median']:.0f}",
                _times(vectors["transformers"]["ratio"]),
            ),
            (
                "text to ids, CPU, `tokenizers`",
                f"{megabytes[0]} MB/s",
                megabytes[1],
                _times(text["ratio"]),
            ),
        ],
    )


# ---------------------------------------------------------------------------------------- words


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _table(caption: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{caption}\n\n{table}" if caption else table


def _times(ratio: float) -> str:
    return f"{ratio:.2f}x as fast"


def _range(figures: dict[str, float], form: str) -> str:
    """The median, and in parentheses the least and the greatest."""
    median, low, high = (form.format(figures[n]) for n in ("median", "minimum", "maximum"))
    return f"{median} ({low} to {high})"


def _spread(values: list[float], digits: int = 2) -> str:
    """Mean and standard deviation, or the only value."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _machine(content: dict[str, Any]) -> str:
    cores = "1 core" if content["cores"] == 1 else f"{content['cores']} cores"
    return (
        f"{cores} ({content['machine']}), load average {content['load']:.1f}; "
        f"{_versions(content['versions'])}."
    )


TABLES: dict[str, Callable[[Path], str]] = {
    function.__name__: function
    for function in (
        *(train_step, train_step_compiled, attention_gpu),
        *(input_pipeline, extract_features, tokenization),
        *(bfloat16, dtypes, finetune, adapters),
        embeddings,
        *(equal_minutes, fine_tuned_minutes),
        *(
            tpu_calibration,
            tpu_kernels,
            tpu_steps,
            tpu_runs,
            tpu_parts,
            tpu_layers,
            tpu_estimates,
            speed,
        ),
    )
} | {name: partial(study, name) for name in STUDIES}
TABLES["first_minutes"] = partial(equal_minutes, name="first_minutes")
TABLES["train_step_gpu"] = partial(train_step, name="train_step_gpu")
TABLES["finetune_labels"] = partial(finetune, name="finetune_labels")


def main() -> None:
    for path in documents():
        text = path.read_text(encoding="utf-8")
        if (rendered := render(text)) != text:
            path.write_text(rendered, encoding="utf-8")
            print(f"{path.relative_to(REPOSITORY)}: written anew")


if __name__ == "__main__":
    main()
