"""ELECTRA's objective: the text of the discriminator, the losses, and where gradients go."""

import dataclasses
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.models.encoders.presets import BertSpec, ElectraSpec, ModernBertSpec
from bertjax.objectives.electra import DISCRIMINATOR, GENERATOR, ReplacedTokenDetection
from bertjax.runs.initialize import load_into, open_sources
from bertjax.runs.recipe import Recipe
from bertjax.runs.source import open_model
from bertjax.training.evaluation import Evaluator, HeldOut
from bertjax.training.experiment import Experiment
from bertjax.training.model import Model, Part
from bertjax.training.objective import Rngs
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.placement import data_parallel, make_placement
from bertjax.training.state import TrainState
from bertjax.training.step import means, step_key, train_step
from configs import pretrain_electra_tiny
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.some_updates import some_updates

VOCABULARY, MASK = 19, 4
OBJECTIVE = ReplacedTokenDetection(generator_width=0.5)
SPEC = ElectraSpec(
    vocab_size=VOCABULARY,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=9,
    initializer_range=0.3,
    embedding_size=5,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
SGD = optax.with_extra_args_support(optax.sgd(1.0))


@pytest.fixture
def text() -> np.ndarray:
    """The text's own tokens, [B, S]."""
    return np.random.default_rng(0).integers(5, VOCABULARY, (8, 9)).astype(np.int32)


@pytest.fixture
def batch(text) -> dict[str, np.ndarray]:
    """Rows of 9 to 5 tokens with 0 to 3 places; one in three shows its own token, and no mask."""
    places = np.array([[1, 4, 3], [2, 0, 0], [0, 0, 0], [3, 1, 2]] * 2, np.int32)
    used = np.arange(3) < np.array([3, 1, 0, 2] * 2)[:, None]
    mask = (np.arange(9) < np.array([9, 5, 7, 8] * 2)[:, None]).astype(np.int32)
    ids = text * mask
    rows = np.arange(8)[:, None]
    shown = np.where(used & (np.arange(3) < 2), MASK, ids[rows, places])
    for row, place in zip(*np.nonzero(used), strict=True):
        ids[row, places[row, place]] = shown[row, place]
    return {
        "input_ids": ids,
        "input_mask": mask,
        "token_type_ids": np.zeros_like(ids),
        "masked_lm_positions": places,
        "masked_lm_ids": np.where(used, text[rows, places], 0).astype(np.int32),
        "masked_lm_weights": used.astype(np.float32),
    }


class _Given:
    """A model whose generator gives these logits; it keeps what its parts were called with."""

    def __init__(self, logits, replaced):
        self.seen, self._logits, self._replaced = {}, jnp.asarray(logits), jnp.asarray(replaced)

    def __call__(self, params, inputs, dropout=None, part=""):
        self.seen[part] = inputs, dropout
        if part == GENERATOR:
            return {"masked_lm": self._logits}
        return {"replaced": self._replaced + 0.1 * inputs["input_ids"]}


def _given(seed: int = 1) -> _Given:
    rng = np.random.default_rng(seed)
    logits, replaced = rng.normal(0, 2, (8, 3, VOCABULARY)), rng.normal(0, 2, (8, 9))
    return _Given(logits.astype(np.float32), replaced.astype(np.float32))


def _run(model: _Given, batch, key=0, deterministic=False):
    """The outputs, and what the parts of the model were called with."""

    @jax.jit
    def outputs(batch, key):
        found = OBJECTIVE.outputs(model, {}, batch, Rngs(key, deterministic))
        return found, {part: (inputs, dropout) for part, (inputs, dropout) in model.seen.items()}

    key = jax.random.key(key) if isinstance(key, int) else key
    outputs, seen = outputs(batch, key)
    return jax.device_get(outputs), seen


def _sampling(sampled: np.ndarray) -> _Given:
    """A generator that is sure of these tokens [B, P]."""
    return _Given(1e4 * np.eye(VOCABULARY, dtype=np.float32)[sampled], np.zeros((8, 9), np.float32))


def test_samples_are_at_the_masked_places_and_nothing_else_changes(text, batch):
    rng, labels = np.random.default_rng(2), batch["masked_lm_ids"]
    sampled = rng.integers(5, VOCABULARY, labels.shape)
    sampled[0, 1], sampled[3, 0] = labels[0, 1], labels[3, 0]  # two are right
    outputs, seen = _run(_sampling(sampled), batch)
    np.testing.assert_array_equal(outputs["sampled_ids"], sampled)

    expected = batch["input_ids"].copy()
    for row, place in zip(*np.nonzero(batch["masked_lm_weights"]), strict=True):
        expected[row, batch["masked_lm_positions"][row, place]] = sampled[row, place]
    inputs, _ = seen[DISCRIMINATOR]
    np.testing.assert_array_equal(inputs["input_ids"], expected)
    own = text * batch["input_mask"]
    np.testing.assert_array_equal(outputs["is_replaced"], expected != own)
    assert outputs["is_replaced"][0, 4] == 0 and outputs["is_replaced"].sum() > 3
    for name in batch.keys() - {"input_ids"}:
        np.testing.assert_array_equal(inputs[name], batch[name])
    np.testing.assert_array_equal(seen[GENERATOR][0]["input_ids"], batch["input_ids"])


def test_losses(batch):
    """Against numpy: over the masked places, and over the tokens."""
    model = _given()
    sums_of = jax.jit(lambda batch, key: OBJECTIVE.sums(model, {}, batch, Rngs(key)))
    sums, carry = sums_of(batch, jax.random.key(3))
    outputs, _ = _run(_given(), batch, 3)
    assert carry == {}
    logits, replaced = (outputs[name].astype(float) for name in ("masked_lm", "replaced"))
    labels, sampled = batch["masked_lm_ids"], outputs["sampled_ids"]
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    of_label = np.take_along_axis(shares, labels[..., None], -1)[..., 0]
    is_replaced, yes = outputs["is_replaced"], 1 / (1 + np.exp(-replaced))
    wrong = -np.where(is_replaced, np.log(yes), np.log(1 - yes))
    used, tokens = batch["masked_lm_weights"], batch["input_mask"]
    expected = {
        "mlm_loss": (-np.log(of_label), used),
        "mlm_accuracy": (logits.argmax(-1) == labels, used),
        "sampled_accuracy": (sampled == labels, used),
        "disc_loss": (wrong, tokens),
        "disc_accuracy": ((yes > 0.5) == is_replaced, tokens),
    }
    assert sums.keys() == expected.keys()
    for name, (values, weights) in expected.items():
        wanted = (values * weights).sum(), weights.sum()
        assert sums[name] == pytest.approx(wanted, rel=rounding(1)), name
    assert OBJECTIVE.loss_weights == {"mlm_loss": 1.0, "disc_loss": 50.0}
    assert {name: float(count) for name, count in OBJECTIVE.counts(batch).items()} == {
        "mlm_loss": used.sum(),
        "disc_loss": tokens.sum(),
    }


@pytest.mark.peers
def test_the_loss_of_the_discriminator_is_that_of_transformers(batch):
    import torch
    import transformers

    sizes = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    sizes = {name: getattr(SPEC, name) for name in (*sizes, "embedding_size", "vocab_size")}
    torch.manual_seed(0)
    peer = transformers.ElectraForPreTraining(transformers.ElectraConfig(**sizes)).eval()
    names = {"input_ids": "input_ids", "attention_mask": "input_mask"}
    inputs = {reference: torch.tensor(batch[result]).long() for reference, result in names.items()}
    labels = torch.tensor(np.random.default_rng(0).integers(0, 2, (8, 9)))
    with torch.no_grad():
        reference = peer(**inputs, labels=labels)
    outputs, _ = _run(_given(), batch)
    outputs |= {"replaced": reference.logits.numpy(), "is_replaced": labels.numpy()}
    values = jax.jit(OBJECTIVE.values)(outputs, batch)
    losses = np.asarray(values["disc_loss"]["disc_loss"])
    mean = (losses * batch["input_mask"]).sum() / batch["input_mask"].sum()
    assert mean == pytest.approx(reference.loss.item(), rel=rounding(1))


class _Line(nn.Module):
    """The least generator or discriminator."""

    output: str

    @nn.compact
    def __call__(self, inputs, *, deterministic):
        table = self.param("table", nn.initializers.normal(1.0), (VOCABULARY, 6))
        weight = self.param("weight", nn.initializers.normal(1.0), (6,))
        states = table[inputs["input_ids"]]
        if self.output == "replaced":
            return {"replaced": states @ weight}
        places = jnp.take_along_axis(states, inputs["masked_lm_positions"][..., None], 1)
        return {"masked_lm": (places * weight) @ table.T}


def _lines(batch, shared: bool) -> Model:
    """A generator and a discriminator of a few lines."""
    inputs = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in batch.items()}
    table = {"table": DISCRIMINATOR} if shared else {}
    generator = Part(_Line("masked_lm"), inputs, shared=table)
    return Model({GENERATOR: generator, DISCRIMINATOR: Part(_Line("replaced"), inputs)})


def _encoders(batch, shared: bool) -> Model:
    return dataclasses.replace(OBJECTIVE, shared_embeddings=shared).model(SPEC)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    "make, embeddings", [(_lines, 1), pytest.param(_encoders, 5, marks=pytest.mark.slow)]
)
def test_the_loss_of_the_discriminator_gives_the_generator_no_gradient(
    batch, make, embeddings, shared
):
    """The two models meet in nothing but the embeddings that they share."""
    model = make(batch, shared)
    params = nn.unbox(jax.jit(model.init)(jax.random.key(1)))

    def losses(params):
        rngs = Rngs(jax.random.key(2), deterministic=True)
        sums, _ = OBJECTIVE.sums(model, params, batch, rngs)
        return {name: sums[name][0] for name in OBJECTIVE.loss_weights}

    gradients = jax.device_get(jax.jit(jax.jacrev(losses))(params))
    reached = {
        name: {path for path, leaf in flatten_dict(gradient, sep="/").items() if leaf.any()}
        for name, gradient in gradients.items()
    }
    every = flatten_dict(params, sep="/").keys()
    own = {path for path in every if path.startswith(f"{GENERATOR}/")}
    both = {path for path in every - own if "/embeddings/" in path or path.endswith("/table")}
    assert len(both) == embeddings
    assert reached["disc_loss"] == every - own
    assert reached["mlm_loss"] == (own | both if shared else own)


@pytest.mark.slow
def test_disentangled_embeddings(batch):
    """The discriminator's loss reaches a table of its own, which is added to the generator's."""
    objective = dataclasses.replace(OBJECTIVE, disentangled=True)
    model = objective.model(SPEC)
    params = nn.unbox(model.init(jax.random.key(1)))
    path = ("electra", "embeddings")
    own = {k: x for k, x in flatten_dict(params[DISCRIMINATOR]).items() if k[:2] == path}
    assert len(own) == 5 and not any(x.any() for x in own.values())
    of_both = flatten_dict(model.params_of(params, DISCRIMINATOR))
    for keys in own:
        np.testing.assert_array_equal(of_both[keys], flatten_dict(params[GENERATOR])[keys])

    def losses(params):
        rngs = Rngs(jax.random.key(2), deterministic=True)
        sums, _ = objective.sums(model, params, batch, rngs)
        return {name: sums[name][0] for name in objective.loss_weights}

    gradients = jax.jit(jax.jacrev(losses))(params)
    assert not any(x.any() for x in jax.tree.leaves(gradients["disc_loss"][GENERATOR]))
    assert all(flatten_dict(gradients["disc_loss"][DISCRIMINATOR])[keys].any() for keys in own)
    assert not any(x.any() for x in jax.tree.leaves(gradients["mlm_loss"][DISCRIMINATOR]))


@pytest.mark.slow
def test_weights_of_both_models_give_disentangled_embeddings():
    """The discriminator computes with the embeddings that it is given."""
    model = dataclasses.replace(OBJECTIVE, disentangled=True).model(SPEC)
    params, pretrained = nn.unbox(jax.jit(model.init)(jax.random.key(1))), {}
    for number, part in enumerate((GENERATOR, DISCRIMINATOR)):
        weights = Part(model.parts[part].module, model.parts[part].inputs).init
        pretrained[part] = nn.unbox(jax.jit(weights)(jax.random.key(5 + number)))
        params = load_into(params, SimpleNamespace(params=pretrained[part]), model, part)
    of_part = jax.jit(model.params_of, static_argnums=1)
    for part in pretrained:
        found, expected = of_part(params, part), pretrained[part]
        assert_close(found, expected)  # the generator's, and the difference to it


def test_samples_have_the_generator_s_distribution(batch):
    logits = np.broadcast_to(np.array([0.0, 1.0, 2.0, -1.0, -np.inf], np.float32), (8, 4000, 5))
    many = {
        "masked_lm_positions": np.zeros((8, 4000), np.int32),
        "masked_lm_ids": np.zeros((8, 4000), np.int32),
        "masked_lm_weights": np.zeros((8, 4000), np.float32),
    }
    sampled = _run(_Given(logits, np.zeros((8, 9))), batch | many)[0]["sampled_ids"]
    shares = np.bincount(sampled.ravel(), minlength=5) / sampled.size
    wanted = np.exp(logits[0, 0]) / np.exp(logits[0, 0]).sum()
    error = np.sqrt(wanted * (1 - wanted) / sampled.size)
    assert (np.abs(shares - wanted) <= 4 * error).all()


def test_each_step_draws_its_own_samples_and_drops_its_own_elements(batch):
    @jax.jit
    def sampled(seed, step):
        rngs = Rngs(step_key(seed, step))
        return OBJECTIVE.outputs(_given(), {}, batch, rngs)["sampled_ids"]

    def drawn(seed, step):
        return np.asarray(sampled(np.uint32(seed), np.int32(step))).tobytes()

    assert drawn(0, 7) == drawn(0, 7)
    assert len({drawn(0, 7), drawn(0, 8), drawn(1, 7)}) == 3


def test_the_two_calls_drop_other_elements(batch):
    _, seen = _run(_given(), batch)
    keys = [jax.random.key_data(dropout).tolist() for _, dropout in seen.values()]
    assert len(keys) == 2 and keys[0] != keys[1]
    _, seen = _run(_given(), batch, deterministic=True)
    assert [dropout for _, dropout in seen.values()] == [None, None]


def test_evaluation_draws_the_same_every_time(batch):
    """And in each batch anew: here all batches are one."""

    def evaluate(batches: int) -> dict[str, float]:
        return evaluator.evaluate({}, HeldOut(lambda n, rows: batch, 8), batches)

    evaluator = Evaluator(OBJECTIVE, _given(), data_parallel())
    assert evaluate(1) == evaluate(1)
    one, two = evaluate(1), evaluate(2)
    exact = partial(pytest.approx, rel=rounding(1))
    assert two["mlm_loss"] == exact(one["mlm_loss"])
    assert two["disc_loss"] != pytest.approx(one["disc_loss"], rel=1e-3)
    assert one["loss"] == exact(one["mlm_loss"] + 50 * one["disc_loss"])


def test_microbatches_give_the_gradient_of_the_whole(batch, monkeypatch):
    """Each microbatch has noise of its own; without noise, the samples are the same."""
    monkeypatch.setattr(jax.random, "gumbel", lambda key, shape: jnp.zeros(shape))
    model = _lines(batch, shared=True)
    params = nn.unbox(jax.jit(model.init)(jax.random.key(0)))

    def update(accumulate: int):
        state = TrainState(jnp.int32(0), params, SGD.init(params))
        options = dict(model=model, objective=OBJECTIVE, optimizer=SGD, accumulate=accumulate)
        return jax.jit(partial(train_step, **options))(state, {}, batch, 1.0, 0)

    (whole, sums), (parted, parted_sums) = update(1), update(2)
    assert_close(parted.params, whole.params)
    sums, parted_sums = means(sums), means(parted_sums)
    exact = partial(pytest.approx, rel=rounding(1))
    assert parted_sums == exact(sums)
    assert sums["loss"] == exact(sums["mlm_loss"] + 50 * sums["disc_loss"])


@pytest.mark.slow
@pytest.mark.devices(8)
@pytest.mark.parametrize("layout, mesh", [("zero1", {}), ("tensor_fsdp", {"model": 2})])
def test_eight_devices_train_what_one_trains(batch, layout, mesh):
    """With the same samples, too."""
    sizes = dict(vocab_multiple=8, embedding_size=8, hidden_size=16, num_attention_heads=4)
    spec = dataclasses.replace(SPEC, **sizes)
    optimizer = optax.with_extra_args_support(optax.sgd(1e-3))

    def train(placement):
        model = OBJECTIVE.model(spec)
        return some_updates(Experiment(model, OBJECTIVE, optimizer, placement, rows=8), batch)

    one, params = train(data_parallel(jax.devices()[:1]))
    eight, others = train(make_placement(MeshSpec(**mesh), layout))
    for a, b in zip(one, eight, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    assert_close(others, params, 1000, size=1)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"generator_width": 0.0}, "generator_width=0.0: must be in (0, 1]"),
        ({"generator_layers": 1.5}, "generator_layers=1.5: must be in (0, 1]"),
        ({"discriminator_weight": 0}, "discriminator_weight=0: must be above 0"),
        (
            {"disentangled": True, "shared_embeddings": False},
            "disentangled=True: needs shared_embeddings=True",
        ),
        ({"text": "pairs"}, "text='pairs': must be one of spans, packed, full_sentences, doc"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError) as error:
        ReplacedTokenDetection(**settings)
    assert message in str(error.value)


def test_the_generator_is_a_share_of_the_discriminator():
    spec = ElectraSpec.named("small", vocab_size=VOCABULARY)  # Table 6: 256 wide, 4 heads, 1,024
    small = ReplacedTokenDetection().generator_spec(spec)
    assert (small.hidden_size, small.num_attention_heads, small.intermediate_size) == (64, 1, 256)
    assert (small.num_hidden_layers, small.embedding_size) == (12, 128)
    halved = ReplacedTokenDetection(generator_width=1, generator_layers=0.5).generator_spec(spec)
    assert halved == dataclasses.replace(spec, num_hidden_layers=6)


def test_operations_of_both_models():
    """By hand, for a row of 9 with 2 predicted tokens: each product counts 6 for each weight."""
    seen, embeddings = 4.5, 5
    layers = [4 * w**2 + 2 * w * inner + 2 * w * seen for w, inner in ((6, 10), (12, 20))]
    generator = layers[0] + embeddings * 6 + 2 / 9 * (6 * embeddings + embeddings * VOCABULARY)
    discriminator = layers[1] + embeddings * 12 + 12**2
    found = OBJECTIVE.flops_per_token(SPEC, 9, 2, seen)
    assert found == pytest.approx(6 * (generator + discriminator))


def test_a_generator_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="=0.4: of the generator, hidden_size=5 does not divide"):
        dataclasses.replace(OBJECTIVE, generator_width=0.4).check(
            dataclasses.replace(SPEC, hidden_size=12, num_attention_heads=6)
        )


def test_weights_for_a_generator_need_those_of_what_it_shares():
    config = pretrain_electra_tiny.get_config().to_dict()
    recipe = Recipe.from_config(config | {"init_from": {GENERATOR: "hf:nowhere"}})
    with pytest.raises(InputError, match="electra/embeddings are those of discriminator.*, too"):
        open_sources(recipe, None, open_model, started=False)


@pytest.mark.parametrize("family", [BertSpec, ModernBertSpec])
def test_embeddings_as_wide_as_the_layers(family):
    """They are shared by a generator as wide, or not at all."""
    sizes = dict(hidden_size=12, num_attention_heads=2, intermediate_size=20)
    spec = family(vocab_size=VOCABULARY, num_hidden_layers=2, **sizes)
    with pytest.raises(ValueError) as error:
        ReplacedTokenDetection(generator_width=0.5).check(spec)
    for hint in ("generator_width=1 ", "shared_embeddings=False", "model.encoder='electra'"):
        assert hint in str(error.value)
    ReplacedTokenDetection(generator_width=0.5, shared_embeddings=False).check(spec)

    objective = ReplacedTokenDetection(generator_width=1, generator_layers=0.5)
    model, shapes = objective.model(spec), objective.shapes(B=2, S=9, P=3)
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert "embeddings" not in params[GENERATOR][spec.encoder]
    assert set(params[GENERATOR][spec.encoder]["encoder"]) == {"layer_0"}
    rngs = Rngs(jax.random.key(0))
    outputs = jax.eval_shape(
        lambda params, batch: objective.outputs(model, params, batch, rngs),
        *(nn.unbox(params), shapes),
    )
    assert outputs["masked_lm"].shape == (2, 3, VOCABULARY)
    assert outputs["replaced"].shape == outputs["is_replaced"].shape == (2, 9)
