"""The recipes that the files of `configs/` start from, and change some values of.

A section that is made from a class has the defaults of the class, whose docstring explains the keys
(docs/config.md shows all). A flag --config.KEY sets a key; it can also set a field of the class
that the config leaves out.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_origin

import ml_collections

from bertjax.base.checks import check_choice
from bertjax.base.limits import COMMA
from bertjax.data.examples.masking import MaskingRule
from bertjax.models.heads.embedding import Embedding
from bertjax.objectives.masked_lm import MaskedLMNextSentence
from bertjax.objectives.similarity_losses import LOSSES
from bertjax.runs.contrastive.recipe import OPTIMIZER as SIMILARITY_OPTIMIZER
from bertjax.runs.contrastive.recipe import SimilarityRecipe, Steps
from bertjax.runs.fine_tuning.recipe import (
    OPTIMIZER,
    BiLstmSettings,
    Grid,
    TaskRecipe,
    TrialIntervals,
)
from bertjax.runs.read import Parted
from bertjax.runs.recipe import PhaseSpec, Recipe
from bertjax.tasks.similarity.examples import Columns
from bertjax.training.loop import Intervals
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.subset import AdapterSpec

_OF_GIVEN_WEIGHTS = dict(
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
    compute_dtype="auto",
    vocab_multiple=1,
    scan_layers=False,
    remat="activation",
    dropout_bits=32,
)


def section(settings: Any, without: Sequence[str] = (), **values: Any) -> dict[str, Any]:
    """A section of a config, with the dataclass's defaults that are switches, numbers and texts.

    So are tuples of these. Sections within it are empty.

    Args:
      settings: the dataclass of the section, or one with other defaults.
      without: the fields to leave out.
      values: the values that replace defaults.
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        default = getattr(settings, field.name, None)
        if dataclasses.is_dataclass(field.type) or get_origin(field.type) is Mapping:
            found[field.name] = {}
        elif isinstance(default, bool | int | float | str | tuple):
            if COMMA not in Parted.of(field.type).words:
                found[field.name] = default
    return {name: value for name, value in found.items() if name not in without} | values


def paper_config() -> ml_collections.ConfigDict:
    """BERT-Base as in sections 3.1 and A.2."""
    return ml_collections.ConfigDict(
        section(
            Recipe,
            corpus="",
            objective=MaskedLMNextSentence.name,
            masking=section(MaskingRule, without=["copies"]),
            phase_1=section(PhaseSpec, share=0.9, length=128, batch_size=256),
            phase_2=section(PhaseSpec, share=0.1, length=512, batch_size=256),
            model=dict(
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
            ),
            optimizer=section(OptimizerSpec, without=["warmup_proportion"]),
            adapter=section(AdapterSpec),
            mesh=section(MeshSpec),
            intervals=section(Intervals),
        )
    )


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
    """The recipe learns the most from few tokens: left to right first, by Muon.

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

    `loss` is a key of `bertjax.objectives.similarity_losses.LOSSES`.
    """
    check_choice("loss", loss, LOSSES)
    return ml_collections.ConfigDict(
        section(
            *(SimilarityRecipe, ["tracker"]),
            task=section(Embedding),
            data="",
            columns=section(Columns),
            dev="",
            loss=section(LOSSES[loss], name=loss),
            model=_OF_GIVEN_WEIGHTS,
            optimizer=section(SIMILARITY_OPTIMIZER),
            adapter=section(AdapterSpec),
            mesh=section(MeshSpec),
            intervals=section(Steps),
        )
    )


def finetune_config() -> ml_collections.ConfigDict:
    """Fine-tuning as in section A.3: batch 32, three epochs, the rate chosen on dev."""
    others = ("learning_rate", "warmup_steps", "schedule", "decay_steps")  # the grid has the rate
    return ml_collections.ConfigDict(
        section(
            *(TaskRecipe, ["share_power", "tracker"]),
            task={},
            data="",
            grid=section(Grid),
            model=_OF_GIVEN_WEIGHTS,
            bilstm=section(BiLstmSettings),
            optimizer=section(OPTIMIZER, others),
            adapter=section(AdapterSpec),
            mesh=section(MeshSpec),
            intervals=section(TrialIntervals),
        )
    )
