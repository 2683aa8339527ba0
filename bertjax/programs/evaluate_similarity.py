"""Scores a model of vectors, or a reranker, on similarity and retrieval."""

from bertjax.base.cloud_storage import path_of
from bertjax.base.errors import InputError
from bertjax.base.files import write_json
from bertjax.runs.contrastive.evaluation import read_evaluation
from bertjax.runs.contrastive.opened import open_vectors
from bertjax.tasks.similarity.examples import Columns


def run(
    model: str, on: str, output: str | None, dimensions: int | None = None
) -> dict[str, dict[str, float]]:
    """Prints a line for each data set, and the mean of the main metrics if there are several.

    A model that has not learned to make vectors gives the mean of its tokens. `on` has the data
    sets of `bertjax.runs.contrastive.evaluation`, with commas between. `dimensions` are the
    first numbers of a vector that are compared, None for all.

    Returns:
      {data set: {metric: score}}, in percent.

    Raises:
      InputError: no such model or data set, or no vectors with so many numbers.
    """
    names = [name.strip() for name in on.split(",") if name.strip()]
    if not names:
        raise InputError(f"--on={on}: names no data set")
    sets = [read_evaluation(name, Columns()) for name in names]
    opened = open_vectors(model, dimensions)
    comparer, results, main_metrics = opened.comparer, {}, []
    for evaluation in sets:
        scores = evaluation.scores(comparer, opened.params)
        results[evaluation.name] = scores
        main_metrics.append(scores[evaluation.main_metric])
        others = ", ".join(
            f"{name} {value:.2f}"
            for name, value in scores.items()
            if name != evaluation.main_metric
        )
        print(
            f"{evaluation.name}: {evaluation.main_metric} "
            f"{scores[evaluation.main_metric]:.2f} ({others})",
            flush=True,
        )
    if len(main_metrics) > 1:
        print(f"mean of {len(main_metrics)}: {sum(main_metrics) / len(main_metrics):.2f}")
    if output:
        write_json(path_of(output), {"model": model, "scores": results})
    return results
