"""The paper's recipe as a config: every key there is, and what it means.

The files of `configs/` start from it and change what differs.
"""

import ml_collections


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
    # Of all tokens `rate` is predicted: `mask` of these behind [MASK], `random` behind another
    # token, the rest in the open. whole_words: all pieces of a word, or none, each word with the
    # same chance.
    config.masking = dict(rate=0.15, mask=0.8, random=0.1, whole_words=False)
    # The share of examples with a random shorter length.
    config.short_probability = 0.1

    # Two phases, or any number of them: a share of the steps, the sequence length, sequences of one
    # update over all devices, and in how many parts these are computed (more parts, less memory).
    # A phase may also have a `corpus`; fields of `masking` that differ from config.masking; and as
    # `model` those fields of the spec that a phase may change (`of_phase`).
    config.total_steps = 1_000_000
    config.phase_1 = dict(share=0.9, length=128, batch_size=256, accumulate=1)
    config.phase_2 = dict(share=0.1, length=512, batch_size=256, accumulate=1)

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
    # "adamw", "lamb", "stable_adamw" or "muon", with the schedule "linear" or "wsd": see
    # `bertjax.optimizers.spec.OptimizerSpec`. decay_steps is of "wsd": the last updates, in which
    # the rate falls; 0: it stays constant.
    config.optimizer = dict(
        name="adamw",
        learning_rate=1e-4,
        schedule="linear",
        warmup_steps=10_000,
        decay_steps=0,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-6,
        weight_decay=0.01,
        clip_norm=1.0,
        bias_correction=True,
    )

    # The decay of a moving average of the parameters (EMA), which then is what is evaluated,
    # exported and fine-tuned; 0: the parameters themselves are.
    config.ema = 0.0

    # Where it runs: a layout of `bertjax.sharding.rules` over data x model devices; -1: the rest.
    config.layout = "data"
    config.mesh = dict(data=-1, model=1)

    # Steps between lines of metrics, evaluations and checkpoints; batches of an evaluation.
    config.intervals = dict(log=100, evaluate=5_000, checkpoint=5_000, eval_batches=40)
    config.eval_batch_size = 256
    # The newest checkpoints to keep; and every one at a multiple of so many steps (0: none).
    config.keep_checkpoints = 3
    config.keep_checkpoint_every = 0
    # One batch, one update and one evaluation of every phase, and nothing is written.
    config.dry_run = False
    return config


def place_on_pod(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Sets the values that are best on 16 and 64 TPU chips, by launch/compile_check.py."""
    config.layout = "zero1"
    # google-research/bert computes gelu so; erf, --config.model.hidden_act=gelu, takes a step of
    # base_16 9 to 11 % more time.
    config.model.update(hidden_act="gelu_tanh", gradient_dtype="bfloat16")
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

    # Every combination is tried, each `restarts` times with another seed (order of the examples,
    # new output layer, dropout), from config.seed on; the best on dev is kept.
    config.grid = dict(batch_size=(32,), learning_rate=(5e-5,), epochs=(3,), restarts=1)
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
    # See `bertjax.optimizers.spec.OptimizerSpec`; the rate rises over a share of the updates.
    # Moments are corrected for bias, where the reference's are not: without it small tasks often
    # fail.
    config.optimizer = dict(
        name="adamw",
        warmup_proportion=0.1,
        beta1=0.9,
        beta2=0.999,
        epsilon=1e-6,
        weight_decay=0.01,
        clip_norm=1.0,
        bias_correction=True,
    )

    # Where it runs, as in `paper_config`.
    config.layout = "data"
    config.mesh = dict(data=-1, model=1)
    # Tokens that one device predicts together; 0: 512 on a CPU, 16,384 elsewhere.
    config.batch_tokens = 0
    # Steps between lines of metrics, and between checkpoints of a trial under way.
    config.intervals = dict(log=20, checkpoint=1_000)
    return config
