"""Several tasks in one run, over one encoder (MT-DNN, arXiv 1901.11504): the paper's footnote 14.

Commands:
  python launch/finetune.py --config=configs/finetune_together.py:MRPC,RTE,STS-B,CoLA \\
    --config.data=DIR --config.init_from=NAME --workdir=RUN
  python launch/finetune.py --config=configs/finetune_together.py:MNLI,stars=classification,squad \\
    --config.tasks.stars.data=REVIEWS --config.tasks.stars.label=stars \\
    --config.tasks.squad.data=SQUAD (the rest as above)

The word after the colon lists tasks: those of GLUE and SuperGLUE by their names (RTE is GLUE's);
squad, triviaqa, swag and ner; and own tables as NAME=PROBLEM, with a problem of
configs/finetune_table.py. DIR is the folder of the tasks that have no data of their own. RUN/TASK
is then like a run of that task alone. In flags and folders a task is called by its name with _ for
-, such as STS_B. A task whose pairs of texts have classes may have MT-DNN's output layer:
--config.tasks.MNLI.answer_steps=5

Hardware: one GPU or one TPU chip; a CPU for small models.
Expected: on GLUE's test sets MT-DNN of BERT-Large has a score of 82.7, SST-2 95.6 and MNLI
  86.7/86.0, after each task has been fine-tuned alone, too; BERT-Large 80.5, 94.9 and 86.7/85.9.
"""

import ml_collections

from bertjax.base.errors import InputError
from bertjax.config import finetune_config, section
from bertjax.runs.fine_tuning.recipe import TASKS, check_task_name
from bertjax.tasks import superglue
from bertjax.tasks.glue import SETS, Glue
from bertjax.tasks.problems import PROBLEMS
from bertjax.tasks.table import Table

OTHERS = [kind for kind in TASKS if kind not in ("glue", "superglue", "table")]


def get_config(tasks: str = "MRPC,RTE,STS-B,CoLA") -> ml_collections.ConfigDict:
    """MT-DNN's batches, rate and epochs (section 4.2); its optimizer is Adamax."""
    config = finetune_config()
    del config.task
    # By name; the fields of each as those of config.task in the config of that task alone.
    config.tasks = {}
    for text in tasks.split(","):
        name = text.partition("=")[0].replace("-", "_")
        task = dict(_task(text), data="")  # "": that of config.data
        check_task_name(name, f"configs/finetune_together.py: {text!r}")
        if hasattr(config.tasks, name):  # a task, or a method such as "items"
            raise InputError(
                f"configs/finetune_together.py:{tasks}: the name {name} is taken: give that task "
                "another, as NAME=PROBLEM"
            )
        config.tasks[name] = task
    # The tasks come by their batches to this power: 1 is MT-DNN's; 0.5 gives small ones more.
    config.share_power = 1.0
    config.grid.epochs = (5,)
    return config


def _task(text: str) -> dict:
    kind, _, problem = text.partition("=")
    if problem in PROBLEMS:
        return section(Table, kind="table", problem=problem)
    if kind in SETS and not problem:
        return section(Glue, kind="glue", name=kind)
    if kind in superglue.SETS and not problem:
        return section(superglue.SuperGlue, kind="superglue", name=kind)
    if kind in OTHERS and not problem:
        return section(TASKS[kind], kind=kind)
    known = ", ".join(dict.fromkeys((*SETS, *superglue.SETS)))
    raise InputError(
        f"configs/finetune_together.py: {text!r}: a task must be one of {known}; one of "
        f"{', '.join(OTHERS)}; or NAME=PROBLEM, with a problem of {', '.join(PROBLEMS)}"
    )
