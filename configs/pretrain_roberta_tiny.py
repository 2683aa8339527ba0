"""RoBERTa of 2 layers of 128 on a CPU, in minutes: its recipe in the smallest form.

Command:
  python launch/pretrain.py --config=configs/pretrain_roberta_tiny.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: 2 CPU cores.
Expected: no figure of this size; launch/evaluate.py compares a run with its own baseline.

Paper (arXiv 1907.11692, section 4 and Table 9): dynamic masking, full sentences, no next sentence,
a byte-level BPE of 50,000 pieces (`--tokenizer=bpe` of launch/prepare_corpus.py); 500,000 updates
of 8k rows of 512 tokens; a rate that peaks at 6e-4 (base; large: 4e-4) after 24,000 updates
(large: 30,000) and falls to 0; beta2 0.98, epsilon 1e-6, decay 0.01, dropout 0.1. Gradients are not
cut there (here to a norm of 1). Set `--config.model.size=base` for that.
"""

import ml_collections

from bertjax.config import paper_config


def get_config() -> ml_collections.ConfigDict:
    """The paper's text, masking and optimizer, with a batch and a length that suit a CPU."""
    config = paper_config()
    del config.objective  # a name; here it is a section
    config.objective = dict(name="masked_lm", text="full_sentences")
    config.masking.copies = 0  # dynamic masking; 10: static
    config.short_probability = 0.0
    config.total_steps = 1_000
    config.phase_1.update(share=1.0, length=128, batch_size=32)
    del config.phase_2
    config.model.update(encoder="roberta", size="tiny", compute_dtype="float32", vocab_multiple=1)
    config.optimizer.update(learning_rate=2e-3, warmup_steps=50, beta2=0.98)
    config.intervals.update(log=20, evaluate=200, checkpoint=200, eval_batches=32)
    config.eval_batch_size = 32
    config.keep_checkpoints = 2
    return config
