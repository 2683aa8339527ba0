"""Figure 5 (section C.1): fine-tuned figures along pre-training, masked LM next to left-to-right.

Command:
  python launch/study.py --study=configs/studies/figure_5.py --corpus=DIR --data=FOLDER \\
    --workdir=STUDY
"""

from bertjax.lab.studies.scales import Scale, task_column
from bertjax.lab.studies.study import Column, Row, Study

POINTS = 5


def get_study(scale: Scale) -> Study:
    """Two pre-trainings, fine-tuned from five of their checkpoints."""
    scale = scale.with_bert()
    task = "NER" if scale.name == "cpu" else "MNLI"  # MNLI's training file is not free
    every = scale.steps // POINTS
    steps = [every * number for number in range(1, POINTS + 1)]
    kept = {"keep_checkpoint_every": every, "intervals.checkpoint": every}
    rows = []
    for name, objective in {"Masked LM": "masked_lm", "Left-to-Right": "left_to_right"}.items():
        run = scale.pretrain(f"{objective}-kept".replace("_", "-"), {"objective": objective} | kept)
        points = {f"{step}": scale.fine_tune(task, run, step=step) for step in steps}
        rows.append(Row(name, points))
    return Study(
        f"Figure 5: {task} along pre-training",
        rows,
        [Column(f"{step:,}", f"{step}", task_column(task).figure, x=step) for step in steps],
        axis=f"steps of pre-training; {task_column(task).name} on dev",
    )
