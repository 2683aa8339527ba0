"""Transformer-XL of 12 layers of 512 on bytes, as the paper's for enwik8.

Command:
  python launch/pretrain.py --config=configs/pretrain_transformer_xl.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: 4 TPU chips; 6 rows a chip.
Expected: the paper's has 1.06 bits a character on enwik8 (Table 2), which is an "mlm_loss" of 0.735
nats. On v5e:2x2 about 7 hours, by the TPU compiler's estimate (launch/compile_check.py with
`--config.model.vocab_size=257`): 63 ms an update, of which attention takes 83 %, and 2.1 GiB of a
chip's 15.75. Not yet run on a TPU.

The corpus has bytes for tokens: `--tokenizer=gpt2 --learn_vocabulary=257` of
launch/prepare_corpus.py. A row is a stretch of the stream of all documents, and the same row of the
next batch goes on where it ends. The memory is saved with the run. Evaluation begins without one.

Paper (arXiv 1901.02860; kimiyoung/transformer-xl for what it does not say): rows of 512 with a
memory of 512, 400,000 updates of 22 rows by Adam with a rate of 2.5e-4 that falls by a cosine,
gradients cut to 0.25, dropout of 0.1, none of attention's probabilities. Here 24 rows divide over
the chips, and the rate falls on a line. The paper evaluates with a memory of 3,800, as
`launch/evaluate.py --model=RUN --stride=511 --memory=3800` does. Sizes of Tables 1 and 2:
`--config.model.size=12l`, `24l`, `standard` or `large`. The last two are of WikiText-103, whose
267,735 words have an adaptive softmax there, and here the plain one of the vocabulary.
"""

import ml_collections

from bertjax.config import paper_config


def get_config() -> ml_collections.ConfigDict:
    """The paper's model of enwik8 with 12 layers."""
    config = paper_config()
    del config.objective  # a name; here it is a section
    config.objective = dict(name="left_to_right", text="continued", memory=512)
    config.short_probability = 0.0
    config.total_steps = 400_000
    config.phase_1.update(share=1.0, length=512, batch_size=24)
    del config.phase_2
    config.model.update(encoder="transfo-xl", size="12l", hidden_act="relu")
    config.model.update(attention_probs_dropout_prob=0.0)
    config.optimizer.update(learning_rate=2.5e-4, warmup_steps=0, epsilon=1e-8)
    config.optimizer.update(weight_decay=0.0, clip_norm=0.25)
    config.eval_batch_size = 24
    return config
