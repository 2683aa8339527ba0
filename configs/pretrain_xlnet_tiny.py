"""XLNet of 2 layers of 128 on a CPU, in minutes: its recipe in the smallest form.

Command:
  python launch/pretrain.py --config=configs/pretrain_xlnet_tiny.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: 2 CPU cores.
Expected: "early_loss", "middle_loss" and "late_loss" (the thirds of the order) fall from one to the
next. 4 layers of 256 reach 5.99 nats (unigram baseline 6.95) after 20 minutes of one core
(docs/results/objectives.md).

A row is a stretch of the stream of all documents, with the special tokens at its end. The same row
of the next batch begins `reuse` tokens later, so the text after them is read twice, the second time
with more memory. The order is drawn for each section of a row, and the first, which is
remembered, does not see the second. The memory is saved with the run, and evaluation begins without
one. What fills in blanks and scores texts hides the tokens that it asks for from the content
stream, as perm_mask of transformers does, and the query stream predicts each from all others. A
classifier reads the last token, [CLS], through a dense layer and tanh. Where padding stands changes
nothing here; exports pad before the text, as transformers needs it.

Paper (arXiv 1906.08237, section A.4.1; zihangdai/xlnet for what it does not say): a cased
SentencePiece of 32,000 pieces (`--tokenizer=xlnet` of launch/prepare_corpus.py), K = 6, 512 tokens,
of which 256 are reused, a memory of 384, 500,000 updates of 8,192 rows (large) with a rate of 4e-4
after 40,000 updates of warm-up, a decay of 0.01 and an epsilon of 1e-6. There half of the rows are
read backwards, and A and B follow the text that is reused; here all go forwards, and one text
follows. Set `--config.model.size=base` or `large`, and the length, reuse and memory, for that.
"""

import ml_collections

from bertjax.config import paper_config


def get_config() -> ml_collections.ConfigDict:
    """The paper's objective, with a batch and a length that suit a CPU."""
    config = paper_config()
    del config.objective  # a name; here it is a section
    config.objective = dict(name="permutation", one_in=6, reuse=64, memory=64)
    config.short_probability = 0.0
    config.total_steps = 1_000
    config.phase_1.update(share=1.0, length=128, batch_size=32)
    del config.phase_2
    config.model.update(encoder="xlnet", size="tiny", compute_dtype="float32", vocab_multiple=1)
    config.optimizer.update(learning_rate=2e-3, warmup_steps=50)
    config.intervals.update(log=20, evaluate=200, checkpoint=200, eval_batches=32)
    config.eval_batch_size = 32
    config.keep_checkpoints = 2
    return config
