"""Four sizes with three budgets of operations each, by Muon and by AdamW: which size is best.

Commands:
  python launch/study.py --study=configs/studies/ladder.py --corpus=DIR --workdir=STUDY
  python launch/scaling.py --runs='STUDY/runs/ladder-*' --by=optimizer.name --output=ladder.json

The runs have the fast recipe, 4 layers, and widths from 64 to 256; docs/results/speedrun.md has
their table and the law that is fitted to them.
"""

from bertjax.lab.studies.scales import Scale, same_text
from bertjax.lab.studies.study import Column, Row, Stage, Study

WIDTHS = (64, 128, 192, 256)
BUDGETS = ("8e12", "16e12", "32e12")  # useful operations
RATES = {"muon": 4e-3, "adamw": 2e-3}


def get_study(scale: Scale) -> Study:
    """A row for each optimizer and budget, and a column for each size."""
    del scale  # the sizes are for the machine at hand
    rows = [
        Row(
            f"{optimizer}, {budget} operations",
            {f"{width}": same_text(_run(optimizer, budget, width)) for width in WIDTHS},
        )
        for optimizer in RATES
        for budget in BUDGETS
    ]
    columns = [Column(f"width {width}", f"{width}", "mlm_loss") for width in WIDTHS]
    return Study("A ladder: masked-LM loss", tuple(rows), tuple(columns))


def _run(optimizer: str, budget: str, width: int) -> Stage:
    settings = {
        **{"model.hidden_size": width, "model.num_attention_heads": width // 64},
        **{"model.intermediate_size": 8 * width // 3 // 8 * 8},
        **{"optimizer.name": optimizer, "optimizer.learning_rate": RATES[optimizer]},
        **{"budget": f"{budget}flops", "intervals.checkpoint": 1_000},
        **{"intervals.evaluate": 1_000, "intervals.eval_batches": 4},
    }
    name = f"ladder-{optimizer}-{budget}-{width}"
    return Stage(name, "pretrain", "configs/pretrain_fast_mini.py", settings)
