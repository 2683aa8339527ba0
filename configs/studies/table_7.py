"""Table 7 (section 5.3): named entities, fine-tuned and from fixed features.

Command:
  python launch/study.py --study=configs/studies/table_7.py --corpus=DIR --data=FOLDER \\
    --workdir=STUDY

With `table_7.py:elmo:FOLDER`, or `table_7.py:RUN` of a run of ELMo's pre-training, it also has the
row of ELMo, from these weights.
"""

import dataclasses

from bertjax.lab.studies.scales import Scale
from bertjax.lab.studies.study import Column, Row, Stage, Study

ELMO, FINE_TUNED = "ELMo", "fine-tuned"
CHOICES = {  # of layers -> F1 on dev of features of BERT-Base
    "embeddings": 91.0,
    "second_to_last": 95.6,
    "last": 94.9,
    "weighted_sum_last_four": 95.9,
    "concat_last_four": 96.1,
    "weighted_sum_all": 95.5,
}


def get_study(scale: Scale, elmo: str = "") -> Study:
    """One pre-training; all choices of layers share one run, and its activations.

    Args:
      elmo: the weights of an ELMo; "" for a table without it.
    """
    run = scale.pretrain("base")
    features = scale.fine_tune("NER features", run, {"features.choices": tuple(CHOICES)})
    rows = [Row(FINE_TUNED, {"NER": scale.fine_tune("NER", run)})]
    for choice in CHOICES:
        part = dataclasses.replace(features, part=choice)
        rows.append(Row(choice.replace("_", " "), {"NER": part}))
    dev = {FINE_TUNED: 96.4} | {choice.replace("_", " "): f1 for choice, f1 in CHOICES.items()}
    test = {FINE_TUNED: 92.4}
    if elmo:
        settings = {**features.settings, "init_from": elmo}
        del settings["features.choices"]
        config = "configs/finetune_ner.py:elmo"
        tagger = Stage("NER-elmo", "finetune", config, settings, data="conll2003", part="mix_all")
        rows.append(Row(ELMO, {"NER": tagger}))
        dev[ELMO], test[ELMO] = 95.7, 92.2
    columns = [Column("dev F1", "NER", "dev/f1", dev), Column("test F1", "NER", "test/f1", test)]
    return Study(
        "Table 7: named entities (CoNLL-2003)",
        rows,
        columns,
        source="BERT-Base, arXiv 1810.04805",
    )
