"""DeBERTaV3-base (arXiv 2111.09543), an ELECTRA whose attention is disentangled, on 16 TPU chips.

Command, on every host of the slice:
  python launch/pretrain.py --config=configs/pretrain_deberta_v3_base.py --config.corpus=DIR \\
    --workdir=RUN

Hardware: 16 TPU chips; 65,536 tokens a chip.
Expected: the published model, of 160 GB of text, has 90.6 on MNLI (its card). On v5e:4x4 about 1.2
days, by the TPU compiler's estimate (launch/compile_check.py with
`--config.model.vocab_size=128100`): 0.81 s an update, of which attention takes 33 %, and 6.7 GiB of
a chip's 15.75. Not yet run on TPUs by this project.

The generator has half of the layers. Its loss alone trains the table of tokens that both read, and
the discriminator adds one of its own ("gradient-disentangled embedding sharing", section 3.3).
`launch/convert.py` writes the discriminator as its authors did: transformers reads its encoder
(AutoModel), and bertjax also its head, `mask_predictions`. A vocabulary of the published kind is
`hf:FOLDER` of launch/prepare_corpus.py.

Paper (section 3.1): 125,000 updates of 2,048 rows of Wikipedia and BookCorpus, a rate of 5e-4 after
10,000 updates of warm-up, and lambda 50. The published models saw more text. In their code
(microsoft/DeBERTa), whose rtd.sh has other numbers (a million updates of 256 rows, a rate of 1e-4
after 10,000, lambda 10), all of the masked 15 % become [MASK]; the generator predicts through two
more passes of its last layer ("enhanced mask decoder"), which this project does not have; and both
models are clipped alone.
"""

import ml_collections

from bertjax.config import paper_config, place_on_pod


def get_config() -> ml_collections.ConfigDict:
    """The paper's ablations, of Wikipedia and BookCorpus."""
    config = place_on_pod(paper_config())
    del config.objective  # a name; here it is a section
    config.objective = dict(
        name="electra",
        generator_width=1.0,
        generator_layers=0.5,
        discriminator_weight=50.0,
        shared_embeddings=True,
        disentangled=True,
        text="full_sentences",
    )
    config.masking.update(mask=1.0, random=0.0)
    config.short_probability = 0.0
    config.total_steps = 125_000
    config.phase_1.update(share=1.0, length=512, batch_size=2_048, accumulate=4)
    del config.phase_2
    config.model.update(encoder="deberta-v2", size="base")
    config.optimizer.update(learning_rate=5e-4, warmup_steps=10_000)
    return config
