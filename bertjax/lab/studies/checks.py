"""Finds what is wrong with a study before its first stage runs."""

import re
from collections.abc import Iterable, Iterator

from bertjax.base.checks import check_choice
from bertjax.base.errors import InputError
from bertjax.base.limits import Count, check
from bertjax.lab.studies.files import StudyFiles
from bertjax.lab.studies.study import EVALUATE, EVALUATIONS, GRAMMAR, MASKED_TEXT, Stage, Study
from bertjax.runs.fine_tuning.recipe import TaskRecipe
from bertjax.runs.recipe import Recipe
from bertjax.tasks.probabilities import BY

# How many stages a program starts from: at least, and at most.
_STARTS = {
    **{"pretrain": (0, 1), "finetune": (0, 1), **dict.fromkeys(EVALUATIONS, (1, 1))},
    **{"ensemble": (2, None), "submission": (1, None)},
}
# The flags of programs without a config.
_FLAGS = {EVALUATE: {"batches"}, GRAMMAR: {"most"}, "ensemble": {"by"}}
# The metrics that a task may have, by what its model learns: `Family.objective`.
_METRICS = {
    **dict.fromkeys(
        ("sequence_classification", "answer_network"), "accuracy|f1|macro_f1|matthews|mean"
    ),
    "multi_label_classification": r"(macro|micro)_f1(_at_0\.5)?|exact_match",
    "regression": "spearman|pearson|mean",
    "multiple_choice": "accuracy",
    "question_answering": "(HasAns_|NoAns_)?(exact|f1)(_tuned)?",
    **dict.fromkeys(
        ("token_classification", "tag_sequence"), "accuracy|(precision|recall|f1)(_.+)?"
    ),
}


def check_stage(stage: Stage, files: StudyFiles) -> None:
    """Checks what a stage starts from, and the flags of a program without a config.

    Raises InputError, which names the field, not the stage.
    """
    least, most = _STARTS[stage.program]
    names = [each.name for each in stage.start]
    if len(names) < least or (most is not None and len(names) > most):
        shown = ", ".join(names) or "none"
        raise InputError(
            f"start: has {shown}: {stage.program} takes {least} or more stages"
            if most is None
            else f"start: has {shown}: {stage.program} takes at least {least}, at most {most} stage"
        )
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"start: has {twice} twice: name each stage once")
    if not stage.config and set(stage.settings) != (flags := _FLAGS.get(stage.program, set())):
        raise InputError(
            f"settings={dict(stage.settings)}: {stage.program} without a config has these: "
            f"{_listed(flags) or 'none'}"
        )
    by, batches = stage.settings.get("by"), stage.settings.get("batches", 1)
    if stage.program == "ensemble":
        check_choice("settings: by", by, BY)
    if stage.program == EVALUATE:
        check("settings: batches", batches, Count)
    if stage.program == GRAMMAR:
        check("settings: most", stage.settings.get("most"), Count | None)
        files.pairs(stage)
    if stage.step is not None:
        _check_step(stage, files)


def _check_step(stage: Stage, files: StudyFiles) -> None:
    if not stage.start or stage.start[0].program != "pretrain":
        raise InputError(f"step={stage.step}: only a stage that starts from a pre-training has one")
    recipe = Recipe.from_config(files.config(stage.start[0]))
    ends = {steps.stop for _, _, steps in recipe.steps()}
    every = recipe.intervals.checkpoint
    saved = sorted({*range(every, recipe.total_steps + 1, every), *ends})
    kept = set(saved[-recipe.keep_checkpoints :])
    if recipe.keep_checkpoint_every:
        kept |= {step for step in saved if step % recipe.keep_checkpoint_every == 0}
    if stage.step not in kept:
        near = sorted(sorted(kept, key=lambda step: abs(step - stage.step))[:3])
        raise InputError(
            f"step={stage.step}: {stage.start[0].name} keeps no checkpoint of it; the nearest are "
            f"{', '.join(map(str, near))}: see its intervals.checkpoint and keep_checkpoint_every"
        )


def wrong_figures(study: Study, files: StudyFiles) -> Iterator[str]:
    """Yields a message for each stage that cannot write the figure of its column."""
    for column in study.columns:
        for row in study.rows:
            for stage in row.of(column.stage):
                if known := _unknown_figure(stage, column.figure, files):
                    yield (
                        f"row {row.name!r}, column {column.name!r}: figure={column.figure!r}: "
                        f"stage {stage.name} has {known}"
                    )


def _unknown_figure(stage: Stage, figure: str, files: StudyFiles) -> str:
    """The figures that a stage has, in words, if this is none of them; else ""."""
    if stage.program == MASKED_TEXT:
        known = ("mlm_loss", "mlm_accuracy", "mlm_accuracy_stderr")
        return "" if figure in known else ", ".join(known)
    if stage.program == GRAMMAR:
        pattern = r"(overall|over_pairs|(fields|phenomena|paradigms)/[^/]+)/(accuracy|stderr)"
        has = "overall/accuracy, phenomena/NAME/accuracy"
        return "" if re.fullmatch(pattern, figure) else has
    place, slash, metric = figure.partition("/")
    if stage.program == EVALUATE:
        recipe = Recipe.from_config(files.config(stage.start[0]))
        lengths = {str(phase.length) for phase in recipe.phases}
        metrics = {"loss", *recipe.objective.columns}
        metrics |= {f"{name}_stderr" for name in metrics if name.endswith("accuracy")}
        fits = place in lengths and metric in metrics
        return "" if fits else f"LENGTH/METRIC of {_listed(lengths)} and {_listed(metrics)}"
    if stage.program not in ("finetune", "ensemble"):
        return f"none ({stage.program} writes no figures)"
    tuned = stage.start[0] if stage.program == "ensemble" else stage
    fine_tuning = TaskRecipe.from_config(files.config(tuned))
    parts = fine_tuning.features.choices if fine_tuning.features else ("",)
    if stage.program == "finetune" and stage.part not in parts:
        return f"no part {stage.part!r} in its results; there are {_listed(parts)}"
    task = fine_tuning.task
    splits = {*task.dev_splits, *task.test_splits, "test"}  # the file of a test may come later
    pattern = _METRICS[task.family.objective]
    if slash and place in splits and re.fullmatch(pattern, metric):
        return ""
    return f"SPLIT/METRIC of {_listed(splits)} and of the metrics of {task.name}"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))
