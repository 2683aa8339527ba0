"""Contrastive training: a batch in chunks, and on eight devices, is the batch on one."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.models.encoders.presets import BertSpec
from bertjax.models.heads.embedding import Embedding
from bertjax.objectives.similarity import RerankingObjective, SimilarityObjective
from bertjax.objectives.similarity_losses import Binary, CoSent, Ranking, Squared
from bertjax.training.experiment import Experiment
from bertjax.training.loop import Phase, Trainer
from bertjax.training.objective import Rngs
from bertjax.training.optimizers.optimizer import make_optimizer
from bertjax.training.optimizers.schedule import make_schedule
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.reshard import STAY
from bertjax.training.sharding.mesh import MeshSpec
from bertjax.training.sharding.placement import make_placement
from bertjax.training.state import logical_axes
from bertjax.training.step import gradient, means, whole_counts
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.slow_cases import others_slow

ROWS, K, QUERY, PASSAGE = 16, 3, 6, 10
SPEC = BertSpec(
    vocab_size=97,
    vocab_multiple=8,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=PASSAGE,
    initializer_range=0.1,
)
DENSE = SimilarityObjective(embedding=Embedding(normalize=False), loss=Ranking(symmetric=True))
SPARSE = Embedding(kind="sparse")
OBJECTIVES = {
    "dense": DENSE,
    "matryoshka with a learned scale": dataclasses.replace(
        DENSE, loss=Ranking(learned_scale=True), dimensions=(5, 24)
    ),
    "order": SimilarityObjective(embedding=Embedding(pooling="cls"), loss=CoSent()),
    "late": SimilarityObjective(embedding=Embedding(kind="late", width=8), loss=Ranking(scale=1.0)),
    "sparse": SimilarityObjective(embedding=SPARSE, loss=Ranking(scale=1.0), sparsity=(0.1, 0.2)),
    "reranker": RerankingObjective(loss=Binary()),
}


def _tokens(rng, shape):
    lengths = rng.integers(2, shape[-1] + 1, shape[:-1])[..., None]
    inside = np.arange(shape[-1]) < lengths
    return {
        "input_ids": rng.integers(1, 97, shape) * inside,
        "input_mask": inside,
        "token_type_ids": 0 * inside,
        "counted_mask": inside & (np.arange(shape[-1]) != 1),
    }


def _batch(objective, number: int, rows: slice) -> dict[str, np.ndarray]:
    """Texts of all lengths; a few are equal, or absent."""
    rng = np.random.default_rng(number)
    sides = {
        "query_": _tokens(rng, (ROWS, QUERY)),
        "passage_": _tokens(rng, (ROWS, K, PASSAGE)),
        "": _tokens(rng, (ROWS, K, PASSAGE)),
    }
    values = {begin + name: array for begin, side in sides.items() for name, array in side.items()}
    keys = 100 + np.arange(ROWS * K).reshape(ROWS, K)
    keys[3, 1], keys[5, 2], keys[7, 0] = keys[2, 0], -1, keys[6, 0]
    values |= {
        "is_real_example": np.arange(ROWS) < ROWS - 1,
        "query_key": np.arange(ROWS) % 13,
        "passage_key": keys,
        "scores": rng.integers(0, 2, (ROWS, K)),
    }
    fields = objective.fields
    return {name: values[name][rows].astype(field.dtype) for name, field in fields.items()}


# ------------------------------------------------------------------------------- in chunks


def _params(model):
    return nn.unbox(jax.jit(model.init)(jax.random.key(3)))


def _gradient(objective, spec):
    model = objective.model(spec)
    batch = _batch(objective, 0, slice(None))

    @jax.jit
    def both(params, batch, key):
        counts = whole_counts(objective.counts(batch))
        options = dict(model=model, objective=objective, moves=STAY)
        return gradient(params, {}, batch, counts, key, **options)[:2]

    grads, sums = jax.device_get(both(_params(model), batch, jax.random.key(8)))
    return flatten_dict(grads, sep="/"), means(sums)


@pytest.mark.parametrize("name", others_slow(OBJECTIVES, "dense"))
def test_the_gradient_of_chunks_is_that_of_the_whole(name):
    still = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    spec = dataclasses.replace(SPEC, num_hidden_layers=1, **still)
    whole, losses = _gradient(OBJECTIVES[name], spec)
    in_chunks, losses_in_chunks = _gradient(dataclasses.replace(OBJECTIVES[name], chunks=4), spec)
    for losses_of in (losses, losses_in_chunks):
        losses_of.pop("accuracy", None)  # two may be alike but for rounding
    assert_close(losses_in_chunks, losses)
    for path, expected in whole.items():
        assert_close(in_chunks[path], expected, 1000, err_msg=path)


@pytest.mark.slow
def test_both_passes_drop_the_same():
    """With dropout, the gradient is that of a computation which keeps all activations."""
    objective = dataclasses.replace(DENSE, chunks=2)
    model = objective.model(dataclasses.replace(SPEC, num_hidden_layers=1))
    params = _params(model)
    batch = {n: jnp.asarray(x) for n, x in _batch(objective, 0, slice(None)).items()}
    rngs = Rngs(jax.random.key(8))

    def encoded(params, begin, call, length):
        """The same rows and keys, without a loop and without computing anything twice."""
        inputs = {
            name: batch[begin + name].reshape(-1, length)
            for name in ("input_ids", "input_mask", "token_type_ids", "counted_mask")
        }
        chunks = []
        for number in range(2):
            rows = {name: x[number::2] for name, x in inputs.items()}
            key = jax.random.fold_in(rngs.dropout(call), number)
            chunks.append(model(params, rows, key)["vectors"])
        return jnp.stack(chunks, 1).reshape(-1, SPEC.hidden_size)

    def kept(params):
        query = encoded(params, "query_", 0, QUERY)
        passage = encoded(params, "passage_", 1, PASSAGE).reshape(ROWS, K, -1)
        outputs = {"query_": query, "passage_": passage}
        real = batch["is_real_example"]
        return (objective.values(outputs, batch)["task_loss"]["task_loss"] * real).sum()

    def in_chunks(params):
        return objective.sums(model, params, batch, rngs)[0]["task_loss"][0]

    loss, expected = jax.jit(jax.value_and_grad(kept))(params)
    found_loss, found = jax.jit(jax.value_and_grad(in_chunks))(params)
    assert_close(found_loss, loss)
    assert_close(found, expected, 1000)


def test_the_first_numbers_of_a_vector_are_made_to_length_1():
    """Also where the similarity itself, the product, does not divide by the lengths."""
    rng = np.random.default_rng(4)
    query, passage = rng.normal(size=(3, 7)), rng.normal(size=(3, 1, 7))
    scores = rng.uniform(-1, 1, (3, 1))
    embedding = Embedding(similarity="dot", normalize=False)
    objective = SimilarityObjective(embedding=embedding, loss=Squared(), dimensions=(2, 7))
    outputs = {"query_": query, "passage_": passage}
    batch = {"scores": scores, "passage_key": np.arange(3)[:, None]}
    batch |= {f"{side}counted_mask": np.ones(3) for side in outputs}
    found = jax.jit(objective.values)(outputs, batch)["task_loss"]
    total = 0
    for size in (2, 7):
        a, b = query[:, :size], passage[:, 0, :size]
        cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
        loss = (cosine - scores[:, 0]) ** 2
        assert_close(found[f"loss_{size}"], loss)
        total += loss
    assert_close(found["task_loss"], total)


# ----------------------------------------------------------------------- on eight devices


def _train(objective, layout: str, grid: tuple[int, int], steps: int = 2):
    model, settings = objective.model(SPEC), OptimizerSpec(learning_rate=1e-3, warmup_steps=1)
    experiment = Experiment(
        model=model,
        objective=objective,
        optimizer=make_optimizer(settings, partial(logical_axes, model.init)),
        placement=make_placement(MeshSpec(*grid), layout, jax.devices()[: grid[0] * grid[1]]),
    )
    trainer, rate = Trainer(experiment), make_schedule(settings, steps)
    phase = Phase(
        name="phase",
        first_step=0,
        last_step=steps,
        microbatches=lambda number: [partial(_batch, objective, number)],
        held_out=None,
        rows=ROWS,
        accumulate=1,
        tokens=ROWS * PASSAGE,
        flops=1.0,
    )
    state, metrics = experiment.initial_state(5), []
    for number in range(steps):
        microbatches = trainer.put(phase, number)
        state, sums = trainer.update(state, phase, microbatches, rate(number), seed=3)
        metrics.append(means(jax.device_get(sums)))
    return metrics, flatten_dict(jax.device_get(state.evaluated()), sep="/")


_CASES = [
    *[("dense", "data", (8, 1), 1), ("dense", "zero1", (8, 1), 2), ("dense", "fsdp", (8, 1), 1)],
    *[("dense", "tensor", (2, 4), 2), ("dense", "tensor_zero1", (4, 2), 1)],
    *[("dense", "tensor_fsdp", (4, 2), 1), ("dense", "sequence", (4, 2), 1)],
    *[("matryoshka with a learned scale", "zero1", (8, 1), 1), ("order", "zero1", (8, 1), 1)],
    *[
        ("late", "zero1", (8, 1), 2),
        ("sparse", "zero1", (8, 1), 1),
        ("sparse", "tensor", (4, 2), 1),
    ],
    ("reranker", "zero1", (8, 1), 2),
]


@pytest.mark.devices(8)
def test_the_negatives_are_those_of_all_devices():
    """The loss of given vectors, and its gradient."""
    rng, size = np.random.default_rng(3), SPEC.hidden_size
    shapes = {"query_": (ROWS, size), "passage_": (ROWS, K, size)}
    vectors = {name: rng.normal(size=x).astype(np.float32) for name, x in shapes.items()}
    batch = _batch(DENSE, 0, slice(None))

    @jax.jit
    @jax.value_and_grad
    def total(vectors, batch):
        return (DENSE.values(vectors, batch)["task_loss"]["task_loss"] * batch["weight"]).sum()

    def on(devices):
        placement = make_placement(MeshSpec(devices, 1), "data", jax.devices()[:devices])
        whole = {**batch, **vectors, "weight": batch["is_real_example"].astype(np.float32)}
        with placement.active():
            arrays = placement.put(lambda rows: {n: x[rows] for n, x in whole.items()}, ROWS)
            assert len(arrays["query_"].sharding.device_set) == devices
            return jax.device_get(total({name: arrays[name] for name in vectors}, arrays))

    assert_close(on(8), on(1))


@pytest.mark.slow
@pytest.mark.devices(8)
@pytest.mark.parametrize("name, layout, grid, chunks", _CASES)
def test_layouts_train_the_same_model(name, layout, grid, chunks):
    """The negatives are those of all devices, and dropout is the same."""
    objective = dataclasses.replace(OBJECTIVES[name], chunks=chunks)
    expected, params = _train(objective, "data", (1, 1))
    found, found_params = _train(objective, layout, grid)
    assert found[0]["loss"] == pytest.approx(expected[0]["loss"], rel=rounding(1))
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=rounding(1), abs=rounding(1))
    for path, array in params.items():
        # Adam divides by the size of a gradient, which magnifies the rounding of a small one.
        assert_close(found_params[path], array, 500, size=1, err_msg=path)
