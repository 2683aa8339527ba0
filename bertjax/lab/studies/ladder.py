"""Runs of several sizes and budgets: the law of each kind, and which kind gains with size."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertjax.base import figures
from bertjax.base.errors import InputError
from bertjax.base.files import read_json
from bertjax.lab.studies.scaling_law import Law, Run, best_size, fit, resampled
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import MASKED_TEXT_FILE, read_config
from bertjax.training.health import TRAIN
from bertjax.training.metrics_log import read_metrics

_SAME = 0.1  # budgets that differ by less than this share are one
RESAMPLED = 100
_INTERVAL = (5, 95)  # percentiles


class Lead(NamedTuple):
    """By how much the loss of one kind is below that of another, in runs of equal size and budget.

    `mean` is in nats. `by_size`, with its `stderr`, is what is added to it with each tenfold size.
    """

    mean: float
    by_size: float
    stderr: float
    runs: int


def read_run(folder: Path) -> Run:
    """What a run of pre-training used, and its loss on the text that is the same for all."""
    recipe = Recipe.from_config(read_config(folder))
    path = folder / MASKED_TEXT_FILE
    evaluate = f"run launch/evaluate.py --model={folder} --same_text"
    if not path.exists():
        raise InputError(f"{folder}: its loss is not known: {evaluate}")
    found = read_json(path, hint=evaluate)
    lines = [line for line in read_metrics(folder) if line["split"] == TRAIN]
    last = next((line for line in lines if line["step"] == found["step"]), {})
    if not lines or lines[-1] is not last or "flops" not in last:
        raise InputError(f"{folder}: {MASKED_TEXT_FILE} is not of its last update: {evaluate}")
    return Run(parameters(recipe), last["tokens"], last["flops"], found["mlm_loss"])


def parameters(recipe: Recipe) -> float:
    """The parameters of a recipe's model that multiply a token, without embeddings and decoder."""
    return recipe.spec().flops_per_token(length=2**20, predicted=0, context=0) / 6


def budgets(runs: Sequence[Run]) -> dict[float, list[Run]]:
    """The runs by their budget: the mean operations of those that have about as many."""
    groups: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: run.flops):
        if not groups or run.flops > (1 + _SAME) * groups[-1][0].flops:
            groups.append([])
        groups[-1].append(run)
    return {float(np.mean([run.flops for run in group])): group for group in groups}


def described(runs: Sequence[Run], at: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """The runs of one kind as JSON: their best sizes, their law, and its losses at other places.

    Args:
      at: name -> parameters and tokens.

    Returns:
      "runs"; "best_sizes", one for each budget: "flops", and "parameters" and "loss", or None where
      the minimum is not between the sizes; "law", or None with "why"; "exponent", of the best size;
      and "at", name -> loss. The last two, and the law's numbers, have an "interval" of 90 % over
      samples of the runs.
    """
    found: dict[str, Any] = {
        "runs": [run._asdict() for run in runs],
        "best_sizes": [
            {"flops": flops, **(best._asdict() if (best := best_size(group)) else {})}
            for flops, group in budgets(runs).items()
        ],
    }
    try:
        law = fit(runs)
    except ValueError as error:
        return {**found, "law": None, "why": str(error)}
    laws = resampled(runs, law, RESAMPLED)

    def value(of: Any) -> dict[str, Any]:
        return {
            "value": of(law),
            "interval": np.percentile([of(each) for each in laws], _INTERVAL).tolist(),
        }

    numbers = {
        **{name: value(lambda law, n=n: float(np.exp(law[n]))) for n, name in enumerate("EAB")},
        **{name: value(lambda law, name=name: getattr(law, name)) for name in ("alpha", "beta")},
    }
    return {
        **found,
        "law": numbers,
        "exponent": value(lambda law: law.exponent),
        "at": {
            name: {"parameters": n, "tokens": d, **value(lambda law, n=n, d=d: law.loss(n, d))}
            for name, (n, d) in at.items()
        },
    }


def law_of(found: Mapping[str, Any]) -> Law:
    """The law of what `described` returns."""
    law = {name: each["value"] for name, each in found["law"].items()}
    e, a, b = (float(np.log(law[name])) for name in "EAB")
    return Law(e, a, b, law["alpha"], law["beta"])


def lead(runs: Sequence[Run], baseline: Sequence[Run]) -> Lead | None:
    """The lead of `runs`; None if fewer than three pairs of runs are alike."""
    pairs = [
        (np.log10(a.parameters), b.loss - a.loss)
        for a, b in itertools.product(runs, baseline)
        if np.allclose((a.parameters, a.tokens), (b.parameters, b.tokens), rtol=0.02)
    ]
    if len(pairs) < 3:
        return None
    x, y = np.array(pairs).T
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    left = y - y.mean() - slope * x
    error = float(np.sqrt(left @ left / (len(x) - 2) / (x @ x)))
    return Lead(float(y.mean()), slope, error, len(pairs))


def draw(groups: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Writes a PNG: a panel for each group, with the loss over the size for each budget."""
    with figures.png(path, figsize=(1 + 4.5 * len(groups), 4)) as figure:
        panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
        for panel, (group_name, found) in zip(panels, groups.items(), strict=True):
            runs = [Run(**run) for run in found["runs"]]
            for flops, group in budgets(runs).items():
                group = sorted(group)
                sizes = [run.parameters for run in group]
                (line,) = panel.plot(
                    sizes, [run.loss for run in group], "o", label=f"{flops:.1e} FLOPs"
                )
                if found["law"]:
                    law = law_of(found)
                    fitted = [law.loss(run.parameters, run.tokens) for run in group]
                    panel.plot(sizes, fitted, "-", color=line.get_color(), alpha=0.7)
                if best := best_size(group):
                    panel.plot(*best, "*", color=line.get_color(), markersize=12)
            panel.set(title=group_name, xscale="log", xlabel="parameters without embeddings")
            panel.grid(alpha=0.3)
            panel.legend()
        panels[0].set_ylabel("masked-LM loss (nats)")
