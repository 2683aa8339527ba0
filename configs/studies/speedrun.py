"""The most from the same minutes: recipes next to each other, with the same budget on one machine.

Command:
  python launch/study.py --study=configs/studies/speedrun.py --corpus=DIR --data=FOLDER \\
    --workdir=STUDY

A word after the file is the budget of each pre-training, as in config.budget:
speedrun.py:80e6tokens. Every row has three seeds. FOLDER has blimp/blimp.jsonl.xz (minimal pairs),
and babylm/glue with the 10,000 rows of MNLI and of QQP that BabyLM's evaluation learns from
(mnli.train.jsonl.xz, ...). docs/results/speedrun.md has the rules and the table. A recipe of your
own is a line in RECIPES.
"""

from typing import Any

from bertjax.lab.studies.scales import Scale, grammar, same_text
from bertjax.lab.studies.study import Column, Row, Stage, Study

SEEDS = 3
# What is compared -> its config, and the settings that differ. All have 4 layers of 256.
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT's recipe": (
        "configs/pretrain_tiny.py",
        {
            **{"model.size": "mini", "phase_1.share": 1.0, "phase_2.share": 0.0},
            **{"phase_1.batch_size": 16, "optimizer.learning_rate": 1e-3},
        },
    ),
    "the modern recipe": ("configs/pretrain_modern_tiny.py", {"model.size": "mini"}),
    "the fast recipe": ("configs/pretrain_fast_mini.py", {}),
}
# Task -> its columns, and the file of dev.
TASKS: dict[str, dict[str, str]] = {
    "mnli": {"text": "premise", "text_b": "hypothesis"},
    "qqp": {"text": "question1", "text_b": "question2"},
}


def get_study(scale: Scale, budget: str = "20min") -> Study:
    """A pre-training for each recipe and seed, and what each model is worth."""
    del scale  # the recipes are for the machine at hand
    rows = []
    for name, (config, settings) in RECIPES.items():
        word = name.replace("'", "").replace(" ", "-")
        runs = [
            Stage(f"{word}-{budget}-{seed}", "pretrain", config, _of_run(settings, budget, seed))
            for seed in range(SEEDS)
        ]
        stages = {
            "loss": tuple(same_text(run) for run in runs),
            "grammar": tuple(grammar(run, most=100) for run in runs),
            **{task: tuple(_fine_tuned(task, run) for run in runs) for task in TASKS},
        }
        rows.append(Row(name, stages))
    columns = [
        Column("masked-LM loss", "loss", "mlm_loss"),
        Column("BLiMP, 100 pairs of each", "grammar", "overall/accuracy"),
        Column("MNLI-10k accuracy", "mnli", "dev/accuracy"),
        Column("QQP-10k F1", "qqp", "dev/f1"),
    ]
    return Study(f"Speedrun: {budget} each", tuple(rows), tuple(columns))


def _of_run(settings: dict[str, Any], budget: str, seed: int) -> dict[str, Any]:
    rare = {f"intervals.{name}": 1_000 for name in ("evaluate", "checkpoint")}
    return {**rare, "intervals.eval_batches": 4, **settings, "budget": budget, "seed": seed}


def _fine_tuned(task: str, run: Stage) -> Stage:
    settings = {
        **{f"task.{column}": name for column, name in TASKS[task].items()},
        **{"task.label": "label", "grid.learning_rate": (3e-4,), "grid.epochs": (3,)},
        **{f"task.{split}": f"{task}.{file}.jsonl.xz" for split, file in _FILES.items()},
    }
    config = "configs/finetune_table.py:classification"
    return Stage(f"{task}-{run.name}", "finetune", config, settings, (run,), data="babylm/glue")


_FILES = {"train": "train", "dev": "valid"}
