"""What programs need of a device's memory, and what is said when there is too little."""

import jax
import jax.numpy as jnp
import pytest

from bertjax.base.errors import InputError
from bertjax.training import memory
from bertjax.training.memory import Needs, less_memory, needs_of


def test_needs_are_the_arguments_and_what_is_not_one_of_them():
    """An argument whose place the result takes counts once; what is between them counts, too."""
    x, y = jnp.ones((30, 50)), jnp.ones((50, 30))
    assert needs_of(jax.jit(lambda x: x + 1).lower(x).compile()) == Needs(6000, 6000)
    assert needs_of(jax.jit(lambda x: x + 1, donate_argnums=0).lower(x).compile()) == (6000, 0)
    arguments, temporaries = needs_of(
        jax.jit(lambda x, y: ((x @ y) @ x).sum()).lower(x, y).compile()
    )
    assert arguments == 2 * 6000 and temporaries >= 30 * 30 * 4 + 4


@pytest.mark.parametrize("limit", [None, 24 * 10**9])
def test_a_device_without_memory_is_an_error_of_the_user(monkeypatch, limit):
    monkeypatch.setattr(memory, "device_memory", lambda device: limit)
    has = ", JAX may use 22.35 GiB of it" if limit else ""
    with pytest.raises(InputError) as raised, less_memory("set --a=1", "lower --b"):
        jnp.zeros((2**45,), "int8")
    assert str(raised.value) == (
        f"cpu is out of memory (32,768.00 GiB more were asked for{has}): "
        "in this order, set --a=1, lower --b, end other programs that use the device"
    )


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Out of memory while trying to allocate 19.59GiB. [executable_name='jit_x']", "19.59 GiB"),
        ("Failed to allocate request for 176.00MiB (184549376B) on device ordinal 0", "176.00 MiB"),
        ("XLA:TPU compile permanent error. Ran out of memory in memory space hbm.", ""),
    ],
)
def test_the_words_of_other_devices(said, asked):
    error = jax.errors.JaxRuntimeError(f"RESOURCE_EXHAUSTED: {said}")
    facts = f" ({asked} more were asked for)" if asked else ""
    assert memory.out_of_memory(error).startswith(
        f"cpu is out of memory{facts}: end other programs"
    )


def test_other_errors_of_devices_are_bugs():
    @less_memory("set --a=1")
    def work():
        raise jax.errors.JaxRuntimeError("INTERNAL: a bug")

    with pytest.raises(jax.errors.JaxRuntimeError, match="a bug"):
        work()


def test_on_a_gpu_jax_may_use_more_of_it(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    helps = memory.what_helps("set --a=1")
    assert helps.startswith("in this order, set --a=1, ")
    assert helps.endswith(", set the variable XLA_PYTHON_CLIENT_MEM_FRACTION=0.95")
