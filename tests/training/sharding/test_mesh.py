"""Meshes."""

import jax
import pytest

from bertjax.base.errors import InputError
from bertjax.training.sharding.mesh import MeshSpec, make_mesh

pytestmark = pytest.mark.devices(8)


@pytest.mark.parametrize(
    "spec, shape",
    [
        (MeshSpec(), (8, 1)),
        (MeshSpec(model=2), (4, 2)),
        (MeshSpec(data=2, model=4), (2, 4)),
        (MeshSpec(data=-1, model=8), (1, 8)),
    ],
)
def test_shape(spec, shape):
    mesh = make_mesh(spec)
    assert mesh.axis_names == ("data", "model")
    assert mesh.devices.shape == shape
    assert set(mesh.devices.flat) == set(jax.devices())


def test_some_of_the_devices():
    mesh = make_mesh(MeshSpec(), jax.devices()[:3])
    assert mesh.devices.shape == (3, 1)
    assert set(mesh.devices.flat) == set(jax.devices()[:3])


@pytest.mark.parametrize(
    "spec", [MeshSpec(data=3), MeshSpec(model=3), MeshSpec(model=16), MeshSpec(data=4, model=4)]
)
def test_sizes_that_do_not_fit(spec):
    message = f"mesh data={spec.data}, model={spec.model} does not fit 8 devices"
    with pytest.raises(InputError, match=message):
        make_mesh(spec)


@pytest.mark.parametrize("spec", [MeshSpec(model=0), MeshSpec(data=0), MeshSpec(-2, -4)])
def test_sizes_that_are_no_sizes(spec):
    with pytest.raises(InputError, match="does not fit 8 devices"):
        make_mesh(spec)
