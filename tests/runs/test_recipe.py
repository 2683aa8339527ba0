"""A config becomes a run; every error in it is found and named."""

import dataclasses
import json
import math

import jax
import ml_collections
import numpy as np
import pytest
from absl.flags import FlagValues
from ml_collections import config_flags

from bertjax.base.errors import InputError
from bertjax.config import paper_config
from bertjax.data.corpus.store import HELDOUT, TokenStore
from bertjax.data.examples.masking import MaskingRule
from bertjax.models.encoders.presets import BertSpec, ModernBertSpec
from bertjax.objectives.left_to_right import LeftToRight
from bertjax.objectives.masked_lm import MaskedLM, MaskedLMNextSentence
from bertjax.objectives.registry import OBJECTIVES
from bertjax.programs import prepare
from bertjax.runs.assembly import make_experiment, make_phases
from bertjax.runs.read import flat
from bertjax.runs.recipe import PhaseSpec, Recipe
from bertjax.text.tokenizer import Tokenizer
from bertjax.training.loop import Intervals
from bertjax.training.objective import Rngs
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.sharding.mesh import MeshSpec
from configs import (
    pretrain_eurobert_210m,
    pretrain_fast_mini,
    pretrain_mmbert_base,
    pretrain_neobert,
    pretrain_tiny,
)
from tests.helpers.refused import assert_refused
from tests.helpers.tiny_run import REPOSITORY, SOUNDS, tiny_config


def test_the_papers_recipe():
    recipe = Recipe.from_config(paper_config())
    assert recipe.total_steps == 1_000_000
    assert [(p.share, p.length, p.batch_size) for p in recipe.phases] == [
        (0.9, 128, 256),
        (0.1, 512, 256),
    ]
    assert recipe.objective == MaskedLMNextSentence()
    assert recipe.optimizer.learning_rate == 1e-4 and recipe.optimizer.warmup_steps == 10_000
    assert (recipe.masking.rate, recipe.masking.mask, recipe.masking.random) == (0.15, 0.8, 0.1)
    spec = recipe.spec(30_522)
    assert (spec.num_hidden_layers, spec.hidden_size, spec.num_attention_heads) == (12, 768, 12)
    shapes = jax.eval_shape(recipe.objective.model(spec).init, jax.random.key(0))
    # The published count is without padding of the vocabulary.
    padding = (spec.padded_vocab_size - 30_522) * (768 + 1)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 110_106_428 + padding


def test_a_config_may_be_any_mapping_and_lives_in_json():
    config = pretrain_tiny.get_config()
    recipe = Recipe.from_config(config)
    assert Recipe.from_config(config.to_dict()) == recipe
    assert Recipe.from_config(json.loads(json.dumps(recipe.config_dict))) == recipe


@pytest.mark.parametrize(
    "corpus, names", [("", ()), ("a", ("a",)), ("a@0.7,b@0.3", ("a@0.7", "b@0.3")), ("a,", ("a",))]
)
def test_several_corpora(corpus, names):
    assert Recipe.from_config(tiny_config(corpus)).corpus == names


_MASKED = {"objective": "masked_lm"}
_PACKED = {"packed": True, "objective": "masked_lm"}
BAD = [
    ({"colour": "red"}, "config.colour: unknown key: there are *total_steps"),
    ({"optimiser": {}}, "config.optimiser: unknown key: there are model, *phase_1, "),
    ({"optimiser": {}}, "*: did you mean optimizer?"),
    ({"optimizer.learnig_rate": 1e-4}, "*: did you mean learning_rate?"),
    ({"optimizer.rate": 1}, "config.optimizer.rate: unknown key: there are *learning_rate"),
    ({"phase_2.batchsize": 8}, "config.phase_2.batchsize: *: did you mean batch_size"),
    ({"model.depth": 3}, "config.model.depth: unknown key"),
    ({"phase_2.steps": 3}, "config.phase_2.steps: unknown key"),
    ({"phase_3.share": 0.0}, "config.phase_3={*}: * field `length`"),
    ({"phase_1.share": 0.5}, "*shares of the phases must sum to 1"),
    ({"phase_1.share": -0.5}, ": must be"),
    ({"phase_1.batch_size": 0}, ": must be at"),
    ({"phase_1.batch_size": 10**9}, ": must be at most 1,000,000"),
    ({"phase_1.accumulate": 0}, ": must be at least 1"),
    (
        {"phase_1.accumulate": 3},
        "config.phase_1.batch_size=16 is not a multiple of config.phase_1.accumulate=3",
    ),
    (
        {"phase_2.length": 65},
        " is over the position table, config.model.max_position_embeddings=64",
    ),
    (
        {"packed": True, "short_probability": 0.0},
        ": objective='masked_lm_next_sentence' cannot have packed documents: "
        "set packed=False, or objective to one of masked_lm, left_to_right",
    ),
    (
        {"short_probability": 0.1} | _PACKED,
        ": must be 0, because the rows of this layout * are full",
    ),
    ({"packed": "no"} | _MASKED, ": expected `bool`"),
    ({"layout": "magic"}, "*magic"),
    ({"layout": ["data"]}, ": expected `str`"),
    ({"mesh.data": -2}, ": must be at least -1"),
    ({"mesh.model": 0}, ": must be at least 1"),
    ({"intervals.log": 0}, ": must be at least 1"),
    ({"intervals.log": "1"}, ": expected `int`"),
    ({"corpus": 3}, ": expected `str`, got `int`"),
    ({"init_from": 3}, ": expected `str | object`, got `int`"),
    ({"language_alpha": 0.0}, ": must be in (0, 1]"),
    ({"budget": "3 days"}, ": must be a number below 1e+38 and one"),
    ({"total_steps": 1e3}, ": expected `int`"),
    ({"total_steps": 9_999_999_999_999}, ": must be at most 2,147,483,647"),
    ({"keep_checkpoints": True}, ": expected `int`"),
    ({"keep_checkpoints": 0}, ": must be at least 1"),
    ({"ema": 1.0}, ": must be in [0, 1)"),
    ({"ema": -0.1}, ": must be in [0, 1)"),
    ({"seed": "0"}, ": expected `int`"),
    ({"seed": 2**31}, ": must be at most"),
    ({"seed": 10**5000}, "config.seed=a number of * bits: must be"),
    ({"seed": {1}}, "--config: {1} is no value of a config: it has numbers, texts"),
    ({"decay_from": "run"}, ": set config.optimizer.schedule='wsd', and"),
    # The optimizer.
    ({"optimizer.name": "sgd"}, ""),
    ({"optimizer.warmup_steps": 12}, ": must be less than the 12 steps"),
    ({"optimizer.learning_rate": 0}, ": must be above 0"),
    ({"optimizer.learning_rate": math.inf}, ": must be"),
    ({"optimizer.epsilon": math.nan}, ": must be"),
    ({"optimizer.bias_correction": "no"}, ": expected `bool`"),
    ({"optimizer.schedule": "cosine"}, ": must be one of linear, wsd"),
    (
        {"optimizer.decay_steps": 10, "optimizer.schedule": "wsd"},
        ": must be at most 9, the steps of the run after",
    ),
    (
        {"optimizer.name": "stable_adamw", "model.scan_layers": True},
        " adapts the rate of each tensor, *one tensor",
    ),
    # The model.
    ({"model": 3}, ": expected `object`"),
    ({"model.size": "giant"}, "*giant"),
    ({"model.num_attention_heads": 5}, "config.model.hidden_size=32 "),
    ({"model.hidden_size": 128.0}, ": expected `int`"),
    ({"model.num_hidden_layers": 1001}, ": must be at most 1,000"),
    ({"model.max_position_embeddings": 10**12}, ": must be at most 1,000,000"),
    ({"model.attention": 3}, ": expected `str`"),
    (
        {"phase_2.model": {"hidden_size": 64}},
        "config.phase_2.model.hidden_size: must be the same in all phases; *: remat",
    ),
    # The masking.
    ({"masking.mask": 0.9, "masking.random": 0.2}, ""),
    ({"masking.rate": 1.5}, ": must be in"),
    ({"masking.copies": -1}, ": must be at least 0"),
    ({"phase_1.masking": 0.3}, ": expected `object`"),
    ({"phase_2.masking.rate": 1.5}, ": must be in (0, 1)"),
    (
        {"masking.rate": 1e-9},
        "config: masking rate=1e-09 predicts no token in length=32: must be at least 0.016",
    ),
    (
        {"phase_2.masking.rate": 0.0075},
        "config: masking rate=0.0075 predicts no token in length=64: must be at least 0.0078",
    ),
    # The objective.
    ({"objective": "nsp"}, ": must be one of masked_lm_next"),
    ({"objective": 3}, ": expected `object`"),
    (
        {"objective": {"text": "packed"}},
        "config.objective=None: must be one of masked_lm_next_sentence",
    ),
    (
        {"objective": {"name": "masked_lm", "depth": 3}},
        "config.objective.depth: unknown key: there are text",
    ),
    ({"objective": {"name": "masked_lm", "text": 3}}, "config.objective.text=3: expected `str`"),
    (
        {"objective": {"name": "masked_lm", "text": "pairs"}},
        "*text='pairs': must be one of spans, packed",
    ),
    (
        {
            "objective": {"name": "masked_lm", "text": "spans"},
            "packed": True,
            "short_probability": 0.0,
        },
        "*packed=True and config.objective.text='spans': leave",
    ),
    ({"objective": {"name": "electra", "generator_width": 0}}, "*_width=0: must be in"),
    ({"objective": {"name": "electra", "shared": 1}}, "config.objective.shared: unkn"),
    ({"phase_2.objective": "no"} | _MASKED, ": must be one of "),
    (
        {"phase_2.objective": "masked_lm_next_sentence"} | _MASKED,
        " trains other parameters than config.objective='masked_lm': choose one with the same head",
    ),
    (
        {"phase_2.objective": {"name": "masked_lm", "z_loss": -1.0}} | _MASKED,
        "config.phase_2.objective.z_loss=-1.0: must",
    ),
]


@pytest.mark.parametrize("changes, message", BAD)
def test_mistakes_are_named(changes, message):
    assert_refused(Recipe.from_config, tiny_config("corpus"), changes, message)


def test_packed_documents():
    packed = dict(packed=True, short_probability=0, objective="left_to_right")
    recipe = Recipe.from_config(tiny_config("c", **packed))
    assert recipe.objective == LeftToRight(text="packed")
    assert recipe.spec(89).causal
    assert recipe.objective.shapes(B=3, S=7, P=2)["segment_ids"].shape == (3, 7)


def _objective(section, **changes):
    """The objective of a config with this section `objective`."""
    config = tiny_config("c", short_probability=0.0, **changes)
    return Recipe.from_config({**config, "objective": section}).objective


def test_an_objective_has_a_section_or_a_name_alone():
    assert _objective({"name": "masked_lm"}) == _objective("masked_lm") == MaskedLM()
    packed = _objective({"name": "masked_lm", "text": "packed"})
    assert packed == _objective("masked_lm", packed=True) == MaskedLM(text="packed")
    assert "segment_ids" in packed.fields and "segment_ids" not in MaskedLM().fields


class Compared(MaskedLM):
    name, needs_full_batch = "compared", True


class Carrying(MaskedLM):
    name = "carrying"

    def carried(self, model):
        return {"memory": jax.ShapeDtypeStruct((3,), "float32")}


@pytest.mark.parametrize(
    "objective, phases, message",
    [
        (
            Compared,
            {"phase_2": {"accumulate": 4}},
            r"config\.phase_2\.accumulate=4: objective='compared' compares .*: set it to 1",
        ),
        (Carrying, {}, r"batch_size of the phases are \[8, 16\], and objective='carrying' hands"),
    ],
)
def test_batches_that_an_objective_cannot_take(monkeypatch, objective, phases, message):
    monkeypatch.setitem(OBJECTIVES, objective.name, objective)
    with pytest.raises(InputError, match=message):
        _objective(objective.name, **phases)
    assert _objective(objective.name, phase_2={"batch_size": 16, "accumulate": 1})


def test_masking_of_one_token_in_a_row():
    recipe = Recipe.from_config(tiny_config("c", phase_2={"masking": {"rate": 0.0079}}))
    assert recipe.example_spec(recipe.phases[1], "train", 8).predicted == 1
    unused = tiny_config("c", objective="left_to_right", masking={"rate": 1e-9})
    assert Recipe.from_config(unused).objective.causal


def test_a_missing_key_is_named():
    config = tiny_config("corpus")
    del config["seed"]
    assert Recipe.from_config(config).seed == 0
    del config["model"]
    with pytest.raises(InputError, match="config={.*}: .* missing required field `model`"):
        Recipe.from_config(config)
    config = tiny_config("corpus")
    del config["model"]["encoder"]
    with pytest.raises(InputError, match="config.model.encoder=None: must be one of bert, modern"):
        Recipe.from_config(config)


def test_a_missing_key_of_a_section_has_the_default_of_its_class():
    config = tiny_config("corpus")
    whole = Recipe.from_config(config)
    for section, key in (("masking", "whole_words"), ("phase_1", "accumulate"), ("mesh", "model")):
        del config[section][key]
    assert dataclasses.replace(Recipe.from_config(config), config_dict=whole.config_dict) == whole


def test_a_vocabulary_smaller_than_the_corpus_has():
    recipe = Recipe.from_config(tiny_config("c", model={"vocab_size": 50}))
    with pytest.raises(InputError, match=r"config\.model\.vocab_size=50 is less than the 89"):
        recipe.spec(89)
    assert recipe.spec(50).vocab_size == recipe.spec().vocab_size == 50


@pytest.mark.parametrize(
    "objective, causal",
    [("masked_lm_next_sentence", False), ("masked_lm", False), ("left_to_right", True)],
)
def test_left_to_right_looks_back_only(objective, causal):
    assert Recipe.from_config(tiny_config("c", objective=objective)).spec(89).causal == causal


def phases_of(config, corpus):
    recipe, tokenizer = Recipe.from_config(config), Tokenizer.open(corpus)
    train, held_out = TokenStore.open(corpus), TokenStore.open(corpus, HELDOUT)
    spec = recipe.spec(tokenizer.vocabulary_size)
    return make_phases(recipe, spec, tokenizer, train, held_out)


def test_phases(tiny_corpus):
    first, second = phases_of(tiny_config(tiny_corpus), tiny_corpus)
    assert (first.first_step, first.last_step) == (0, 9)
    assert (second.first_step, second.last_step) == (9, 12)
    assert (first.tokens, second.tokens) == (16 * 32, 8 * 64)
    (microbatch,) = first.microbatches(0)
    assert microbatch(slice(3, 5))["input_ids"].shape == (2, 32)
    assert second.held_out.batch(0, slice(0, 8))["input_ids"].shape == (8, 64)
    # Because of attention, a row of twice the length costs more than twice as much.
    assert second.flops / second.rows > 2 * first.flops / first.rows


def test_a_phase_has_its_own_masking_and_corpus(tiny_corpus):
    """What it does not say itself is as in the rest of the config; evaluation is as in all."""
    config = tiny_config(
        tiny_corpus,
        masking={"random": 0.05},
        phase_2={"masking": {"rate": 0.3, "mask": 0.9}, "corpus": f"{tiny_corpus}@1,b@2"},
    )
    recipe = Recipe.from_config(config)
    rules = [(p.masking.rate, p.masking.mask, p.masking.random) for p in recipe.phases]
    assert rules == [(0.15, 0.8, 0.05), (0.3, 0.9, 0.05)]
    assert [phase.corpus for phase in recipe.phases] == [(), (f"{tiny_corpus}@1", "b@2")]
    assert Recipe.from_config(json.loads(json.dumps(recipe.config_dict))) == recipe
    del config["phase_2"]["corpus"]
    first, second = phases_of(config, tiny_corpus)
    (microbatch,) = second.microbatches(0)
    batch, held_out = microbatch(slice(0, 8)), second.held_out.batch(0, slice(0, 8))
    assert batch["masked_lm_ids"].shape == (8, 20) and held_out["masked_lm_ids"].shape == (8, 10)
    tokens = batch["input_mask"].sum(1)
    assert abs(batch["masked_lm_weights"].sum(1) - 0.3 * tokens).max() <= 1
    assert second.flops > phases_of(tiny_config(tiny_corpus), tiny_corpus)[1].flops


def test_a_phase_reads_its_own_corpus(tiny_corpus):
    recipe = Recipe.from_config(tiny_config("a", phase_2={"corpus": str(tiny_corpus)}))
    tokenizer, held_out = Tokenizer.open(tiny_corpus), TokenStore.open(tiny_corpus, HELDOUT)
    train = TokenStore.open(tiny_corpus)
    _, second = make_phases(
        *(recipe, recipe.spec(tokenizer.vocabulary_size), tokenizer, held_out, held_out),
        {(str(tiny_corpus),): train},
    )
    _, alone = phases_of(tiny_config(tiny_corpus), tiny_corpus)
    (one,), (two,) = second.microbatches(2), alone.microbatches(2)
    jax.tree.map(np.testing.assert_array_equal, one(slice(0, 8)), two(slice(0, 8)))


@pytest.fixture
def changeable(monkeypatch):
    """A field of BERT's stands for those that a family lets a phase change, such as a theta."""
    monkeypatch.setattr(BertSpec, "phase_fields", ("layer_norm_eps",))


def test_a_phase_computes_the_model_as_it_says(tiny_corpus, changeable):
    """The same parameters, with another value; phases with the same value share a model."""
    other = {"share": 0.25, "length": 48, "batch_size": 8, "model": {"layer_norm_eps": 0.5}}
    changes = {"phase_1": {"share": 0.5}, "phase_2": {"model": {"layer_norm_eps": 0.5}}}
    config = tiny_config(tiny_corpus, phase_3=other, **changes)
    recipe = Recipe.from_config(config)
    first, second, third = phases_of(config, tiny_corpus)
    assert first.model is None and second.model is third.model is not None
    spec = recipe.spec(Tokenizer.open(tiny_corpus).vocabulary_size)
    at = [recipe.spec_in(recipe.phase_at(step), spec) for step in (1, 6, 7, 12)]
    assert [each.layer_norm_eps for each in at] == [*(1e-12, 1e-12), *(0.5, 0.5)]
    params = make_experiment(recipe, spec).initial_state(0).params
    batch, still = second.held_out.batch(0, slice(0, 8)), Rngs(jax.random.key(0), True)

    def loss(model):
        sums = jax.jit(lambda params: recipe.objective.sums(model, params, batch, still)[0])
        return float(sums(params)["mlm_loss"][0])

    same, other = (
        recipe.objective.model(dataclasses.replace(spec, layer_norm_eps=value))
        for value in (0.5, 1e-12)
    )
    assert loss(second.model) == loss(same) != pytest.approx(loss(other), rel=1e-3)


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"phase_2.model.layer_norm_eps": 0.5, "phase_2.length": 32},
            ": it was 1e-12 in the phase before, which has the same length 32: change "
            "config.phase_2.length too, or leave layer_norm_eps",
        ),
        (
            {"phase_1.model.layer_norm_eps": 0.5, "phase_2.length": 32},
            "config.phase_2.model.layer_norm_eps=1e-12: it was 0.5 in the phase before",
        ),
        ({"phase_2.model.layer_norm_eps": "x"}, ": expected `float`"),
        ({"phase_2.model.layer_norm_eps": 2.0}, ": must be in [0, 1)"),
    ],
)
def test_a_field_of_a_phase_that_does_not_fit(changeable, changes, message):
    assert_refused(Recipe.from_config, tiny_config("corpus"), changes, message)


def test_phases_of_a_byte_level_bpe(tiny_corpus, tmp_path):
    """Whole words are hidden, which have the space before them; the text is whole between them."""
    source = f"text:{tiny_corpus.parent / 'text.txt'}"
    prepare.run([source], tmp_path, learn_vocabulary=290, tokenizer="bpe", held_out=0.1, workers=1)
    config = tiny_config(tmp_path, masking={"whole_words": True, "mask": 1.0, "random": 0.0})
    first, _ = phases_of(config, tmp_path)
    batch, tokenizer = first.microbatches(0)[0](slice(0, 16)), Tokenizer.open(tmp_path)
    ids = batch["input_ids"]
    row, place = np.nonzero(batch["masked_lm_weights"])
    hidden = batch["masked_lm_positions"][row, place]
    assert (ids[row, hidden] == tokenizer.mask_id).all() and len(row) > 16
    after = ids[row, hidden + 1]  # what goes on a word is not seen after its beginning
    into, out_of = tokenizer.word_links
    joined = into[after] & out_of[batch["masked_lm_ids"][row, place]] != 0
    assert not joined[~np.isin(after, tokenizer.special_ids)].any()
    ids[row, hidden] = batch["masked_lm_ids"][row, place]
    words = {word.strip(".").lower() for word in tokenizer.decode(ids[0]).split()[1:-1]}
    assert words & set(SOUNDS)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 10, 99, 1001])
def test_every_step_has_its_phase(tiny_corpus, steps):
    config = tiny_config(tiny_corpus, total_steps=steps, optimizer={"warmup_steps": 0})
    phases = phases_of(config, tiny_corpus)
    assert phases[0].first_step == 0 and phases[-1].last_step == steps
    for one, two in zip(phases[:-1], phases[1:], strict=True):
        assert one.last_step == two.first_step
    assert all(phase.first_step < phase.last_step for phase in phases)


def test_training_and_held_out_batches_are_apart(tiny_corpus):
    """They have different documents, and different draws in each phase."""
    config = tiny_config(tiny_corpus, phase_2={"length": 32, "batch_size": 16})
    first, second = phases_of(config, tiny_corpus)
    rows = slice(0, 16)
    (one,), (two,) = ([each(rows) for each in phase.microbatches(0)] for phase in (first, second))
    assert (one["input_ids"] != two["input_ids"]).any()
    held_out = first.held_out.batch(0, slice(0, 8))
    np.testing.assert_array_equal(
        held_out["input_ids"], first.held_out.batch(0, slice(0, 8))["input_ids"]
    )


def test_the_config_is_not_changed():
    config = ml_collections.ConfigDict(tiny_config("c"))
    before = config.to_dict()
    Recipe.from_config(config)
    assert config.to_dict() == before


@pytest.mark.parametrize("config", [[1, 2], None, "a text"])
def test_a_config_file_that_returns_no_config(config):
    with pytest.raises(InputError, match="--config: get_config returned .*: it must return an ml_"):
        Recipe.from_config(config)


# A value for each field of the sections, other than the default.
_COMPUTATION = dict(
    compute_dtype="bfloat16",
    gradient_dtype="bfloat16",
    vocab_multiple=8,
    scan_layers=False,
    remat="layer",
    attention="kernel",
    dropout_bits=16,
    vocab_size=31_000,
    hidden_size=96,
    num_hidden_layers=3,
    num_attention_heads=6,
    intermediate_size=100,
    max_position_embeddings=600,
    hidden_act="gelu_tanh",
    hidden_dropout_prob=0.2,
    attention_probs_dropout_prob=0.3,
    initializer_range=0.05,
    layer_norm_eps=1e-6,
    causal=True,
)
_MODELS = {
    "pretrain_tiny": (BertSpec, dict(type_vocab_size=3, scan_layers=True)),
    "pretrain_modern_tiny": (
        ModernBertSpec,
        dict(
            positions="learned",
            norm="after",
            feed_forward="plain",
            global_attn_every_n_layers=2,
            local_attention=32,
            global_rope_theta=123.0,
            local_rope_theta=45.0,
            classifier_pooling="mean",
        ),
    ),
}
_MASKING = dict(rate=0.25, cosine=False, mask=0.7, random=0.2, whole_words=True, copies=0)
_OPTIMIZER = dict(
    name="muon",
    learning_rate=3e-4,
    schedule="wsd",
    warmup_steps=11,
    decay_steps=13,
    beta1=0.8,
    beta2=0.95,
    epsilon=1e-7,
    weight_decay=0.02,
    clip_norm=2.0,
    warmup_proportion=0.0,
    bias_correction=False,
)


@pytest.mark.parametrize("name", _MODELS)
def test_every_field_of_a_section_has_a_flag(name):
    spec, own = _MODELS[name]
    model = _COMPUTATION | own
    phase_fields = {field: model[field] for field in spec.phase_fields}
    phase = dict(share=1.0, length=64, batch_size=24, accumulate=3, corpus="a@1,b@2")
    phase["objective"] = "masked_lm_next_sentence" if name == "pretrain_tiny" else "masked_lm"
    sections = {
        "model": (spec, model),
        "masking": (MaskingRule, {**_MASKING, "rate": 0.2}),
        "optimizer": (OptimizerSpec, _OPTIMIZER),
        "mesh": (MeshSpec, dict(data=1, model=1)),
        "intervals": (Intervals, dict(log=7, evaluate=9, checkpoint=8, eval_batches=5)),
        "phase_1": (PhaseSpec, {**phase, "masking": _MASKING, "model": phase_fields}),
    }
    flags = ["--config.phase_2.share=0.0"] if name == "pretrain_tiny" else []
    for section, (settings, values) in sections.items():
        assert values.keys() == {field.name for field in dataclasses.fields(settings)}
        flags += [f"--config.{key}={value}" for key, value in flat({section: values}).items()]
    words = ["pretrain", f"--config={REPOSITORY / 'configs' / name}.py", *flags]
    values = FlagValues()
    config = config_flags.DEFINE_config_file(  # as commandline.DEFINE_config
        "config", lock_config=False, accept_new_attributes=True, sys_argv=words, flag_values=values
    )
    values(words)
    recipe = Recipe.from_config(config.value)
    assert dataclasses.asdict(recipe.spec(30_522)) == model
    recipe = json.loads(json.dumps(dataclasses.asdict(recipe), default=str))
    assert recipe["phases"][0].pop("objective") == recipe["objective"]
    del phase["objective"]
    phase |= {"masking": _MASKING, "model": phase_fields, "corpus": ["a@1", "b@2"]}
    assert recipe["phases"][0] == phase
    for section in ("masking", "optimizer", "mesh", "intervals"):
        assert recipe[section] == sections[section][1]


def test_the_fast_recipe_for_a_night():
    recipe = Recipe.from_config(pretrain_fast_mini.get_config("night"))
    names = [phase.objective.name for phase in recipe.phases]
    assert names == ["left_to_right", "hybrid", "hybrid"]
    assert [phase.objective.row_group for phase in recipe.phases[1:]] == [2, 2]
    assert [phase.masking.rate for phase in recipe.phases[1:]] == [0.4, 0.15]
    tokens = [len(steps) * each.batch_size * each.length for _, each, steps in recipe.steps()]
    assert tokens == [recipe.optimizer.decay_steps * 2_048] * 3 and sum(tokens) == 17_817_600
    with pytest.raises(InputError, match="pretrain_fast_mini.py:day: must be :minutes or :night"):
        pretrain_fast_mini.get_config("day")


@pytest.mark.parametrize(
    "config, billions, rates, decay",
    [
        (pretrain_neobert, [2_097, 105], [0.2, 0.2], 6e-5),
        (pretrain_eurobert_210m, [4_800, 200], [0.5, 0.1], 1e-5),
        (pretrain_mmbert_base, [2_300, 600, 100], [0.3, 0.15, 0.05], 8e-5),
    ],
)
def test_the_papers_recipes_have_their_tokens(config, billions, rates, decay):
    recipe = Recipe.from_config(config.get_config())
    tokens = [len(steps) * each.batch_size * each.length for _, each, steps in recipe.steps()]
    assert [round(each / 1e9) for each in tokens] == billions
    assert [phase.masking.rate for phase in recipe.phases] == rates
    spec = recipe.optimizer
    assert spec.learning_rate * spec.weight_decay == pytest.approx(decay)
    if spec.schedule == "wsd":  # it falls in the last phase
        *_, (_, _, last) = recipe.steps()
        assert spec.decay_steps == len(last)
