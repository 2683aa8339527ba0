"""The bands of held-out figures that are on file (health.json), and the verdict on a run.

A band is compared with runs that are like its own: the same encoder and size, objective, masking
of the held-out text, length and optimizer, begun from fresh parameters. Text in another language or
of another domain has other losses, so the two texts must have their frequent words in common. With
another vocabulary the losses differ, too. So they are compared as nats below the loss of the best
guess that reads no context, and only where that loss is about the same.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertjax.base.cloud_storage import reach
from bertjax.base.files import read_json, write_json
from bertjax.base.json_kinds import Either, OptionalFields
from bertjax.corpus.frequencies import common_share, frequent_words, word_frequencies
from bertjax.corpus.store import TokenStore
from bertjax.runs.recipe import PhaseSpec, Recipe
from bertjax.runs.run_folder import read_config
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.journal import read_metrics
from bertjax.training.verdict import DIVERGING, Band, Curve, Health, Stage, Verdict

BANDS_FILE = Path(__file__).with_name("health.json")
TEXT_FILE = "health.json"  # of a run folder: what the verdict needs to know of the run's text

_SAME_WORDS = 0.8  # the least share of frequent words in common of texts that are compared
_SAME_TEXT = 0.3  # nats between the losses without context of texts that are compared
_LONGER = 3  # a run of more than so many times the tokens has its rate fall later than the band's

_CURVE = {
    **{"run": str, "recipe": {"batch_tokens": int}},
    **{"tokens": [int], "loss": [float], "accuracy": [float]},
}
_BAND = {
    **{"like": {}, "text": str, "vocabulary_size": int, "without_context": float},
    **{"words": {str: float}, "curves": [_CURVE]},
}
_TEXT = {"vocabulary_size": int, "without_context": Either((float, None))}
_WORDS = OptionalFields({"words": {str: float}})  # earlier versions wrote none
_KIND = {"margin": {"nats": float, "accuracy": float}, "bands": [_BAND]}


def read_bands(path: Path = BANDS_FILE) -> dict[str, Any]:
    """The data file, which tests/benchmarks/health_bands.py writes.

    Its "bands" are the curves of our own runs; "margin" is how far a usual run may be from them.
    "published" has the figures of others, which no verdict uses: their text is not ours.

    Raises:
      InputError: it is damaged.
    """
    return read_json(path, _KIND, cure="install bertjax again")


def describe_text(recipe: Recipe, tokenizer: Tokenizer, train: TokenStore) -> dict[str, Any]:
    """Describes a run's text as a verdict needs it; a run has this in `TEXT_FILE`.

    Returns:
      vocabulary_size; without_context: the loss (nats) of the best guess that reads no context;
      and words: of `frequent_words`.
    """
    frequencies = word_frequencies(train, tokenizer.special_ids)
    return {
        "vocabulary_size": tokenizer.vocabulary_size,
        "without_context": recipe.objective.loss_without_context(frequencies, recipe.masking),
        "words": frequent_words(frequencies, tokenizer),
    }


def likeness(recipe: Recipe, phase: PhaseSpec) -> dict[str, Any]:
    """What runs must have in common in a phase to be compared by one band."""
    spec = recipe.spec(vocab_size=1)
    return {
        "encoder": spec.encoder,
        "layers": spec.num_hidden_layers,
        "hidden_size": spec.hidden_size,
        "heads": spec.num_attention_heads,
        "objective": recipe.objective.name,
        "packed": recipe.packed,
        "masking": dataclasses.asdict(recipe.masking),
        "length": phase.length,
        "optimizer": recipe.optimizer.name,
    }


def health_of(
    recipe: Recipe, text: Mapping[str, Any], bands: Mapping[str, Any] | None = None
) -> Health:
    """The rules for a run.

    Args:
      text: of `describe_text`; {}: not known.
      bands: of `read_bands`, by default of the package's file.
    """
    bands = read_bands() if bands is None else bands
    stages = []
    for _, phase, steps in recipe.steps():
        band, why = find_band(recipe, phase, text, bands)
        stages.append(Stage(steps.stop, phase.batch_size * phase.length, band, why))
    return Health(
        stages=tuple(stages),
        warmup_steps=recipe.optimizer.warmup_steps,
        without_context=text.get("without_context"),
        warning=recipe.objective.warning,
        warned=recipe.objective.warned,
    )


def find_band(
    recipe: Recipe, phase: PhaseSpec, text: Mapping[str, Any], bands: Mapping[str, Any]
) -> tuple[Band | None, str]:
    """The band for a phase of a run; or None, and why there is none.

    The losses of the band are moved by the difference of the losses without context.
    """
    if recipe.init_from:
        return None, "no band for runs from given weights"
    like, own = likeness(recipe, phase), text.get("without_context")
    found = [band for band in bands["bands"] if band["like"] == like]
    if not found or own is None:
        size = f"{like['encoder']} of {like['layers']} layers of {like['hidden_size']}"
        return None, (
            f"no band for {size} with {like['objective']} and {like['optimizer']} at length "
            f"{like['length']}"
        )
    if text.get("words") is None:
        return None, (
            f"its {TEXT_FILE} is of an earlier version and lacks the frequent words of its text: "
            "give the run's command again, and it writes them"
        )
    shared = [common_share(band["words"], text["words"]) for band in found]
    if max(shared) < _SAME_WORDS:
        band = found[int(np.argmax(shared))]
        return None, (
            f"the band for this size is of another language or domain ({band['text']}): this run's "
            f"text has {max(shared):.0%} of its frequent words, and must have {_SAME_WORDS:.0%}"
        )
    found = [band for band, share in zip(found, shared, strict=True) if share >= _SAME_WORDS]
    band = min(found, key=lambda band: abs(band["without_context"] - own))
    difference = own - band["without_context"]
    if abs(difference) > _SAME_TEXT:
        return None, (
            f"the band for this size is of other text ({band['text']}): without the context, its "
            f"words have a loss of {band['without_context']:.2f}, and those of this run {own:.2f}"
        )
    whole = sum(len(steps) * each.batch_size * each.length for _, each, steps in recipe.steps())
    recorded = band["curves"]
    longest = max(curve["tokens"][-1] for curve in recorded)
    if whole > _LONGER * longest:
        return None, (
            f"the band for this size is of shorter runs, to {longest / 1e6:,.1f} M tokens, whose "
            "rate falls sooner"
        )
    curves = tuple(
        Curve(
            np.array(curve["tokens"], float),
            np.array(curve["loss"]) + difference,
            np.array(curve["accuracy"]),
        )
        for curve in recorded
    )
    margin = bands["margin"]["nats"], bands["margin"]["accuracy"]
    names = [curve["run"] for curve in recorded]
    runs = ", ".join(names) if len(names) < 4 else f"{len(names)} runs"
    batch_tokens = min(curve["recipe"]["batch_tokens"] for curve in recorded)
    return Band(f"{runs} on {band['text']}", curves, batch_tokens, margin), ""


# ------------------------------------------------------------------------------ a run's folder


def write_text(run: Path, text: Mapping[str, Any], diverged: str = "") -> None:
    """Writes TEXT_FILE; with the error that ended the run, if its loss became infinite or nan."""
    write_json(run / TEXT_FILE, {**text, **({"diverged": diverged} if diverged else {})})


def read_text(run: str | os.PathLike) -> dict[str, Any]:
    """Reads TEXT_FILE; {} of a run that was begun before there was one.

    Raises:
      InputError: the run's folder cannot be read, or the file is damaged.
    """
    path = reach(run) / TEXT_FILE
    if not path.exists():
        return {}
    cure = "remove it: the run writes it again when it goes on"
    read_json(path, _WORDS, cure=cure)
    return read_json(path, _TEXT, cure=cure)


def verdict_of_run(run: str | os.PathLike) -> Verdict:
    """The verdict on a run by its folder: config.json, metrics.jsonl and TEXT_FILE.

    Raises:
      InputError: not a run, or a damaged one.
    """
    text = read_text(run)
    if "diverged" in text:
        return Verdict(DIVERGING, text["diverged"])
    recipe = Recipe.from_config(read_config(run))
    return health_of(recipe, text).verdict(read_metrics(run))
