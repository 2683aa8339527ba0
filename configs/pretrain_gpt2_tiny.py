"""GPT-2 of 2 layers of 128 on a CPU, in minutes: its recipe in the smallest form.

Command:
  python launch/pretrain.py --config=configs/pretrain_gpt2_tiny.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: 2 CPU cores.
Expected: no figure of this size; launch/evaluate.py compares a run with its own baseline.

Each row begins with the last token of the one before it, so that every token is predicted once an
epoch. For fine-tuning, the model gets three special tokens with random embeddings, as in GPT's
section 3.3: _start_ A _delimiter_ B _classify_, of which a classifier reads the last. Padding is
<|endoftext|> for GPT-2 and <unk> for GPT; the mask distinguishes it from text, where transformers
takes its id. The published GPT (encoder openai-gpt) has no end-of-text token: set objective.text to
packed or spans.

Paper (Radford et al., 2019, section 2): a byte-level BPE of 50,257 pieces (`--tokenizer=gpt2` of
launch/prepare_corpus.py), 1,024 tokens of the stream of text in a row, 512 rows in a batch. Of the
optimizer it says only that the rate was tuned; here it falls to 0 as in GPT (2018, section 4.1),
whose Adam had a peak of 2.5e-4, 2,000 updates of warm-up, a decay of 0.01, and dropout of 0.1. Set
`--config.model.size=small --config.model.max_position_embeddings=1024` for GPT-2 small.
"""

import ml_collections

from bertjax.config import paper_config


def get_config() -> ml_collections.ConfigDict:
    """The paper's text and objective, with a batch and a length that suit a CPU."""
    config = paper_config()
    del config.objective  # a name; here it is a section
    config.objective = dict(name="left_to_right", text="stream")
    config.short_probability = 0.0
    config.total_steps = 1_000
    config.phase_1.update(share=1.0, length=128, batch_size=32)
    del config.phase_2
    config.model.update(encoder="gpt2", size="tiny", hidden_act="gelu_tanh")
    config.model.update(compute_dtype="float32", vocab_multiple=1)
    config.optimizer.update(learning_rate=2e-3, warmup_steps=50)
    config.intervals.update(log=20, evaluate=200, checkpoint=200, eval_batches=32)
    config.eval_batch_size = 32
    config.keep_checkpoints = 2
    return config
