"""The health of a run, and the file with what it needs besides the lines of metrics."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertjax.base.cloud_storage import checked_path
from bertjax.base.files import read_json, write_json
from bertjax.base.validation import optional
from bertjax.data.corpus.frequencies import word_frequencies
from bertjax.data.corpus.store import TokenStore
from bertjax.runs.recipe import Recipe
from bertjax.runs.run_folder import read_config
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.health import DIVERGING, HealthRules, HealthStatus, PhaseSteps
from bertjax.training.metrics_log import read_metrics

HEALTH_FILE = "health.json"

_WHOLE = ""  # the text of all languages
Baselines = Mapping[str, float | None]
_KIND = optional(unigram_baseline=float, languages=dict[str, float], diverged=str)


def unigram_baselines(recipe: Recipe, tokenizer: Tokenizer, train: TokenStore) -> Baselines:
    """The main metric (nats) of the best guess that reads no context; None if it is not known.

    "" -> that of the whole text; if it has several languages, each -> that of its text.
    """

    predicted = recipe.spec_for(tokenizer).vocab_size  # some families do not predict all words

    def of(store: TokenStore) -> float | None:
        frequencies = word_frequencies(store, tokenizer.special_ids)
        if others := frequencies[predicted:].sum():
            frequencies = frequencies[:predicted]
            frequencies[tokenizer.unk_id] += others
        return recipe.objective.unigram_baseline(frequencies, recipe.masking)

    return {_WHOLE: of(train)} | {each: of(train.of_language(each)) for each in train.languages}


def health_of(recipe: Recipe, baselines: Baselines) -> HealthRules:
    """The rules for a run."""
    stages = tuple(PhaseSteps(steps.stop, phase.batch_tokens) for _, phase, steps in recipe.steps())
    languages = {name: each for name, each in baselines.items() if name and each is not None}
    overall = baselines.get(_WHOLE)
    return HealthRules(recipe.objective, stages, recipe.optimizer.warmup_steps, overall, languages)


def write_health(run: Path, health: HealthRules, diverged: str = "") -> None:
    """Writes HEALTH_FILE; with the error that ended the run, if its loss became infinite or nan."""
    content = {
        "unigram_baseline": health.unigram_baseline,
        **({"languages": dict(health.languages)} if health.languages else {}),
        **({"diverged": diverged} if diverged else {}),
    }
    write_json(run / HEALTH_FILE, content)


class RunHealth(NamedTuple):
    """The health of a run besides its metrics; `diverged`: the error that ended it, or ""."""

    recipe: Recipe
    health: HealthRules
    diverged: str

    def status(self, rows: Sequence[Mapping[str, Any]]) -> HealthStatus:
        """The health after the lines of its metrics.jsonl."""
        return HealthStatus(DIVERGING, self.diverged) if self.diverged else self.health.status(rows)


def health_of_run(run: str | Path) -> RunHealth:
    """Reads config.json and HEALTH_FILE of a run."""
    path = checked_path(run) / HEALTH_FILE
    hint = "remove it: the run writes it again when it goes on"
    about = read_json(path, _KIND, hint=hint) if path.exists() else {}
    recipe = Recipe.from_config(read_config(run))
    baselines = {_WHOLE: about.get("unigram_baseline")} | (about.get("languages") or {})
    return RunHealth(recipe, health_of(recipe, baselines), about.get("diverged") or "")


def health_status_of_run(run: str | Path) -> HealthStatus:
    """The health of a run by its folder; raises InputError if that is no run, or is damaged."""
    return health_of_run(run).status(read_metrics(run))
