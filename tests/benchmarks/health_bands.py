"""Adds the held-out curves of finished runs to the bands that every run is compared with.

  python tests/benchmarks/health_bands.py --text="English Wikipedia" RUN ...

It reads config.json, health.json and metrics.jsonl of each RUN, and writes bertjax/runs/health.json
anew. Runs that are alike (`bertjax.runs.health.likeness`) on the same text share a band. A run that
is there already, by its folder's name, is replaced. A curve has the evaluations of the run itself,
on the held-out documents of its corpus, at most one for each 15 % more tokens. The margin of all
bands is the greatest spread over seeds in the table of configs/studies/modern_walk.py.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from bertjax.base.files import write_json
from bertjax.runs.health import BANDS_FILE, health_of, likeness, read_bands, read_text
from bertjax.runs.recipe import PhaseSpec, Recipe
from bertjax.runs.run_folder import read_config
from bertjax.training.journal import HELDOUT, read_metrics
from bertjax.training.verdict import ACCURACY, DIVERGING, LOSS

WALK = Path(__file__).resolve().parent / "results" / "modern_walk.json"
_APART = 1.15  # the least ratio of the tokens of neighbours in a curve
_SAME_TEXT = 0.01  # nats between the losses without context of one text


def add(content: dict[str, Any], run: Path, text: str) -> None:
    """Adds the curves of a run, one for each of its phases.

    Args:
      content: of the data file, which is changed.
      text: what the run has read, in words.
    """
    recipe, about = Recipe.from_config(read_config(run)), read_text(run)
    if about.get("without_context") is None or not about.get("words"):
        raise SystemExit(f"{run}: its health.json lacks the loss without context, or the words")
    rows = [row for row in read_metrics(run) if row["split"] == HELDOUT]
    if not rows or rows[-1]["step"] != recipe.total_steps:
        raise SystemExit(f"{run}: not finished")
    health = health_of(recipe, about)
    if health.verdict(rows).kind == DIVERGING:
        raise SystemExit(f"{run}: it diverged, so it is no measure for others")
    for _, phase, steps in recipe.steps():
        curve = {"run": run.resolve().name, "recipe": _recipe(recipe, phase)}
        curve |= {"tokens": [], "loss": [], "accuracy": []}
        within = [row for row in rows if steps.start < row["step"] <= steps.stop]
        for row in within:
            tokens = health.tokens(row["step"])
            if row is within[-1] or tokens >= _APART * max([0, *curve["tokens"][-1:]]):
                curve["tokens"].append(tokens)
                curve["loss"].append(round(row[LOSS], 4))
                curve["accuracy"].append(round(row[ACCURACY], 4))
        _put(content["bands"], {"like": likeness(recipe, phase), "text": text, **about}, curve)


def _recipe(recipe: Recipe, phase: PhaseSpec) -> dict[str, Any]:
    """How a run was trained, as far as runs of a band may differ in it."""
    optimizer = recipe.optimizer
    return {
        "total_steps": recipe.total_steps,
        "batch_tokens": phase.batch_size * phase.length,
        "learning_rate": optimizer.learning_rate,
        "schedule": optimizer.schedule,
        "warmup_steps": optimizer.warmup_steps,
        "masking_rate": phase.masking.rate,
        "seed": recipe.seed,
    }


def _put(bands: list[dict[str, Any]], band: dict[str, Any], curve: dict[str, Any]) -> None:
    """Puts a curve into the band of its kind, which is made where there is none."""
    for other in bands:
        near = abs(other["without_context"] - band["without_context"]) <= _SAME_TEXT
        if near and all(other[name] == band[name] for name in ("like", "text")):
            kept = [each for each in other["curves"] if each["run"] != curve["run"]]
            other["curves"] = [*kept, curve]
            return
    bands.append(band | {"curves": [curve]})


def spread(walk: dict[str, Any]) -> dict[str, Any]:
    """The greatest difference between seeds in the table of configs/studies/modern_walk.py."""

    def greatest(column: str) -> float:
        values = [row["cells"][column]["values"] for row in walk["rows"]]
        return max(max(each) - min(each) for each in values)

    return {
        "nats": round(greatest("masked-LM loss"), 3),
        "accuracy": round(greatest("accuracy"), 4),
        "origin": "the greatest difference between three seeds of equal training in "
        "tests/benchmarks/results/modern_walk.json, over all steps of that walk",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a finished run")
    parser.add_argument("--text", required=True, help="what the runs have read, in words")
    parser.add_argument("--output", type=Path, default=BANDS_FILE, help="the data file")
    arguments = parser.parse_args()
    content = read_bands(arguments.output)
    content["margin"] = spread(json.loads(WALK.read_text(encoding="utf-8")))
    for run in arguments.runs:
        add(content, run, arguments.text)
        print(f"{run}: added")
    write_json(arguments.output, content)


if __name__ == "__main__":
    main()
