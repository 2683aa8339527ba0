"""ELECTRA of 2 layers of 128 on a CPU, in minutes: a generator next to a discriminator.

Command:
  python launch/pretrain.py --config=configs/pretrain_electra_tiny.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: 2 CPU cores.
Expected: the generator's "mlm_loss" falls below the unigram baseline, and "disc_accuracy" rises
above the 85 % of tokens that are the text's own; minutes of a CPU are too few for both
(docs/results/objectives.md).

The embeddings of `electra` have a width of their own, which a narrow generator can share. For
another encoder set generator_width=1 with fewer generator_layers, or shared_embeddings=False;
transformers has no class for such a discriminator, so it is fine-tuned here and exported after
that. To start from both published models, in a config file: `del config.init_from`, then
`config.init_from = dict(discriminator="hf:NAME", generator="hf:NAME")`.

Paper (arXiv 2003.10555, Table 6), small, base and large: a generator of 1/4, 1/3 and 1/4 of the
width; 15, 15 and 25 % of the tokens masked; batches of 128, 256 and 2,048 rows of 128, 512 and 512
tokens; 1,000,000, 766,000 and 400,000 updates; a rate that peaks at 5e-4, 2e-4 and 2e-4 after
10,000 updates and falls to 0. All have beta2 0.999, epsilon 1e-6, decay 0.01, dropout 0.1 and
lambda 50. Of the masked places 85 % are [MASK], and the others show their own tokens
(google-research/electra). Set `--config.model.size=small`, `base` or `large` for that.
"""

import ml_collections

from bertjax.config import paper_config


def get_config() -> ml_collections.ConfigDict:
    """The paper's masking and weights, with a batch and a length that suit a CPU."""
    config = paper_config()
    del config.objective  # a name; here it is a section
    config.objective = dict(
        name="electra",
        generator_width=0.5,
        generator_layers=1.0,
        discriminator_weight=50.0,
        shared_embeddings=True,
        disentangled=False,
        text="spans",
    )
    config.masking.update(mask=0.85, random=0.0)
    config.short_probability = 0.0
    config.total_steps = 2_000
    config.phase_1.update(share=1.0, length=128, batch_size=32)
    del config.phase_2
    config.model.update(encoder="electra", size="tiny", compute_dtype="float32", vocab_multiple=1)
    config.optimizer.update(learning_rate=1e-3, warmup_steps=200)
    config.intervals.update(log=50, evaluate=500, checkpoint=500, eval_batches=10)
    config.eval_batch_size = 32
    config.keep_checkpoints = 2
    return config
