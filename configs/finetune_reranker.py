"""A reranker (cross-encoder): it reads a query and a passage together, and gives one score.

Command:
  python launch/finetune.py --config=configs/finetune_reranker.py --config.data=DIR \\
    --config.init_from=NAME --workdir=RUN

DIR holds train.csv and dev.csv (or .tsv, .jsonl, .parquet) with the columns query, passage and
score, from 0 to 1. A word after a colon names the loss: binary; squared, margin_mse or kl with a
teacher's scores; or ranking, the right passage against a query's wrong ones.

Hardware: one CPU, one GPU, or TPU chips of any number.
Expected: not yet measured by this project.
"""

import ml_collections

from bertjax.config import similarity_config


def get_config(loss: str = "binary") -> ml_collections.ConfigDict:
    """The recipe; `bertjax.objectives.similarity_losses` describes the losses."""
    config = similarity_config(loss)
    config.task = dict(kind="reranker", length=0)
    del config.dimensions, config.sparsity
    return config
