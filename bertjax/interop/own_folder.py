"""Model folders of this package, for models that transformers does not have."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors import SafetensorError
from safetensors.numpy import load, save

from bertjax.base.checks import input_error_at
from bertjax.base.errors import InputError
from bertjax.base.files import read_json, write_json
from bertjax.base.renames import renamed
from bertjax.base.validation import record
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.encoders.renames import ALL_RENAMES
from bertjax.models.heads.bilstm import BiLstm
from bertjax.text.tokenizer import Tokenizer

MODEL_FILE = "model.json"  # all but the arrays and the tokenizer
WEIGHTS_FILE = "parameters.safetensors"
_HINT = "repeat the fine-tuning in another --workdir"
_FIELDS = record(kind=str, encoder=str, spec=dict, bilstm=dict, classes=list[str], task=dict)


def write_folder(pretrained: Pretrained, folder: Path) -> None:
    """Writes a complete model into an empty folder, which `read_folder` reads."""
    pretrained.tokenizer.save(folder)
    described = {
        "kind": pretrained.head_type,
        "encoder": pretrained.spec.encoder,
        "spec": dataclasses.asdict(pretrained.spec),
        "bilstm": _sizes(pretrained.bilstm) if pretrained.bilstm else {},
        "classes": list(pretrained.classes),
        "task": dict(pretrained.task),
    }
    write_described(described, pretrained.params, folder)


def read_folder(folder: Path, origin: str) -> Pretrained:
    """Reads a model that `write_folder` wrote; `origin` is what the user calls the folder."""
    found, params = read_described(folder, origin, _FIELDS)
    return Pretrained(
        origin=origin,
        head_type=found["kind"],
        spec=ENCODERS[found["encoder"]].spec(**found["spec"]),
        params=params,
        tokenizer=Tokenizer.open(folder),
        classes=tuple(found["classes"]),
        task=found["task"],
        bilstm=BiLstm(**found["bilstm"]) if found["bilstm"] else None,
    )


def write_described(described: Mapping[str, Any], params: Mapping[str, Any], folder: Path) -> None:
    """Writes the parameters of a model, and a description of it."""
    arrays = flatten_dict(dict(params), sep="/")
    # safetensors ignores strides.
    in_order = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    (folder / WEIGHTS_FILE).write_bytes(save(in_order))
    write_json(folder / MODEL_FILE, described)


def read_described(folder: Path, origin: str, fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads what `write_described` wrote; parameters get the paths that they have now."""
    try:
        found = read_json(folder / MODEL_FILE, fields, hint=_HINT)
        with input_error_at(f"{folder / WEIGHTS_FILE}: damaged", SafetensorError, _HINT):
            arrays = load((folder / WEIGHTS_FILE).read_bytes())
    except FileNotFoundError as error:
        missing = Path(error.filename).name
        raise InputError(f"{origin}: no {missing} in {folder}: {_HINT}") from error
    arrays_now = {renamed(path, ALL_RENAMES): array for path, array in arrays.items()}
    return found, unflatten_dict(arrays_now, sep="/")


def _sizes(bilstm: BiLstm) -> dict[str, Any]:
    return {name: getattr(bilstm, name) for name in ("hidden", "depth", "dropout")}
