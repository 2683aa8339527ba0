"""Table 4 (section 4.4): SWAG, which of four sentences goes on.

Command:
  python launch/study.py --study=configs/studies/table_4.py --corpus=DIR --data=FOLDER \\
    --workdir=STUDY
"""

from bertjax.lab.studies.scales import Scale, columns
from bertjax.lab.studies.study import Row, Study

PUBLISHED = {"base": (81.6,), "large": (86.6,)}


def get_study(scale: Scale) -> Study:
    """A pre-training of each size."""
    runs = {size: scale.pretrain(size, size=size) for size in PUBLISHED}
    rows = [Row(size, scale.fine_tuned(("SWAG",), run)) for size, run in runs.items()]
    return Study(
        "Table 4: SWAG",
        rows,
        columns(("SWAG",), PUBLISHED),
        source="dev, arXiv 1810.04805",
    )
