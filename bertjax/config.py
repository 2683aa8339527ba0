"""The paper's recipe as a config, with all keys and what they mean.

The files of `configs/` start from it and change some values. A section that is made from a class
has the defaults of the class, whose docstring explains the keys. A flag --config.KEY sets a key; it
can also set a field of the class that the config leaves out.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_origin

import ml_collections

from bertjax.base.errors import InputError
from bertjax.data.examples.masking import MaskingRule
from bertjax.models.heads.embedding import Embedding
from bertjax.objectives.similarity_losses import LOSSES
from bertjax.runs.fine_tuning.recipe import OPTIMIZER, BiLstmSettings, Grid
from bertjax.runs.recipe import PhaseSpec
from bertjax.tasks.similarity.examples import Columns
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.subset import AdapterSpec


def section(settings: type, without: Sequence[str] = (), **values: Any) -> dict[str, Any]:
    """A section of a config.

    Args:
      settings: the dataclass of the section. The section gets those of its defaults that are
        switches, numbers and texts. Sections within it are empty.
      without: the fields to leave out.
      values: the values that replace defaults.
    """
    fields = dataclasses.fields(settings)
    defaults = {
        f.name: f.default for f in fields if isinstance(f.default, bool | int | float | str)
    }
    within: dict[str, dict[str, Any]] = {
        f.name: {}
        for f in fields
        if dataclasses.is_dataclass(f.type) or get_origin(f.type) is Mapping
    }
    found = defaults | within | values
    return {name: value for name, value in found.items() if name not in without}


def paper_config() -> ml_collections.ConfigDict:
    """BERT-Base as in sections 3.1 and A.2."""
    config = ml_collections.ConfigDict()
    # The DIR of launch/prepare_corpus.py; several are given as "DIR@0.7,DIR@0.3".
    config.corpus = ""
    # Languages are drawn by their tokens to this power: below 1, those with little text come more
    # often (XLM: 0.7, XLM-R: 0.3). Then all sources of the corpus name their language.
    config.language_alpha = 1.0
    # Weights to start from: RUN, hf:FOLDER, hf:NAME or tf1:FOLDER; or SOURCE#0,2,4 for some layers.
    # The model gets their sizes.
    config.init_from = ""
    # Whether those weights get the corpus's vocabulary, whatever it is: the row of a piece is the
    # mean of its old pieces' rows. A vocabulary with more pieces behind theirs needs no flag.
    config.exchange_vocabulary = False
    # Another run whose rate is constant (schedule "wsd"), as RUN or RUN@STEP: this run goes on from
    # its checkpoint in a folder of its own, with a rate that falls for optimizer.decay_steps.
    config.decay_from = ""
    # Determines the fresh parameters, the order of the text, spans, masks and dropout.
    config.seed = 0

    # The objective: "masked_lm_next_sentence"; Table 5's "masked_lm" and "left_to_right"; "hybrid",
    # "electra", "permutation", "both_directions" or "distillation". With settings it is a section:
    # dict(name="masked_lm", focal=1.0).
    config.objective = "masked_lm_next_sentence"
    # Whether a row has several documents, each of which sees only itself, and almost no padding. It
    # needs an objective that can have them ("masked_lm", ...), and short_probability=0.
    config.packed = False
    config.masking = section(MaskingRule, without=["copies"])
    # The share of examples with a random shorter length.
    config.short_probability = 0.1

    # Two phases, or any number of them, each with its share of the steps. A phase may also have a
    # `corpus`, fields of `masking` that differ from config.masking, and in `model` those fields of
    # the spec that a phase may change (`phase_fields`): --config.phase_2.model.remat=layer.
    config.total_steps = 1_000_000
    # The most that the run may cost: "20min" or "3h" on this machine, "80e6tokens" or "1e17flops".
    # When it begins, total_steps, the warm-up and the decay are scaled to that. "" means no budget.
    config.budget = ""
    config.phase_1 = section(PhaseSpec, share=0.9, length=128, batch_size=256)
    config.phase_2 = section(PhaseSpec, share=0.1, length=512, batch_size=256)

    # The model: a family of `bertjax.models.encoders.registry`, one of its sizes, and the fields of
    # its spec (`bertjax.models.encoders.bert.spec`): what is computed, and how.
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
        remat="activation",
        dropout_bits=32,
    )
    config.optimizer = section(OptimizerSpec, without=["warmup_proportion"])

    # A low-rank adapter that is trained in place of the given weights, name="lora"; and patterns of
    # paths of parameters that stay as they are: "embeddings|layer_[0-5]/".
    config.adapter = section(AdapterSpec)
    config.frozen = ""

    # The decay of a moving average of the parameters (EMA). The average is evaluated, exported and
    # fine-tuned in place of the parameters. 0 means no average.
    config.ema = 0.0

    # Where it runs: a layout of `bertjax.training.sharding.rules` over data x model devices.
    config.layout = "data"
    config.mesh = section(MeshSpec)

    # Steps between lines of metrics, evaluations and checkpoints; batches of an evaluation.
    config.intervals = dict(log=100, evaluate=5_000, checkpoint=5_000, eval_batches=40)
    config.eval_batch_size = 256
    # How many of the newest checkpoints to keep. Those at multiples of keep_checkpoint_every steps
    # are kept, too (0: none).
    config.keep_checkpoints = 3
    config.keep_checkpoint_every = 0
    # This tracker gets the metrics, too: "wandb", "mlflow" or "trackio". "" means none.
    config.tracker = ""
    # Whether to do only one update and one evaluation of each phase, and to write nothing.
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
    # Global layers have a theta for 1,024 tokens first, and then the one for 8,192 tokens.
    config.phase_1 = section(PhaseSpec, share=0.9, length=1024, batch_size=1024)
    config.phase_1.update(masking=masked, model=dict(global_rope_theta=10_000.0))
    config.phase_2 = section(PhaseSpec, share=0.1, length=8192, batch_size=128)
    # Where einsum computes it, the attention of all pairs of 8,192 positions is recomputed in the
    # backward pass, not stored.
    config.phase_2.update(masking=masked, model=dict(remat="attention"))
    config.model = {
        **config.model.to_dict(),
        **dict(encoder="modernbert", max_position_embeddings=8192),
        **dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    }
    # ModernBERT's decay of 1e-5 is fully decoupled: at the peak, an update takes 1e-5 of a weight
    # (`decouple_lr=True` of optimi, in its code). Here it takes the rate times the decay.
    config.optimizer.update(name="stable_adamw", learning_rate=8e-4, weight_decay=0.0125)
    config.optimizer.update(beta2=0.98)
    config.optimizer.update(schedule="wsd", warmup_steps=3_000, decay_steps=10_000)
    return config


def fast_config(batch_size: int, *, both: bool) -> ml_collections.ConfigDict:
    """The recipe learns the most from few tokens: left to right first, by Muon (docs/speedrun.md).

    Args:
      batch_size: rows of 128 tokens.
      both: whether half of the rows are read left to right after the first phase, too (GPT-BERT,
        arXiv 2410.24159), so that the model can do both; the third phase then masks 15 %.
    """
    config = modern_config()
    rows = section(PhaseSpec, length=128, batch_size=batch_size)
    del config.phase_1, config.phase_2
    config.phase_1 = {**rows, "objective": "left_to_right"}
    config.phase_2 = {**rows, "masking": dict(rate=0.4)}
    if both:
        config.phase_2.objective = dict(name="hybrid", causal_rows=1, group=2)
        config.phase_3 = {**config.phase_2, "masking": dict(rate=0.15)}
    config.model.update(compute_dtype="bfloat16", vocab_multiple=1)
    config.model.update(max_position_embeddings=512, initializer_range=0.06)
    config.optimizer.update(name="muon", weight_decay=0.01)
    config.intervals.update(log=100, eval_batches=8)
    config.keep_checkpoints = 2
    return config


def place_on_pod(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Sets the values that are best on 16 and 64 TPU chips, by launch/compile_check.py."""
    config.layout = "zero1"
    # google-research/bert computes gelu in this form. With the erf form,
    # --config.model.hidden_act=gelu, a step of base_16 takes up to 1 % more time.
    config.model.update(hidden_act="gelu_tanh", gradient_dtype="bfloat16")
    config.model.update(dropout_bits=16)  # faster in the TPU's kernels of attention
    return config


def similarity_config(loss: str = "ranking") -> ml_collections.ConfigDict:
    """Contrastive training of a model of vectors, by sentence-transformers' usual recipe.

    Args:
      loss: a key of `bertjax.objectives.similarity_losses.LOSSES`.

    Raises:
      InputError: there is no such loss.
    """
    config = ml_collections.ConfigDict()
    # What is made of the encoder: `bertjax.models.heads.embedding.Embedding`.
    config.task = section(Embedding)
    # The sources, as "DIR", or several as "DIR@2,DIR@1" (`bertjax.tasks.similarity.examples`), and
    # the names of their columns.
    config.data = ""
    config.columns = section(Columns)
    # What chooses the best model (`bertjax.runs.contrastive.evaluation`), several with commas
    # between; "": the dev files of the sources.
    config.dev = ""
    # Weights to start from: RUN, hf:FOLDER, hf:NAME or tf1:FOLDER.
    config.init_from = ""

    if loss not in LOSSES:
        raise InputError(f"{loss!r} is no loss: take one of {', '.join(LOSSES)}")
    config.loss = section(LOSSES[loss], name=loss)
    # The loss is the sum of those of the vectors' first so many numbers; (): of the whole vectors.
    config.dimensions = ()
    # The weights of the regularizer that makes sparse vectors of queries and of passages sparse.
    config.sparsity = (0.0, 0.0)
    # Queries of a batch, over all devices. It is encoded in `chunks` parts, to save memory; the
    # gradient is that of the whole batch.
    config.batch_size = 64
    config.chunks = 1
    # Whether each batch has examples of one source only.
    config.apart = False
    # Whether all batches have the lengths of config.task. Otherwise a batch is only as long as its
    # texts, of a few lengths, for each of which a program is compiled.
    config.fixed_lengths = False
    # How often each example comes; or the number of updates, if it is not 0.
    config.epochs = 1.0
    config.total_steps = 0
    config.seed = 0

    # Fields of the encoder's spec, and what of the weights is not trained, as in `finetune_config`.
    config.model = finetune_config().model
    config.adapter = section(AdapterSpec)
    config.frozen = ""
    config.optimizer = section(OptimizerSpec)
    config.optimizer.update(learning_rate=2e-5, **OPTIMIZER)
    config.layout = "data"
    config.mesh = section(MeshSpec)
    # Tokens that one device encodes together in evaluation; 0: 512 on a CPU, 16,384 elsewhere.
    config.batch_tokens = 0
    # Steps between lines of metrics, evaluations on dev, and checkpoints.
    config.intervals = dict(log=20, evaluate=500, checkpoint=500)
    return config


def finetune_config() -> ml_collections.ConfigDict:
    """Fine-tuning as in section A.3: batch 32, three epochs, the rate chosen on dev."""
    config = ml_collections.ConfigDict()
    # The task: its kind, a key of `bertjax.runs.fine_tuning.recipe.TASKS`, and its other fields.
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
    # The number of parts of a batch, each with texts of similar length. The update is the same, but
    # needs less padding and memory. 0: as many as suit the texts and the device.
    config.accumulate = 0
    # The most lengths to which parts are padded; a program is compiled for each.
    config.buckets = 5

    # Fields of the encoder's spec, besides the sizes, which are those of the weights. The dtype
    # "auto" is bfloat16 where the device has units for it, else float32; a run keeps what it took.
    config.model = dict(
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        compute_dtype="auto",
        vocab_multiple=1,
        scan_layers=False,
        remat="activation",
        dropout_bits=32,
    )
    # A low-rank adapter, and patterns of weights that stay as they are, as in `paper_config`.
    config.adapter = section(AdapterSpec)
    config.frozen = ""
    # The weight of the next token's loss beside the task's, for GPT, whose paper has 0.5.
    config.lm_weight = 0.0
    # A BiLSTM over the encoder, new in every trial, if hidden is above 0, such as 768.
    config.bilstm = section(BiLstmSettings)
    others = ("learning_rate", "warmup_steps", "schedule", "decay_steps")  # the grid has the rate
    config.optimizer = section(OptimizerSpec, others, **OPTIMIZER)

    # Where it runs, as in `paper_config`.
    config.layout = "data"
    config.mesh = section(MeshSpec)
    # Tokens that one device predicts together; 0: 512 on a CPU, 16,384 elsewhere.
    config.batch_tokens = 0
    # Steps between lines of metrics, and between checkpoints of a trial under way.
    config.intervals = dict(log=20, checkpoint=1_000)
    return config
