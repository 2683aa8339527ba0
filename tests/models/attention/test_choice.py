"""Which way computes self-attention, by device and call."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.models.attention import choice
from bertjax.models.attention.choice import Call, Device, way
from bertjax.models.attention.contract import AttentionPattern, Mask
from bertjax.models.attention.implementations import self_attention
from bertjax.models.attention.local import local_self_attention
from bertjax.models.encoders.presets import BertSpec, DebertaV2Spec, ModernBertSpec
from bertjax.models.encoders.xlnet.spec import TransformerXlSpec, XlnetSpec
from bertjax.training.sharding.mesh import MeshSpec, make_mesh
from bertjax.training.sharding.placement import Placement
from bertjax.training.sharding.rules import sharding_layout

CPU, TPU = Device("cpu"), Device("tpu")
H100 = Device("cuda", 90, flash=True, cudnn_packed=True)
A10 = Device("cuda", 86, flash=True)  # cuDNN's packed form needs Hopper
BARE_H100, BARE_A10 = H100._replace(flash=False), A10._replace(flash=False)
T4 = Device("cuda", 75)
GLOBAL, LOCAL = AttentionPattern(), AttentionPattern(window=64)


def _call(length=512, pattern=GLOBAL, rate=0.0, dtype="bfloat16", **others):
    return Call(length, 64, dtype, pattern, rate, **others)


@pytest.mark.parametrize(
    "device, call, expected",
    [
        (CPU, _call(), "einsum"),
        (CPU, _call(256, LOCAL), "einsum"),
        (CPU, _call(257, LOCAL), "blocks"),
        (TPU, _call(128), "einsum"),
        (TPU, _call(256, rate=0.1), "kernel"),
        (TPU, _call(8192, LOCAL), "kernel"),
        (TPU, _call(8192, LOCAL, rate=0.1), "blocks"),
        (TPU, _call(256, bias=True), "einsum"),
        (TPU, _call(256, distances=True), "kernel"),
        (TPU, _call(2048, distances=True), "einsum"),
        (TPU, _call(512, LOCAL, distances=True), "einsum"),
        (CPU, _call(256, distances=True), "einsum"),
        (H100, _call(128), "flash"),
        (H100, _call(128, distances=True), "einsum"),
        (H100, _call(8192, LOCAL), "flash"),
        (H100, _call(512, AttentionPattern(causal=True)), "flash"),
        (H100, _call(rate=0.1), "einsum"),
        (H100, _call(rate=0.1, dropping=False), "flash"),
        (H100, _call(8192, LOCAL, rate=0.1), "blocks"),
        (H100, _call(dtype="float32"), "einsum"),
        (H100, _call(mask_of_keys=False), "fused"),
        (H100._replace(exact=True), _call(8192), "cudnn"),
        (H100._replace(exact=True), _call(8192, LOCAL), "flash"),
        (A10, _call(), "flash"),
        (A10._replace(exact=True), _call(8192, LOCAL), "blocks"),
        (A10._replace(exact=True), _call(8192), "fused"),
        (BARE_H100, _call(8192), "cudnn"),
        (BARE_H100, _call(8192, AttentionPattern(causal=True)), "fused"),
        (BARE_H100, _call(8192, LOCAL), "blocks"),
        (BARE_H100, _call(128, LOCAL), "fused"),
        (BARE_A10, _call(), "fused"),
        (T4, _call(), "einsum"),
        (T4, _call(1024, LOCAL), "blocks"),
        (Device("rocm"), _call(), "einsum"),
    ],
)
def test_the_fastest_way(device, call, expected):
    found = way("auto", device, call)
    assert found.name == expected
    assert found.why or device.platform != "cuda" or device.flash  # what a library lacks is said


@pytest.mark.parametrize("device", [CPU, TPU, H100, BARE_A10, T4])
def test_a_name_is_taken_wherever_it_can_compute(device):
    named = lambda name, *call: way(name, device, _call(*call)).name  # noqa: E731
    assert named("einsum") == named("einsum", 8192) == "einsum"
    assert named("fused") == "fused"
    assert named("kernel") == ("einsum" if device in (CPU, T4) else "kernel")
    assert {named(name, 8192, LOCAL) for name in ("einsum", "fused")} == {"blocks"}


def test_odd_widths_and_split_sequences_are_for_einsum():
    assert way("auto", H100, _call()._replace(width=60)).name == "einsum"
    assert way("auto", H100, _call()._replace(width=192)).name == "einsum"


@pytest.mark.devices(8)
def test_a_sequence_on_several_devices_is_for_einsum():
    mesh = make_mesh(MeshSpec(data=-1, model=2))
    for name, expected in (("sequence", "einsum"), ("tensor", "flash")):
        with Placement(mesh, sharding_layout(name)).active():
            assert way("auto", H100, _call()).name == expected


def test_a_program_for_any_length_is_einsum():
    seen = []

    def program(x):
        seen.append(way("auto", TPU, _call(x.shape[0], LOCAL)).name)
        return x

    (length,) = jax.export.symbolic_shape("S")
    jax.export.export(jax.jit(program))(jax.ShapeDtypeStruct((length,), jnp.float32))
    assert seen == ["einsum"]


def test_a_program_for_a_described_tpu(monkeypatch):
    """Its mesh says so, not this process."""
    device = types.SimpleNamespace(platform="tpu")
    mesh = types.SimpleNamespace(abstract_device=device, empty=True)
    monkeypatch.setattr(jax.sharding, "get_abstract_mesh", lambda: mesh)
    assert choice.taken("auto", _call()).name == "kernel"


@pytest.mark.parametrize(
    "flags, exact",
    [
        ("", False),
        ("--xla_gpu_deterministic_ops=true", True),
        ("--xla_foo=1 --xla_gpu_exclude_nondeterministic_ops", True),
        ("--xla_gpu_deterministic_ops=false", False),
    ],
)
def test_this_device(monkeypatch, flags, exact):
    """With stand-ins for a GPU's description and for the library of FlashAttention."""
    gpu = types.SimpleNamespace(compute_capability="9.0")
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "devices", lambda: [gpu])
    library = types.SimpleNamespace(serves=lambda capability: capability == 90)
    monkeypatch.setattr(choice, "flash_attention", lambda: library)
    assert choice.this_device.__wrapped__() == H100._replace(exact=exact)
    gpu.compute_capability = "gfx942"  # of AMD
    assert choice.this_device.__wrapped__() == Device("gpu")


def test_what_computes_is_said(monkeypatch):
    device = TPU
    monkeypatch.setattr(choice, "this_device", lambda: device)
    spec = BertSpec.named("base", compute_dtype="bfloat16")
    assert spec.attention_by(512) == "by kernel at length 512"
    assert spec.attention_by(128) == "by einsum at length 128"
    assert DebertaV2Spec(compute_dtype="bfloat16").attention_by(512) == "by kernel at length 512"
    for relative in (XlnetSpec, TransformerXlSpec):  # no kernel adds a bias
        assert relative(compute_dtype="bfloat16").attention_by(512) == "by einsum at length 512"
    device = H100._replace(exact=True)
    dropout = "kernels of libraries cannot drop attention probabilities"
    assert spec.attention_by(512) == f"by einsum at length 512 ({dropout})"
    modern = ModernBertSpec(compute_dtype="bfloat16")
    assert modern.attention_by(8192) == (
        "by cudnn in global layers and flash in local layers at length 8192 "
        "(XLA_FLAGS ask for the same bits each time)"
    )
    device = H100
    assert modern.attention_by(1024) == (
        "by flash at length 1024 (its gradient's last bits differ from run to run)"
    )


def test_short_documents_are_for_the_ways_that_take_any_number(monkeypatch):
    name = choice.for_documents
    assert name("auto", 20.0, 0.0) == "auto"  # on a CPU
    monkeypatch.setattr(choice, "this_device", lambda: H100)
    assert name("auto", 128.0, 0.0) == name("auto", 128.0, 0.1) == "auto"
    assert name("auto", 127.0, 0.0) == "fused" and name("auto", 127.0, 0.1) == "einsum"
    assert name("kernel", 20.0, 0.0) == "kernel"


def test_long_sequences_go_by_blocks():
    """And give the values of blocks, bit for bit."""
    pattern = AttentionPattern(window=3)
    qkv = jnp.asarray(np.random.default_rng(0).normal(size=(2, 13, 3, 1, 2)), jnp.float32)
    mask = Mask(jnp.ones((2, 13), bool))
    found = self_attention(qkv, mask, pattern, way=choice.taken("auto", _call(13, pattern)).name)
    np.testing.assert_array_equal(found, local_self_attention(qkv, mask, pattern))
