"""Parameters that are not trained, and adapters: what is trained, what stays, what is refused."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.models.encoders import head_types
from bertjax.models.encoders.presets import EuroBertSpec, ModernBertSpec
from bertjax.models.heads.head_specs import HEAD_SPECS
from bertjax.training.model import Model, merged
from bertjax.training.optimizers.optimizer import make_optimizer
from bertjax.training.optimizers.spec import OptimizerSpec
from bertjax.training.state import logical_axes
from bertjax.training.subset import AdapterSpec, with_subset
from tests.helpers.closeness import assert_close
from tests.helpers.slow_cases import others_slow
from tests.training import toy

LORA = AdapterSpec("lora", rank=3, alpha=5.0)
BERT = {"": ("bert", "pooler")}  # what pretrained weights have


def of_kind(spec, kind: str = head_types.ENCODER) -> Model:
    head_spec = HEAD_SPECS[kind]
    return Model.of(head_spec.build(spec, 3), head_spec.inputs(spec, B=1, S=8))


def shapes(model: Model) -> dict[str, tuple[int, ...]]:
    boxes = jax.eval_shape(model.init, jax.random.key(0))
    return {"/".join(path): box.value.shape for path, box in flatten_dict(boxes).items()}


def variant(spec, name):
    """Fused and grouped products, gates, stacked layers."""
    changes = {"num_attention_heads": 4, "hidden_size": 24, "intermediate_size": 20}
    return {
        "stacked": dataclasses.replace(spec, scan_layers=True),
        "modernbert": ModernBertSpec(
            vocab_size=97, num_hidden_layers=1, max_position_embeddings=13, **changes
        ),
        "eurobert": EuroBertSpec(
            vocab_size=97, num_hidden_layers=1, num_key_value_heads=2, **changes
        ),
    }[name]


@pytest.mark.parametrize(
    "name", others_slow(["stacked", "modernbert", "eurobert"], "stacked", "eurobert")
)
def test_a_fresh_adapter_changes_nothing_and_a_trained_one_is_a_change_of_the_kernels(
    name, spec, make_batch
):
    """Outputs equal, bit for bit, those of the model without it; then those of merged kernels."""
    spec = variant(spec, name)
    model, adapter = of_kind(spec), dataclasses.replace(LORA, targets=".")
    changed = with_subset(model, adapter, "", {"": [spec.encoder, "pooler"]})
    key = jax.random.key(0)
    inits = model.init, changed.init, partial(changed.init, frozen=True)
    base, factors, frozen = nn.unbox(jax.jit(lambda: [init(key) for init in inits])())
    toy.assert_equal(frozen, base)
    batch = make_batch(2)

    @jax.jit
    def outputs(dense, factors, frozen):
        both = (model, dense), (changed, merged(factors, frozen))
        return [each(params, batch)["sequence"] for each, params in both]

    before, same = outputs(base, factors, frozen)
    np.testing.assert_array_equal(same, before)
    rng = np.random.default_rng(1)
    factors = jax.tree.map(lambda x: x + rng.normal(0, 0.1, x.shape).astype("f4"), factors)
    dense = changed.params_of(merged(factors, frozen))
    assert jax.tree.map(jnp.shape, dense) == jax.tree.map(jnp.shape, base)
    expected, found = outputs(dense, factors, frozen)
    assert np.abs(expected - before).max() > 0.05
    assert_close(found, expected)


def test_the_gradient_of_factors_is_that_of_the_kernels_and_costs_no_product_for_these(
    spec, make_batch
):
    """By the chain rule, from the gradient of the whole model with merged kernels."""
    spec = dataclasses.replace(spec, hidden_size=96, intermediate_size=384)
    model = of_kind(spec)
    changed = with_subset(model, dataclasses.replace(LORA, targets="qkv|output"), "", BERT)
    key, batch = jax.random.key(0), make_batch(5)
    frozen = nn.unbox(jax.jit(partial(changed.init, frozen=True))(key))
    rng = np.random.default_rng(1)
    factors = jax.tree.map(
        lambda box: rng.normal(0, 0.1, box.shape).astype("f4"),
        nn.unbox(jax.eval_shape(changed.init, key)),
    )
    dense, some = changed.params_of(merged(factors, frozen)), rng.normal(size=(5, 13, 96))

    def grads(model, params, frozen):
        def loss(params):
            states = model(merged(params, frozen), batch)["sequence"]
            return (states * some).sum()

        return jax.grad(loss)(params)

    whole = jax.jit(partial(grads, model)).lower(dense, {}).compile()
    few = jax.jit(partial(grads, changed)).lower(factors, frozen).compile()
    assert few.cost_analysis()["flops"] < 0.72 * whole.cost_analysis()["flops"]
    qkv, scale = (lambda tree: tree["bert"]["encoder"]["layer_1"]["attention"]["qkv"]), 5 / 3
    of_kernel, own, now = qkv(whole(dense, {}))["kernel"], qkv(few(factors, frozen)), qkv(factors)
    expected = {
        "lora_down": scale * jnp.einsum("dcnh,crnh->dcr", of_kernel, now["lora_up"]),
        "lora_up": scale * jnp.einsum("dcnh,dcr->crnh", of_kernel, now["lora_down"]),
    }
    assert_close(own, expected, terms=1024)


def test_what_is_trained_has_state_and_the_rest_has_none(spec):
    """Muon takes each factor of each matrix; a part that shares has the factors of its owner."""
    model = of_kind(spec, head_types.SEQUENCE_CLASSIFICATION)
    changed = with_subset(model, LORA, "", BERT)
    attention = {f"bert/encoder/layer_{i}/attention" for i in (0, 1)}
    factors = {
        **{f"{name}/qkv/lora_down": (24, 3, 3) for name in attention},
        **{f"{name}/qkv/lora_up": (3, 3, 3, 8) for name in attention},
        **{f"{name}/output/lora_down": (3, 8, 3) for name in attention},
        **{f"{name}/output/lora_up": (3, 24) for name in attention},
    }
    assert shapes(changed) == factors | {"classifier/kernel": (24, 3), "classifier/bias": (3,)}
    rest = with_subset(model, AdapterSpec(), "embeddings|layer_[1-9]/|pooler", BERT)
    stay = {path for path in shapes(model) if "embed" in path or "layer_1" in path}
    stay |= {"pooler/dense/kernel", "pooler/dense/bias"} & shapes(model).keys()
    assert shapes(rest).keys() == shapes(model).keys() - stay
    optimizer = make_optimizer(OptimizerSpec(name="muon"), partial(logical_axes, changed.init))
    state = jax.eval_shape(
        lambda key: optimizer.init(nn.unbox(changed.init(key))), jax.random.key(0)
    )
    momentum = flatten_dict(state[1].inner_state.mu, sep="/")
    assert {path for path, leaf in momentum.items() if hasattr(leaf, "shape")} == factors.keys()


@pytest.mark.parametrize(
    "scan, adapter, frozen, message",
    [
        (
            False,
            AdapterSpec(),
            "layr_3|pooler",
            "config.frozen='layr_3': no such parameter; the ne",
        ),
        (False, AdapterSpec(), "embeddings/tokens", "nearest are bert/embeddings/token, "),
        (True, AdapterSpec(), "layer_0/", "scan_layers=True makes one array of all layers: set it"),
        (False, AdapterSpec(), "", ""),
        (False, AdapterSpec(), ".", "config.frozen='.': nothing is left to train: leave some out"),
        (False, dataclasses.replace(LORA, targets="embeddings"), "", "config.adapter.targets='emb"),
        (False, dataclasses.replace(LORA, targets="query"), "", "attention/qkv/kernel"),
        (True, dataclasses.replace(LORA, targets="layer_[01]/"), "", "scan_layers=True makes one"),
    ],
)
def test_patterns_without_a_parameter_are_refused(spec, scan, adapter, frozen, message):
    model = of_kind(dataclasses.replace(spec, scan_layers=scan))
    if not message:
        assert with_subset(model, adapter, frozen, BERT) is model
        return
    with pytest.raises(InputError) as error:
        with_subset(model, adapter, frozen, BERT)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(name="ia3"), "name='ia3': must be one of '', lora"),
        (dict(rank=0), "rank=0: must be at least 1"),
        (dict(alpha=0.0), "alpha=0.0: must be above 0"),
        (dict(targets="(qkv"), "targets='(qkv': no pattern (a regular expression): missing )"),
    ],
)
def test_settings_of_an_adapter_are_checked(changes, message):
    with pytest.raises(ValueError) as error:
        AdapterSpec(**changes)
    assert message in str(error.value)
