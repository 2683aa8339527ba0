"""ELMo of 2 layers, 256 wide in both directions, on a CPU, in minutes.

Command:
  python launch/pretrain.py --config=configs/pretrain_elmo_tiny.py --config.corpus=DIR --workdir=RUN

Hardware: 2 CPU cores.
Expected: perplexities of 162 forward and 165 backward after 20 minutes of one core (5,994 updates).
On 9.5 million words of Wikipedia, 30,000 of them predicted. Of two rates, 2e-3 and 6e-3, the second
was better after 100 updates (held-out loss 7.27 and 7.23).

Paper (arXiv 1802.05365, section 3.4; allenai/bilm-tf, bin/train_elmo.py, for what it does not say):
`config.model.size="original"` without the other sizes here, 793,471 words, 10 epochs of the 1B Word
Benchmark, 3 x 128 rows of 20 words, 8,192 drawn words, Adagrad with a rate of 0.2; the mean of both
perplexities was 39.7.

Words are those of BERT's basic tokenization, the most frequent first. The model reads every word of
the vocabulary by its characters, up to 48 bytes, and predicts the first config.model.vocab_size of
them, the others as <UNK>. A row is a stretch of the stream of all sentences: each word and the end
of the sentence is predicted from what is before it in the stream, as "<S> w1 w2" predict
"w1 w2 </S>", and backward as "</S> w2 w1". The same row of the next batch continues where it ends,
with the states of the LSTMs, which are saved with the run; evaluation begins with zeros.

The softmax is one for both directions. In training it is over the right word and
`objective.sampled` others, drawn without replacement, frequent ones more often; each counts for as
many words as it stands for, so that the training loss estimates that of evaluation, which is over
all words. With few predicted words `sampled` may be their number; then no word is left out. A run
that begins with the weights of another has a new softmax if its corpus has other words, and always
with elmo:FOLDER, which has none.
"""

import ml_collections

from bertjax.config import paper_config


def get_config() -> ml_collections.ConfigDict:
    """bilm-tf's recipe with a size and a batch that suit a CPU."""
    config = paper_config()
    del config.objective  # a name; here it is a section
    config.objective = dict(name="both_directions", sampled=1024, restart=0.1)
    config.short_probability = 0.0
    config.total_steps = 800
    config.phase_1.update(share=1.0, length=20, batch_size=32)
    del config.phase_2
    config.model = dict(
        encoder="elmo",
        vocab_size=30_000,
        hidden_size=256,
        cell_size=256,
        filters=((1, 16), (2, 16), (3, 32), (4, 64)),
        num_highways=1,
        hidden_dropout_prob=0.1,
        compute_dtype="float32",
    )
    config.optimizer.update(learning_rate=5e-3, warmup_steps=50)
    config.intervals.update(log=20, evaluate=200, checkpoint=200, eval_batches=32)
    config.eval_batch_size = 32
    config.keep_checkpoints = 2
    return config
