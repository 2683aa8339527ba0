"""Evaluates a run on held-out documents."""

import dataclasses
from collections.abc import Sequence

from bertjax.base.cloud_storage import checked_path
from bertjax.base.files import write_json
from bertjax.base.limits import Many, check
from bertjax.data.corpus.store import HELDOUT, TokenStore
from bertjax.objectives.objective import PretrainingObjective
from bertjax.runs.assembly import held_out_examples
from bertjax.runs.initialize import frozen_params, open_sources
from bertjax.runs.pretrained_run import check_weights
from bertjax.runs.run_folder import EVALUATION_FILE, source_of
from bertjax.runs.source import load_run, open_model
from bertjax.training.evaluation import Evaluator
from bertjax.training.health import in_language
from bertjax.training.model import merged

_WIDTH = 15  # of a column: "0.5312 ± 0.0156"


def run(model: str, corpus: str | None, batches: int) -> dict[str, dict[str, float]]:
    """Losses and accuracies of RUN or RUN@STEP at each of its sequence lengths.

    The corpus is made with the same vocabulary; None for the run's own.

    Returns:
      {"128": {"mlm_loss": ...}, ...}: also printed, and written to RUN/evaluation.json.

    Raises:
      InputError: no such run, a corpus of another tokenizer, or too many batches.
    """
    check("--batches", batches, Many)
    folder = checked_path(source_of(model)[0], write=True)
    loaded = load_run(model)
    recipe, objective = loaded.recipe, loaded.objective
    corpora = [corpus] if corpus else recipe.corpus
    alpha = 1.0 if corpus else recipe.language_alpha
    identity = loaded.tokenizer.identity
    store = TokenStore.open(corpora, HELDOUT, alpha=alpha, tokenizer_identity=identity)
    evaluator = Evaluator(objective, loaded.model, loaded.placement)
    pretrained = open_sources(recipe, loaded.tokenizer, open_model, started=True)
    frozen, identities = frozen_params(loaded.model, loaded.placement, pretrained, recipe.seed)
    check_weights(identities, loaded.data, model, recipe)
    params, results = merged(loaded.params, frozen), {}
    for phase in {phase.length: phase for phase in recipe.phases}.values():
        phase = dataclasses.replace(phase, objective=objective)
        held_out = held_out_examples(recipe, phase, loaded.tokenizer, store)
        results[str(phase.length)] = evaluator.evaluate(params, held_out, batches)
    _print_table(
        results,
        objective,
        store.languages,
        f"step {loaded.step}, held-out text of {', '.join(corpora)}, "
        f"{batches * recipe.eval_batch_size:,} sequences of each length",
    )
    write_json(folder / EVALUATION_FILE, {"step": loaded.step, "corpus": list(corpora), **results})
    return results


def _print_table(
    results: dict[str, dict[str, float]],
    objective: PretrainingObjective,
    languages: Sequence[str],
    title: str,
) -> None:
    names = objective.columns
    print(title)
    print(f"{'length':<12}" + "  ".join(f"{name:>{_WIDTH}}" for name in names))
    for length, metrics in results.items():
        print(f"{length:<12}" + "  ".join(f"{_shown(metrics, name):>{_WIDTH}}" for name in names))
        for language in languages:
            cells = (_shown(metrics, in_language(language, name)) for name in names)
            print(f"  {language:<10}" + "  ".join(f"{cell:>{_WIDTH}}" for cell in cells))
    for length, metrics in results.items():
        if warning := objective.warning(metrics):
            print(f"length {length}: {warning}")


def _shown(metrics: dict[str, float], name: str) -> str:
    error = metrics.get(f"{name}_stderr")
    return f"{metrics[name]:.4f}" + (f" ± {error:.4f}" if error is not None else "")
