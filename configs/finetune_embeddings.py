"""Vectors of texts from pairs, triplets or scored pairs, as sentence-transformers makes them.

Command:
  python launch/finetune.py --config=configs/finetune_embeddings.py --config.data=DIR \\
    --config.init_from=NAME --workdir=RUN

DIR holds train.csv and dev.csv (or .tsv, .jsonl, .parquet) with the columns query and passage, and
perhaps negative and score; docs/embeddings.md has the other sources. A word after a colon names the
loss: ranking, squared, cosent, triplet, margin_mse or kl. --config.task.kind=late makes a vector of
each token (ColBERT), and --config.task.kind=sparse a weight of each token (SPLADE).

Hardware: one CPU, one GPU, or TPU chips of any number.
Expected: the first 2 layers of all-MiniLM-L6-v2 gain 3.9 points in the mean of seven test sets, in
  201 seconds on two CPU cores (docs/results/embeddings.md).
"""

import ml_collections

from bertjax.config import similarity_config


def get_config(loss: str = "ranking") -> ml_collections.ConfigDict:
    """The recipe; `bertjax.objectives.similarity_losses` describes the losses."""
    return similarity_config(loss)
