"""The platform that programs are compiled for."""

import jax


def platform() -> str:
    """That of the active mesh, perhaps only described, or of this process: "cpu", "tpu", "gpu"."""
    described = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    return described.platform if described else jax.default_backend()
