"""BERT-Tiny on a CPU in minutes: the whole path, small.

  python launch/pretrain.py --config=configs/pretrain_tiny.py --config.corpus=DIR --workdir=RUN

Hardware: 2 CPU cores.
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    """See `bertjax.recipe.Recipe` for what each key means."""
    config = ml_collections.ConfigDict()
    config.corpus = ""  # DIR of launch/prepare_corpus.py; several as DIR@0.7,DIR@0.3
    config.seed = 0
    config.objective = "masked_lm_next_sentence"
    config.total_steps = 1000
    config.phase_1 = dict(share=0.9, length=128, batch_size=32, accumulate=1)
    config.phase_2 = dict(share=0.1, length=512, batch_size=8, accumulate=1)
    config.model = dict(
        size="tiny",
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        compute_dtype="float32",
        vocab_multiple=1,
        scan_layers=False,
        remat="none",
        attention="einsum",
    )
    config.optimizer = dict(name="adamw", learning_rate=2e-3, warmup_steps=100, weight_decay=0.01)
    config.masking = dict(rate=0.15, mask=0.8, random=0.1, whole_words=False)
    config.short_probability = 0.1
    config.mesh = dict(data=-1, model=1)
    config.layout = "data"
    config.intervals = dict(log=20, evaluate=200, checkpoint=200, eval_batches=8)
    config.eval_batch_size = 32
    config.keep_checkpoints = 2
    config.keep_checkpoint_every = 0
    config.dry_run = False
    return config
