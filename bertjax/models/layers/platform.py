"""The platform that programs are compiled for."""

import jax


def platform() -> str:
    """That of the active mesh, whose devices may be only described, or else of this process.

    Returns:
      "cpu", "tpu" or "gpu".
    """
    described = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    return described.platform if described else jax.default_backend()
