"""Table 6 (section 5.2): what the size of the model brings.

Command:
  python launch/study.py --study=configs/studies/table_6.py --corpus=DIR --data=FOLDER \\
    --workdir=STUDY
"""

from bertjax.lab.studies.scales import Scale, columns, evaluate
from bertjax.lab.studies.study import Column, Row, Study

PUBLISHED = {  # layers, width, heads -> perplexity, and the tasks
    (3, 768, 12): (5.84, 77.9, 79.8, 88.4),
    (6, 768, 3): (5.24, 80.6, 82.2, 90.7),
    (6, 768, 12): (4.68, 81.9, 84.8, 91.3),
    (12, 768, 12): (3.99, 84.4, 86.7, 92.9),
    (12, 1024, 16): (3.54, 85.7, 86.9, 93.3),
    (24, 1024, 16): (3.23, 86.6, 87.8, 93.7),
}
# At scale "cpu" an eighth of the width, and less than half of the layers.
SMALL = ((1, 96, 3), (2, 96, 1), (2, 96, 3), (4, 96, 3), (4, 128, 4), (6, 128, 4))
TASKS = ("MNLI", "MRPC", "SST-2")


def get_study(scale: Scale) -> Study:
    """Six pre-trainings; their perplexity on held-out text, and three tasks."""
    small = scale.name == "cpu"
    tasks = scale.available(TASKS)
    rows, published = [], {}
    for sizes, figures in zip(SMALL if small else PUBLISHED, PUBLISHED.values(), strict=True):
        layers, width, heads = sizes
        name = f"L{layers}_H{width}_A{heads}"
        model = dict(num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads)
        if small:  # the gated feed-forward of the modern recipe
            model |= dict(intermediate_size=width * 3 // 2)
            settings = {f"model.{key}": value for key, value in model.items()}
        else:
            settings = {"model.size": name}
        run = scale.pretrain(name, settings)
        rows.append(Row(name, scale.fine_tuned(tasks, run) | {"perplexity": evaluate(run)}))
        if not small:
            published[name] = figures
    perplexity = {name: figures[0] for name, figures in published.items()}
    of_tasks = {name: figures[1:] for name, figures in published.items()}
    table = [
        Column("perplexity", "perplexity", "128/mlm_perplexity", perplexity),
        *columns(TASKS, of_tasks, figures={"MRPC": "dev/accuracy"}),
    ]
    return Study(
        "Table 6: the size of the model",
        rows,
        [column for column in table if column.stage in (*tasks, "perplexity")],
        source="dev, arXiv 1810.04805; perplexity of the masked LM on held-out text",
    )
