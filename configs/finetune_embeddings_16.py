"""Vectors of texts from many millions of pairs, on 16 TPU chips.

Command, on every host of the slice; RUN lies on a file system that all hosts share:
  python launch/finetune.py --config=configs/finetune_embeddings_16.py --config.data=DIR@2,DIR@1 \\
    --config.init_from=NAME --workdir=RUN

Each query is compared with the passages of all 16 chips: 16,384 of them. A chip encodes its 1,024
pairs in 16 chunks, so that it keeps the activations of 64.

Hardware: 16 TPU chips. The TPU compiler says what an update takes, of BERT-Base:
  python launch/compile_check.py --config=configs/finetune_embeddings_16.py --topology=v5e:4x4
Expected: not yet run on TPUs by this project.
"""

import ml_collections

from bertjax.config import place_on_pod, similarity_config


def get_config(loss: str = "ranking") -> ml_collections.ConfigDict:
    """The recipe of configs/finetune_embeddings.py with batches of 16,384 pairs."""
    config = similarity_config(loss)
    config.batch_size, config.chunks = 16_384, 16
    config.task.update(query_length=128, passage_length=128)
    config.fixed_lengths = True
    config.total_steps = 10_000
    config.optimizer.learning_rate = 2e-4
    place_on_pod(config)
    del config.model.hidden_act  # that of the weights
    return config
