"""Adapters as the library peft stores them: a folder with adapter_config.json."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from flax.traverse_util import flatten_dict
from safetensors.numpy import save

from bertjax.base.checks import check_in_folder, input_error_at
from bertjax.base.errors import InputError
from bertjax.base.factors import DOWN, KERNEL, UP
from bertjax.base.files import write_json
from bertjax.base.validation import optional
from bertjax.interop.config_rows import check_wanted
from bertjax.interop.hugging_face import (
    CONFIG_FILE,
    assemble,
    has_class,
    read_arrays,
    read_hugging_face,
    write_hugging_face,
    write_settings,
)
from bertjax.interop.json_files import read_optional
from bertjax.interop.names import Entry, to_hf
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders import head_types

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
ADAPTER_FOLDER = "adapter"  # in the folder of a model that was trained by an adapter
_PREFIX = "base_model.model."
_IDENTITY = "base_identity"  # in the file's metadata; peft does not read it
_TASKS = {
    head_types.ENCODER: "FEATURE_EXTRACTION",
    head_types.CAUSAL_LM: "CAUSAL_LM",
    head_types.SEQUENCE_CLASSIFICATION: "SEQ_CLS",
    head_types.TOKEN_CLASSIFICATION: "TOKEN_CLS",
    head_types.QUESTION_ANSWERING: "QUESTION_ANS",
}
_FIELDS = optional(
    **dict(peft_type=str, task_type=str, base_model_name_or_path=str, bias=str),
    **dict(r=int, lora_alpha=float, use_rslora=bool, use_dora=bool, fan_in_fan_out=bool),
    **dict(rank_pattern=dict[str, int], alpha_pattern=dict[str, float]),
)


def write_trained(pretrained: Pretrained, folder: Path) -> None:
    """Writes a model for transformers and, if an adapter has changed it, the adapter next to it."""
    write_hugging_face(pretrained, folder)
    if pretrained.adapter:
        (folder / ADAPTER_FOLDER).mkdir()
        write_peft(pretrained, folder / ADAPTER_FOLDER)


def write_peft(pretrained: Pretrained, folder: Path) -> None:
    """Writes what peft's `PeftModel.from_pretrained` loads, and config.json and the tokenizer.

    A kernel that has several matrices here and is one array there (such as Wqkv) gets the factors
    of all of them, the sum of their ranks wide; so it computes the same.
    """
    adapter = pretrained.adapter
    if adapter is None or not has_class(pretrained):
        raise InputError(
            f"{pretrained.origin}: a folder for peft has an adapter of a model of transformers: "
            "train it with --config.adapter.name=lora, or take --to=hf:FOLDER"
        )
    bare = pretrained.names.bare if pretrained.head_type == head_types.ENCODER else ""
    arrays: dict[str, np.ndarray] = {}
    ranks: dict[str, int] = {}
    stored_as_linear: list[bool] = []
    factors = flatten_dict(adapter.factors, sep="/")
    for entry in pretrained.entries:
        module = entry.hf_name.removeprefix(bare).removesuffix(".weight")
        module_path = entry.path.removesuffix(KERNEL)
        if entry.path.endswith(f"/{KERNEL}") and f"{module_path}{DOWN}" in factors:
            down, up = (factors[module_path + name] for name in (DOWN, UP))
            into, out = _as_reference(entry, down, up)
            ranks[module] = len(into)
            stored_as_linear.append(entry.transposed)
            arrays |= {f"{_PREFIX}{module}.lora_A.weight": into}
            arrays |= {f"{_PREFIX}{module}.lora_B.weight": out}
    whole_arrays = [e for e in pretrained.entries if e.path.partition("/")[0] in adapter.whole]
    for name, array in to_hf(pretrained.params, whole_arrays).items():
        arrays[_PREFIX + name] = array
    other_ranks = {module: rank for module, rank in ranks.items() if rank != adapter.rank}
    config = {
        "peft_type": "LORA",
        "task_type": _TASKS.get(pretrained.head_type),
        "base_model_name_or_path": adapter.base.removeprefix("hf:"),
        "inference_mode": True,
        "r": adapter.rank,
        "lora_alpha": adapter.scale * adapter.rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": not all(stored_as_linear),
        "target_modules": sorted(ranks),
        "modules_to_save": sorted({e.hf_name.rpartition(".")[0] for e in whole_arrays}) or None,
        "rank_pattern": other_ranks,
        "alpha_pattern": {module: adapter.scale * rank for module, rank in other_ranks.items()},
    }
    metadata = {"format": "pt", _IDENTITY: adapter.identity}
    (folder / ADAPTER_WEIGHTS).write_bytes(save(arrays, metadata=metadata))
    write_json(folder / ADAPTER_CONFIG, config)
    write_settings(pretrained, folder)


def _as_reference(entry: Entry, down: np.ndarray, up: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factors of one array of transformers: [rank, in] and [out, rank]."""
    axes_here = len(entry.inner) + (entry.stack_index is not None)
    counted = down.ndim + up.ndim - 2 - axes_here
    inputs = down.ndim - 1 - counted
    if not counted:
        down, up = np.expand_dims(down, inputs), up[None]
    downs = np.moveaxis(down, inputs, 0)
    if entry.stack_index is not None:
        downs, up = downs[[entry.stack_index]], up[[entry.stack_index]]
    count, rank = up.shape[:2]
    into = downs.reshape(count, -1, rank).swapaxes(1, 2).reshape(count * rank, -1)
    ups = up.reshape(count, rank, -1).swapaxes(1, 2)  # [count, out, rank]
    blocks = np.zeros((count, ups.shape[1], count, rank), np.float32)
    for number, block in enumerate(ups):
        blocks[number, :, number] = block
    out = blocks.reshape(-1, count * rank)
    out = out[list(entry.order)] if entry.order else out
    return np.ascontiguousarray(into), np.ascontiguousarray(out)


def is_peft(folder: Path) -> bool:
    """Whether a folder is one of an adapter."""
    return (folder / ADAPTER_CONFIG).exists()


def read_peft(folder: Path, origin: str, open_base: Callable[[str], Pretrained]) -> Pretrained:
    """The model that an adapter (LoRA of products alone) makes of its base.

    `open_base` opens the weights of the name that is in adapter_config.json.
    """
    config = read_optional(folder / ADAPTER_CONFIG, _FIELDS) or {}
    with input_error_at(f"{origin}: {ADAPTER_CONFIG}"):
        settings = {key: value for key, value in config.items() if value}
        check_wanted(settings, {"peft_type": "LORA", "bias": "none", "use_dora": False})
    name = config.get("base_model_name_or_path")
    if not name:
        raise InputError(f"{origin}: {ADAPTER_CONFIG} names no base_model_name_or_path: write it")
    path = folder / ADAPTER_WEIGHTS
    check_in_folder(path, origin)
    with input_error_at(
        f"{origin}: its base_model_name_or_path, in {ADAPTER_CONFIG}, is not to be had"
    ):
        base = open_base(name)
    adapter = read_arrays(path, base.family)
    with safetensors.safe_open(path, framework="numpy") as file:
        identity = (file.metadata() or {}).get(_IDENTITY, base.identity)
    other = f"{origin}: an adapter for another model than {base.origin}"
    if identity != base.identity:
        raise InputError(f"{other} is now: name in {ADAPTER_CONFIG} the weights that it is for")
    arrays = to_hf(base.params, base.entries)
    arrays |= _changed(adapter, arrays, base, config, origin)
    if (folder / CONFIG_FILE).exists():
        model = read_hugging_face(folder, origin, arrays)
    else:
        of_task = {task: head_type for head_type, task in _TASKS.items()}
        head_type = of_task.get(config.get("task_type") or "", base.head_type)
        model = assemble(arrays, base.spec, head_type, base.tokenizer, origin)
    # The base may have other heads, too.
    base_params = {part: params for part, params in model.params.items() if part in model.parts}
    return dataclasses.replace(model, params=base_params)


def _changed(
    adapter: Mapping[str, np.ndarray],
    arrays: Mapping[str, np.ndarray],
    base: Pretrained,
    config: Mapping[str, Any],
    origin: str,
) -> dict[str, np.ndarray]:
    """The arrays of the base that an adapter changes, and those that it has anew."""
    found: dict[str, np.ndarray] = {}
    other = f"{origin}: an adapter for another model than {base.origin}"
    for name, array in sorted(adapter.items()):  # a file has them in any order
        module, lora, ending = name.removeprefix(_PREFIX).partition(".lora_")
        if not lora:
            found[base.names.one_spelling(module)] = array
            continue
        if ending not in ("A.weight", "B.weight"):
            raise InputError(f"{origin}: {name}: only products are changed by what is read here")
        if ending == "B.weight":
            continue
        weight = base.names.one_spelling(f"{module}.weight")
        up = adapter.get(f"{_PREFIX}{module}.lora_B.weight", np.zeros((0, 0)))
        if weight not in arrays or up.shape[1:] != array.shape[:1]:
            raise InputError(f"{other}, which has no {weight}, or {name} has no B next to it")
        change = _scale(module, len(array), config) * (up @ array)
        change = change.T if config.get("fan_in_fan_out") else change
        if change.shape != arrays[weight].shape:
            raise InputError(
                f"{other}: {name} is for {list(change.shape)}, and its {weight} has the shape "
                f"{list(arrays[weight].shape)}"
            )
        found[weight] = (arrays[weight] + change).astype(np.float32)
    return found


def _scale(module: str, rank: int, config: Mapping[str, Any]) -> float:
    """What the product of a module's factors is multiplied with, as peft finds it."""
    alphas = config.get("alpha_pattern") or {}
    matching = (a for key, a in alphas.items() if re.match(rf"(.*\.)?({key})$", module))
    alpha = next(matching, config.get("lora_alpha") or 8.0)
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)
