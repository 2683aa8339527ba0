"""From BERT to ModernBERT, one change at a time: the masked-LM loss of equal training.

Command:
  python launch/study.py --study=configs/studies/modern_walk.py --corpus=DIR --workdir=STUDY

Each row keeps the changes of those before it. All runs see the same number of tokens, and are
compared on text that is masked for all alike, whatever the run was trained on. A word after the
file is the number of seeds: modern_walk.py:3
"""

import re

from bertjax.base.errors import InputError
from bertjax.lab.studies.scales import Scale, same_text
from bertjax.lab.studies.study import PREVIOUS, Column, Row, Stage, Study

# Scale -> config, size, width, updates.
RUNS = {
    "cpu": ("configs/pretrain_tiny.py", "tiny", 128, 500),
    "chip": ("configs/pretrain_small.py", "mini", 256, 20_000),
    "16": ("configs/pretrain_base_16.py", "base", 768, 100_000),
    "64": ("configs/pretrain_base_16.py", "base", 768, 100_000),
}


def get_study(scale: Scale, seeds: str = "1") -> Study:
    """A pre-training for each change and seed."""
    if not re.fullmatch("[1-9][0-9]{0,2}", seeds):
        raise InputError(f"modern_walk.py:{seeds}: must be a number of seeds below 1000, as in :3")
    config, size, width, steps = RUNS[scale.name]
    settings = {
        **{"total_steps": steps, "objective": "masked_lm"},
        **{"phase_1.share": 1.0, "phase_1.length": 128},
        **{"phase_2.share": 0.0, "phase_2.length": 128},
        **{"optimizer.warmup_steps": steps // 10},
        **{"model.size": size, "model.max_position_embeddings": 128},
        **{"model.hidden_dropout_prob": 0.0, "model.attention_probs_dropout_prob": 0.0},
        **{"intervals.evaluate": steps, "intervals.checkpoint": steps},
    }
    walk = {
        "BERT": {},
        "no biases, no token types": {  # the modern family with BERT's layers
            **{"model.encoder": "modernbert", "model.positions": "learned"},
            **{"model.norm": "after", "model.feed_forward": "plain"},
            **{"model.intermediate_size": 4 * width, "model.global_attn_every_n_layers": 1},
        },
        "rotary positions": {"model.positions": "rotary"},
        "norm before": {"model.norm": "before"},
        "gated feed-forward": {
            **{"model.feed_forward": "gated", "model.intermediate_size": 21 * width // 8},
        },
        "local layers": {"model.global_attn_every_n_layers": 3},
        "packed documents": {"packed": True, "short_probability": 0.0},
        "30 % masked": {"phase_1.masking.rate": 0.3},
        "constant rate, then decay": {
            **{"optimizer.schedule": "wsd", "optimizer.decay_steps": steps // 5},
        },
        "StableAdamW": {"optimizer.name": "stable_adamw"},
        "Muon, rate 5e-3": {"optimizer.name": "muon", "optimizer.learning_rate": 5e-3},
    }
    rows = []
    for number, (name, changes) in enumerate(walk.items()):
        settings |= changes
        runs = [
            Stage(f"walk{number}-seed{seed}", "pretrain", config, settings | {"seed": seed})
            for seed in range(int(seeds))
        ]
        rows.append(Row(name, {"loss": tuple(same_text(run) for run in runs)}))
    columns = [
        Column("masked-LM loss", "loss", "mlm_loss"),
        Column("accuracy", "loss", "mlm_accuracy"),
    ]
    return Study("From BERT to ModernBERT", rows, columns, against=PREVIOUS)
