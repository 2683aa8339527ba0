"""EuroBERT-210m (arXiv 2503.05500), 12 layers of 768, on 16 TPU chips.

Command, on every host of the slice:
  python launch/pretrain.py --config=configs/pretrain_eurobert_210m.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: 16 TPU chips; 262,144 tokens a chip.
The TPU compiler's estimate for v5e: 2.60 s an update at length 2,048 (MFU 62 %, a quarter of it in
the head), plus collectives of 102 ms at the links' full speed; 9.2 GiB of a chip's 15.75; 34 days
for the first phase:
  python launch/compile_check.py --config=configs/pretrain_eurobert_210m.py --topology=v5e:4x4 \\
    --config.model.vocab_size=128256
Expected: the published model has 83.5 on XNLI's English (Table 10). Not yet run on TPUs by this
project. `--config.budget=20e9tokens` takes a part of the five trillion tokens.

Paper: 4.8 trillion tokens, of which half become [MASK], at a constant rate; then 200 billion of
another mixture (`--config.phase_2.corpus=DIR`), of which a tenth, while the rate falls. Texts have
up to 8,192 tokens, with a theta of 250,000. Their trainer (Nicolas-BZRD/EuroBERT, docs/trainer.md)
has as defaults rows of 2,048 tokens, AdamW with a rate of 1e-4, beta2 0.95, epsilon 1e-5 and a
decay of 0.1, and a warm-up of 1 %. There the rate falls on a line; here by 1 - sqrt.

Ours, for want of a source: the batch of 4.2 million tokens; a theta of 10,000 for the short rows;
and that only the second phase has long ones. The published vocabulary is
`--vocabulary=hf:EuroBERT/EuroBERT-210m` of launch/prepare_corpus.py. `--config.model.size=610m` and
`2.1b` are the larger ones, which need more microbatches.
"""

import ml_collections

from bertjax.config import modern_config, place_on_pod


def get_config() -> ml_collections.ConfigDict:
    """Pre-training, and then the annealing on longer texts."""
    config = place_on_pod(modern_config())
    config.total_steps = 1_192_000
    config.phase_1.update(share=0.96, length=2_048, batch_size=2_048, accumulate=16)
    config.phase_2.update(share=0.04, batch_size=512, accumulate=16)
    config.phase_1.masking = dict(rate=0.5, mask=1.0, random=0.0)
    config.phase_2.masking = dict(rate=0.1, mask=1.0, random=0.0)
    config.model.update(encoder="eurobert", size="210m", hidden_act="silu")
    config.optimizer.update(name="adamw", learning_rate=1e-4, beta2=0.95, epsilon=1e-5)
    config.optimizer.update(weight_decay=0.1, warmup_steps=11_920, decay_steps=47_680)
    return config
