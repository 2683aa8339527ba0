"""Table 3 (section 4.3): SQuAD 2.0, in which questions may have no answer.

Command:
  python launch/study.py --study=configs/studies/table_3.py --corpus=DIR --data=FOLDER \\
    --workdir=STUDY
"""

from bertjax.lab.studies.scales import Scale
from bertjax.lab.studies.study import Column, Row, Study

ROW = "large"


def get_study(scale: Scale) -> Study:
    """One pre-training, of BERT-Large, and a single system; base is not in the paper's table."""
    runs = {size: scale.pretrain(size, size=size) for size in ("base", ROW)}
    rows = [Row(size, scale.fine_tuned(("SQuAD 2.0",), run)) for size, run in runs.items()]
    columns = [
        Column("exact match", "SQuAD 2.0", "dev/exact_tuned", {ROW: 78.7}),
        Column("F1", "SQuAD 2.0", "dev/f1_tuned", {ROW: 81.9}),
    ]
    return Study("Table 3: SQuAD 2.0", rows, columns, source="dev, arXiv 1810.04805")
