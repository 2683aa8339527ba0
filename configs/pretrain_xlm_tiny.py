"""XLM of 2 layers of 128 on a CPU, in minutes: masked LM, and translations where there are any.

Command:
  python launch/pretrain.py --config=configs/pretrain_xlm_tiny.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: 2 CPU cores.
Expected: the unigram baseline, which so short a run with learned positions hardly gets below; see
docs/results/objectives.md for figures.

A row has both texts of a pair. If they do not fit, each may have what the other leaves, and half of
the row at least. The positions of the second text count from 0 again: from the special token that
begins it, if there are two between the texts (</s></s>), or else from its first token. Neither text
is split into sentences. A pair with an empty text is left out, and the report of the corpus counts
it. Other layouts read a pair as a document of two sentences.

Paper (arXiv 1901.07291, sections 3 and 5.1): 12 layers of 1024 with 8 heads, dropout 0.1, learned
positions; streams of 256 tokens, batches of 64; Adam with a linear warm-up, rates from 1e-4 to
5e-4; languages drawn by their size to the power 0.7; batches of masked LM and of translations in
turn. Set `--config.model.size=base` for that model. For an embedding of each language, add
`--config.objective.languages=en,sw --config.model.type_vocab_size=2`.
"""

import ml_collections

from bertjax.config import paper_config


def get_config() -> ml_collections.ConfigDict:
    """The paper's text and model, with a batch, a length and a rate that suit a CPU."""
    config = paper_config()
    del config.objective  # a name; here it is a section
    config.objective = dict(name="masked_lm", text="translations", languages="")
    config.short_probability = 0.0
    config.total_steps = 1_000
    config.phase_1.update(share=1.0, length=128, batch_size=32)
    del config.phase_2
    config.model.update(encoder="xlm", size="tiny", compute_dtype="float32", vocab_multiple=1)
    config.optimizer.update(learning_rate=2e-3, warmup_steps=50)
    config.intervals.update(log=20, evaluate=200, checkpoint=200, eval_batches=16)
    config.eval_batch_size = 32
    config.keep_checkpoints = 2
    return config
