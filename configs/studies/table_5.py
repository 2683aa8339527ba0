"""Table 5 (section 5.1): what next-sentence prediction and reading both ways bring.

Command:
  python launch/study.py --study=configs/studies/table_5.py --corpus=DIR --data=FOLDER \\
    --workdir=STUDY
"""

from bertjax.lab.studies.scales import Scale, columns
from bertjax.lab.studies.study import Row, Study

PUBLISHED = {
    "BERT": (84.4, 88.4, 86.7, 92.7, 88.5),
    "No NSP": (83.9, 84.9, 86.5, 92.6, 87.9),
    "LTR & No NSP": (82.1, 84.3, 77.5, 92.1, 77.8),
    "+ BiLSTM": (82.1, 84.1, 75.7, 91.6, 84.9),
}
TASKS = ("MNLI", "QNLI", "MRPC", "SST-2", "SQuAD")


def get_study(scale: Scale) -> Study:
    """Three pre-trainings; the last one is fine-tuned in two ways."""
    scale = scale.with_bert()
    bert = scale.pretrain("bert")
    no_nsp = scale.pretrain("no-nsp", {"objective": "masked_lm"})
    ltr = scale.pretrain("ltr", {"objective": "left_to_right"})
    tasks, lstm = scale.available(TASKS), {"bilstm.hidden": scale.lstm}
    rows = [
        Row("BERT", scale.fine_tuned(tasks, bert)),
        Row("No NSP", scale.fine_tuned(tasks, no_nsp)),
        Row("LTR & No NSP", scale.fine_tuned(tasks, ltr)),
        Row("+ BiLSTM", scale.fine_tuned(tasks, ltr, lstm, name="bilstm")),
    ]
    table = columns(TASKS, PUBLISHED, figures={"MRPC": "dev/accuracy"})
    return Study(
        "Table 5: the tasks of pre-training",
        rows,
        [column for column in table if column.stage in tasks],
        source="BERT-Base on dev, arXiv 1810.04805",
    )
