"""Table 8 (section C.2): what is put in the place of the tokens that are to be predicted.

Command:
  python launch/study.py --study=configs/studies/table_8.py --corpus=DIR --data=FOLDER \\
    --workdir=STUDY
"""

from bertjax.lab.studies.scales import Scale, columns
from bertjax.lab.studies.study import Row, Study

PUBLISHED = {  # [MASK], the same token, a random one, in percent -> the tasks
    (80, 10, 10): (84.2, 95.4, 94.9),
    (100, 0, 0): (84.3, 94.9, 94.0),
    (80, 0, 20): (84.1, 95.2, 94.6),
    (80, 20, 0): (84.4, 95.2, 94.7),
    (0, 20, 80): (83.7, 94.8, 94.6),
    (0, 0, 100): (83.6, 94.9, 94.6),
}
TASKS = ("MNLI", "NER", "NER features")


def get_study(scale: Scale) -> Study:
    """Six pre-trainings, which differ in their masking."""
    tasks = scale.available(TASKS)
    rows, published = [], {}
    for (mask, same, random), figures in PUBLISHED.items():
        masking = {"masking.mask": mask / 100, "masking.random": random / 100}
        run = scale.pretrain(f"mask{mask}-same{same}-random{random}", masking)
        name = f"{mask} / {same} / {random}"
        rows.append(Row(name, scale.fine_tuned(tasks, run)))
        published[name] = figures
    table = columns(TASKS, published)
    return Study(
        "Table 8: [MASK] / same / random, in percent of the tokens that are predicted",
        rows,
        [column for column in table if column.stage in tasks],
        source="dev, arXiv 1810.04805",
    )
