"""The platform that programs are compiled for."""

import jax


def platform() -> str:
    """Of the active mesh, whose devices may be only described, or else of this process.

    Returns:
      "cpu", "tpu", or "gpu".
    """
    described = getattr(jax.sharding.get_abstract_mesh(), "abstract_device", None)
    if described is None:
        return jax.default_backend()
    kind = described.device_kind
    return "tpu" if kind.startswith("TPU") else "cpu" if kind == "cpu" else "gpu"
