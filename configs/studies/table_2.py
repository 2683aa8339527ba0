"""Table 2 (section 4.2): SQuAD 1.1, single and as an ensemble, and after a warm-up on TriviaQA.

Command:
  python launch/study.py --study=configs/studies/table_2.py --corpus=DIR --data=FOLDER \\
    --workdir=STUDY

An ensemble joins seven systems, with other checkpoints of pre-training and other seeds of
fine-tuning. The row "large, single" is the mean of the same systems, each by itself.
"""

from bertjax.lab.studies.scales import Scale, ensemble
from bertjax.lab.studies.study import Column, Row, Stage, Study

EXACT = {
    **{"base, single": 80.8, "large, single": 84.1, "large, ensemble": 85.8},
    **{"large, single, TriviaQA": 84.2, "large, ensemble, TriviaQA": 86.2},
}
F1 = {
    **{"base, single": 88.5, "large, single": 90.9, "large, ensemble": 91.8},
    **{"large, single, TriviaQA": 91.1, "large, ensemble, TriviaQA": 92.2},
}


def get_study(scale: Scale) -> Study:
    """A pre-training of each size; the larger one keeps the checkpoints that the ensembles use."""
    every = scale.steps // 20
    kept = {"keep_checkpoint_every": every, "intervals.checkpoint": every}
    base, large = scale.pretrain("base"), scale.pretrain("large-kept", kept, size="large")
    systems = _systems(scale, large, every)
    rows = [
        Row("base, single", {"SQuAD": scale.fine_tune("SQuAD", base)}),
        Row("large, single", {"SQuAD": systems}),
        Row("large, ensemble", {"SQuAD": ensemble(f"ensemble-{large.name}", systems)}),
    ]
    if scale.available(("TriviaQA",)):
        warm = _systems(scale, large, every, warm_up="TriviaQA")
        together = ensemble(f"ensemble-{large.name}-TriviaQA", warm)
        rows += [
            Row("large, single, TriviaQA", {"SQuAD": warm}),
            Row("large, ensemble, TriviaQA", {"SQuAD": together}),
        ]
    names = [row.name for row in rows]
    columns = [
        Column("exact match", "SQuAD", "dev/exact", {name: EXACT[name] for name in names}),
        Column("F1", "SQuAD", "dev/f1", {name: F1[name] for name in names}),
    ]
    return Study("Table 2: SQuAD 1.1", rows, columns, source="dev, arXiv 1810.04805")


def _systems(scale: Scale, large: Stage, every: int, warm_up: str = "") -> tuple[Stage, ...]:
    """The last checkpoints of the pre-training, each fine-tuned with seeds of its own."""
    systems = []
    for number in range(scale.systems):
        step = scale.steps - number // 2 * every
        one = {"seed": number, "grid.restarts": 1}
        start, at = large, dict(step=step)
        if warm_up:
            start, at = scale.fine_tune(warm_up, large, one, name=f"{number}", step=step), {}
        systems.append(scale.fine_tune("SQuAD", start, one, name=f"system{number}", **at))
    return tuple(systems)
