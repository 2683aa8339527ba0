"""DistilBERT of 3 layers from a BERT with at least 5, on a CPU, in minutes.

Command:
  python launch/pretrain.py --config=configs/pretrain_distil_tiny.py:TEACHER --config.corpus=DIR \\
    --workdir=RUN

TEACHER is RUN, hf:FOLDER or hf:NAME, a masked LM with the corpus's vocabulary. The student begins
with its layers 0, 2 and 4; --config.init_from.student=SOURCE#0,2,4,6 takes other layers, and
--config.init_from.student= random weights of the sizes in config.model. A student of another width
needs --config.objective.cosine_weight=0.

Hardware: 2 CPU cores, for a teacher that is 128 to 256 wide.
Expected: "distil_loss" falls toward 0, and "mlm_accuracy" rises toward "teacher_accuracy", which
stays the same. docs/results/objectives.md has a run.

Paper (arXiv 1910.01108, section 3): a base model of 6 layers, which begins with every second layer
of its teacher; batches of up to 4,000 rows, masks that change in every epoch, and no next sentence.
Its code (distillation/README.md) has the weights 5, 2 and 1, temperature 2, and a rate of 5e-4
that rises for 5 % of the updates.
"""

import ml_collections

from bertjax.config import paper_config


def get_config(teacher: str = "") -> ml_collections.ConfigDict:
    """The paper's losses, with a batch and a length that suit a CPU."""
    config = paper_config()
    del config.objective, config.init_from  # texts; here they are sections
    config.objective = dict(
        name="distillation",
        temperature=2.0,
        distil_weight=5.0,
        restrict_ce_to_mask=True,  # on a CPU, the logits of all tokens cost more than the layers
        mlm_weight=2.0,
        cosine_weight=1.0,
        text="spans",
    )
    config.init_from = dict(teacher=teacher, student=f"{teacher}#0,2,4" if teacher else "")
    config.short_probability = 0.0
    config.total_steps = 2_000
    config.phase_1.update(share=1.0, length=128, batch_size=32)
    del config.phase_2
    config.model.update(encoder="distilbert", size="tiny", num_hidden_layers=3)
    config.model.update(compute_dtype="float32", vocab_multiple=1)
    config.optimizer.update(learning_rate=5e-4, warmup_steps=100)
    config.intervals.update(log=50, evaluate=500, checkpoint=500, eval_batches=10)
    config.eval_batch_size = 32
    config.keep_checkpoints = 2
    return config
