"""A published model made one's own: its pre-training goes on, on text of your own.

Command:
  python launch/prepare_corpus.py --source='text:my_text/*.txt' --output=DIR --vocabulary=hf:NAME
  python launch/pretrain.py --config=configs/pretrain_continue.py:FAMILY \\
    --config.init_from=hf:NAME --config.corpus=DIR --workdir=RUN

FAMILY is that of the weights: modernbert (without `:FAMILY`), bert, roberta, xlm-roberta or
camembert. To keep what the model knows of other text, mix a corpus of such text in:
--config.corpus=DIR@0.7,OLD@0.3. Other vocabularies: docs/own_model.md.

Hardware: one GPU with 16 GB, or one TPU chip, for models of the base size.
Expected: not yet run on such a device; docs/results/own_model.md has a small run on two CPU cores.
"""

import ml_collections

from bertjax.config import modern_config, paper_config, section
from bertjax.runs.recipe import PhaseSpec


def get_config(family: str = "modernbert") -> ml_collections.ConfigDict:
    """A fifth of the updates left to right, the rest with masked tokens, at a low rate."""
    config = modern_config() if family == "modernbert" else paper_config()
    config.model.encoder = family
    config.objective, config.packed, config.short_probability = "masked_lm", True, 0.0
    config.total_steps = 10_000
    phase = section(PhaseSpec, length=512, batch_size=128, accumulate=4)
    del config.phase_1, config.phase_2
    config.phase_1 = {**phase, "share": 0.2, "objective": "left_to_right"}
    config.phase_2 = {**phase, "share": 0.8, "masking": dict(rate=0.3)}
    # The moments of Adam begin at zero, and the text is new: the rate rises again, to less than it
    # was. The schedule ends at 0.
    config.optimizer.update(name="adamw", learning_rate=1e-4, weight_decay=0.01)
    config.optimizer.update(schedule="linear", warmup_steps=600, decay_steps=0)
    config.intervals.update(evaluate=1_000, checkpoint=1_000)
    config.eval_batch_size = 64
    return config
