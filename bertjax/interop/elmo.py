"""Folders of ELMo, as bilm-tf and AllenNLP have them: options.json and weights in HDF5."""

from pathlib import Path
from types import ModuleType

import numpy as np

from bertjax.base.checks import input_error_at
from bertjax.base.errors import InputError
from bertjax.base.extras import install
from bertjax.base.files import atomic_write, read_json, write_json
from bertjax.interop.names import to_hf, to_jax
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.published.elmo import OPTIONS, read_options, write_options
from bertjax.interop.published.registry import array_names
from bertjax.models.encoders import head_types
from bertjax.models.encoders.elmo.spec import ElmoSpec
from bertjax.text.characters import Characters

_OPTIONS, _WEIGHTS = "options.json", "weights.hdf5"
_HINT = "take the options that the weights were trained with"


def read_elmo(folder: Path, origin: str) -> Pretrained:
    """Reads a folder with one file *options.json and one *weights.hdf5."""
    h5py = import_h5py(origin)
    options = _single_file(folder, _OPTIONS, origin)
    described = read_json(options, OPTIONS, hint=_HINT)
    with input_error_at(options):
        spec = ElmoSpec(**read_options(described))
    weights = _single_file(folder, _WEIGHTS, origin)
    arrays: dict[str, np.ndarray] = {}

    def keep(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            arrays[name] = np.asarray(item, np.float32)

    with input_error_at(f"{weights}: damaged", OSError, "copy it anew"), h5py.File(weights) as file:
        file.visititems(keep)
    entries = array_names([spec.encoder], spec, head_types.ENCODER, 0)
    known = {entry.hf_name for entry in entries}
    return Pretrained(
        origin=origin,
        head_type=head_types.ENCODER,
        spec=spec,
        params=to_jax(arrays, entries, origin),
        tokenizer=Characters(),
        left_out={name: "not an array of the encoder" for name in arrays if name not in known},
    )


def write_elmo(pretrained: Pretrained, folder: Path) -> None:
    """Writes an ELMo into an empty folder, for bilm-tf, AllenNLP and `read_elmo`."""
    spec, origin = pretrained.spec, pretrained.origin
    if not isinstance(spec, ElmoSpec):
        raise InputError(f"{origin}: {pretrained.class_name}: only an ELMo has such files")
    h5py = import_h5py(origin)
    arrays = to_hf(pretrained.params, array_names([spec.encoder], spec, head_types.ENCODER, 0))
    write_json(folder / _OPTIONS, write_options(spec))
    with atomic_write(folder / _WEIGHTS, "w+b") as file, h5py.File(file, "w") as weights:
        for name, array in arrays.items():
            weights[name] = array


def import_h5py(origin: str) -> ModuleType:
    """The library h5py; InputError if it is not installed."""
    with input_error_at(
        f"{origin}: h5py reads and writes such weights", ImportError, install("elmo")
    ):
        import h5py
    return h5py


def _single_file(folder: Path, ending: str, origin: str) -> Path:
    found = sorted(folder.glob(f"*{ending}"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise InputError(
            f"{origin}: must be a folder with one file *{ending} (there is {names}) and one "
            f"*{_OPTIONS if ending == _WEIGHTS else _WEIGHTS}"
        )
    return found[0]
