"""Table 7 (section 5.3): named entities, fine-tuned and from fixed features.

Command:
  python launch/study.py --study=configs/studies/table_7.py --corpus=DIR --data=FOLDER \\
    --workdir=STUDY
"""

import dataclasses

from bertjax.studies.scales import Scale
from bertjax.studies.study import Column, Row, Study

FINE_TUNED = "fine-tuned"
CHOICES = {  # of layers -> F1 on dev of features of BERT-Base
    "embeddings": 91.0,
    "second_to_last": 95.6,
    "last": 94.9,
    "weighted_sum_last_four": 95.9,
    "concat_last_four": 96.1,
    "weighted_sum_all": 95.5,
}


def get_study(scale: Scale) -> Study:
    """One pre-training; all choices of layers share one run, and its activations."""
    run = scale.pretrain("base")
    features = scale.fine_tune("NER features", run, {"features.choices": tuple(CHOICES)})
    rows = [Row(FINE_TUNED, {"NER": scale.fine_tune("NER", run)})]
    for choice in CHOICES:
        part = dataclasses.replace(features, part=choice)
        rows.append(Row(choice.replace("_", " "), {"NER": part}))
    dev = {FINE_TUNED: 96.4} | {choice.replace("_", " "): f1 for choice, f1 in CHOICES.items()}
    columns = [
        Column("dev F1", "NER", "dev/f1", dev),
        Column("test F1", "NER", "test/f1", {FINE_TUNED: 92.4}),
    ]
    return Study(
        "Table 7: named entities (CoNLL-2003)",
        rows,
        columns,
        source="BERT-Base, arXiv 1810.04805",
    )
