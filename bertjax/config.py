"""The paper's recipe as a config: every key there is, and what it means.

The files of `configs/` start from it and change what differs. A section with a class has that
class's defaults, and its docstring says what the keys mean. A flag --config.KEY sets each of them,
also a field of the class that stands in no config.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_origin

import ml_collections

from bertjax.examples.masking import MaskingRule
from bertjax.fine_tuning.recipe import BiLstmSettings, Grid, OptimizerSettings
from bertjax.optimizers.spec import OptimizerSpec
from bertjax.runs.recipe import PhaseSpec
from bertjax.sharding.mesh import MeshSpec


def section(settings: type, **values: Any) -> dict[str, Any]:
    """A section of a config.

    Args:
      settings: the dataclass of the section, whose defaults it gets: switches, numbers and texts.
        Sections within it are empty.
      values: those that are no defaults.
    """
    fields = dataclasses.fields(settings)
    defaults = {
        f.name: f.default for f in fields if isinstance(f.default, bool | int | float | str)
    }
    within = {
        f.name: {}
        for f in fields
        if dataclasses.is_dataclass(f.type) or get_origin(f.type) is Mapping
    }
    return defaults | within | values


def paper_config() -> ml_collections.ConfigDict:
    """BERT-Base as in sections 3.1 and A.2."""
    config = ml_collections.ConfigDict()
    # What is read: the DIR of launch/prepare_corpus.py; several as "DIR@0.7,DIR@0.3".
    config.corpus = ""
    # Weights to start from: RUN, hf:FOLDER, hf:NAME or tf1:FOLDER; they bring the model's sizes.
    config.init_from = ""
    # Another run whose rate is constant (schedule "wsd"), as RUN or RUN@STEP: this run goes on from
    # its checkpoint in a folder of its own, with a rate that falls for optimizer.decay_steps.
    config.decay_from = ""
    # Decides parameters, order, spans, masks and dropout.
    config.seed = 0

    # What is learned: "masked_lm_next_sentence"; Table 5's "masked_lm" and "left_to_right".
    config.objective = "masked_lm_next_sentence"
    # Several documents in a row, each of which sees only itself, with next to no padding. It needs
    # another objective than "masked_lm_next_sentence", and short_probability=0.
    config.packed = False
    config.masking = section(MaskingRule)
    # The share of examples with a random shorter length.
    config.short_probability = 0.1

    # Two phases, or any number of them, each with its share of the steps. A phase may also have a
    # `corpus`; fields of `masking` that differ from config.masking; and as `model` those fields of
    # the spec that a phase may change (`of_phase`): --config.phase_2.model.remat=layer.
    config.total_steps = 1_000_000
    config.phase_1 = section(PhaseSpec, share=0.9, length=128, batch_size=256)
    config.phase_2 = section(PhaseSpec, share=0.1, length=512, batch_size=256)

    # The model: a family of `bertjax.encoders.registry`, one of its sizes, and the fields of its
    # spec (`bertjax.encoders.bert.spec`): what is computed, and how.
    config.model = dict(
        encoder="bert",
        size="base",
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        max_position_embeddings=512,
        compute_dtype="bfloat16",
        gradient_dtype="float32",
        vocab_multiple=128,
        scan_layers=False,
        remat="none",
        attention="einsum",
    )
    config.optimizer = section(OptimizerSpec)

    # The decay of a moving average of the parameters (EMA), which then is what is evaluated,
    # exported and fine-tuned; 0: the parameters themselves are.
    config.ema = 0.0

    # Where it runs: a layout of `bertjax.sharding.rules` over data x model devices.
    config.layout = "data"
    config.mesh = section(MeshSpec)

    # Steps between lines of metrics, evaluations and checkpoints; batches of an evaluation.
    config.intervals = dict(log=100, evaluate=5_000, checkpoint=5_000, eval_batches=40)
    config.eval_batch_size = 256
    # The newest checkpoints to keep; and every one at a multiple of so many steps (0: none).
    config.keep_checkpoints = 3
    config.keep_checkpoint_every = 0
    # One batch, one update and one evaluation of every phase, and nothing is written.
    config.dry_run = False
    return config


def modern_config() -> ml_collections.ConfigDict:
    """ModernBERT-base (arXiv 2412.13663, section 2 and appendix A), for a tenth of its tokens.

    Documents are packed, 30 % of the tokens are masked, and no next sentence is predicted. Held-out
    text is masked by config.masking, 15 %, so that its figures compare with BERT's.
    """
    config = paper_config()
    config.objective, config.packed, config.short_probability = "masked_lm", True, 0.0
    config.total_steps = 100_000
    masked = dict(rate=0.3)
    # Global layers tell positions apart in 1,024 tokens first, and in 8,192 with another theta.
    config.phase_1 = section(PhaseSpec, share=0.9, length=1024, batch_size=1024)
    config.phase_1.update(masking=masked, model=dict(global_rope_theta=10_000.0))
    config.phase_2 = section(PhaseSpec, share=0.1, length=8192, batch_size=128)
    # The products of all pairs of 8,192 positions are computed again, and not kept.
    config.phase_2.update(masking=masked, model=dict(remat="attention"))
    config.model = {
        **config.model.to_dict(),
        **dict(encoder="modernbert", max_position_embeddings=8192),
        **dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    }
    # Its decay of 1e-5 is fully decoupled: an update at the peak takes 1e-5 of a weight
    # (`decouple_lr=True` of optimi, in its code). Here it takes the rate times the decay.
    config.optimizer.update(name="stable_adamw", learning_rate=8e-4, weight_decay=0.0125)
    config.optimizer.update(beta2=0.98)
    config.optimizer.update(schedule="wsd", warmup_steps=3_000, decay_steps=10_000)
    return config


def place_on_pod(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Sets the values that are best on 16 and 64 TPU chips, by launch/compile_check.py."""
    config.layout = "zero1"
    # google-research/bert computes gelu so; erf, --config.model.hidden_act=gelu, takes a step of
    # base_16 9 to 11 % more time.
    config.model.update(hidden_act="gelu_tanh", gradient_dtype="bfloat16")
    # Kernels where they are faster than einsum, which it is elsewhere (docs/tpu.md).
    config.model.attention = "kernel"
    return config


def finetune_config() -> ml_collections.ConfigDict:
    """Fine-tuning as in section A.3: batch 32, three epochs, the rate chosen on dev."""
    config = ml_collections.ConfigDict()
    # What is learned: a kind of `bertjax.fine_tuning.recipe.TASKS`, and the fields of that task.
    config.task = dict()
    # A folder with the official files, or "tfds:".
    config.data = ""
    # Weights to start from: RUN, hf:FOLDER, hf:NAME or tf1:FOLDER.
    config.init_from = ""

    # Every combination is tried, with seeds from config.seed on; the best on dev is kept.
    config.grid = section(Grid, batch_size=(32,), learning_rate=(5e-5,), epochs=(3,))
    config.seed = 0
    # Tokens of a sequence; longer ones are cut (or, for SQuAD and tagging, go into windows).
    config.max_length = 128
    # An update takes its batch in so many parts of like length, for the same update with less
    # padding and memory; 0: as many as suit the texts and the device.
    config.accumulate = 0
    # Parts are padded to one of at most so many lengths; each is compiled once.
    config.buckets = 5

    # Fields of the spec of the weights' encoder, which have its sizes.
    config.model = dict(
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        compute_dtype="float32",
        vocab_multiple=1,
        scan_layers=False,
        remat="none",
        attention="einsum",
    )
    # A BiLSTM on top, new in every trial, where hidden is above 0, such as 768.
    config.bilstm = section(BiLstmSettings)
    config.optimizer = section(OptimizerSettings)

    # Where it runs, as in `paper_config`.
    config.layout = "data"
    config.mesh = section(MeshSpec)
    # Tokens that one device predicts together; 0: 512 on a CPU, 16,384 elsewhere.
    config.batch_tokens = 0
    # Steps between lines of metrics, and between checkpoints of a trial under way.
    config.intervals = dict(log=20, checkpoint=1_000)
    return config
