"""Table 1 (section 4.1): GLUE, with predictions of the test files in the leaderboard's form.

Command:
  python launch/study.py --study=configs/studies/table_1.py --corpus=DIR --data=FOLDER \\
    --workdir=STUDY

The figures are of dev. The paper's are of the leaderboard: where the files of all tasks are there,
STUDY/runs/submission-base/submission.zip can be sent to it. WNLI is not in the paper's table.
"""

from bertjax.lab.studies.scales import Scale, columns, submission
from bertjax.lab.studies.study import Row, Study

TASKS = ("MNLI", "QQP", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "RTE", "WNLI")
PUBLISHED = {
    "base": (84.6, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, None),
    "large": (86.7, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, None),
}


def get_study(scale: Scale) -> Study:
    """A pre-training of each size, and all tasks."""
    tasks = scale.available(TASKS)
    runs = {size: scale.pretrain(size, size=size) for size in PUBLISHED}
    rows = []
    for size, run in runs.items():
        tuned = scale.fine_tuned(tasks, run)
        sent = {"leaderboard": submission(run, tuned.values())} if tasks == TASKS else {}
        rows.append(Row(size, tuned | sent))
    return Study(
        "Table 1: GLUE",
        rows,
        [column for column in columns(TASKS, PUBLISHED) if column.stage in tasks],
        source="the leaderboard's test sets, arXiv 1810.04805",
    )
