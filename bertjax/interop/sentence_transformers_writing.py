"""Writes how a model makes its vectors of texts, as sentence-transformers reads it."""

from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict
from safetensors.numpy import save

from bertjax.base.errors import InputError
from bertjax.base.files import write_json
from bertjax.interop.json_files import POOLING_KEYS
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.sentence_transformers import (
    ACTIVATIONS,
    CLASSES,
    IDENTITY,
    INPUTS,
    LENGTH_NAMES,
    MODEL_FILE,
    MODES,
    MODULE_CONFIG,
    MODULE_NAMES,
    MODULE_WEIGHTS,
    MODULES_FILE,
    OF_TORCH,
    POOLED,
    PROMPTS,
    RERANKER,
    SETTINGS_FILE,
    TRUNCATED,
    WITH_ARRAYS,
    module_arrays,
    modules_of,
    prompts_of,
)
from bertjax.models.heads.embedding import DENSE, LATE, SPARSE, Embedding
from bertjax.models.heads.vector_modules import LAYER_NORM, NORMALIZE, PRODUCT, VectorModule, widths

# How the classes are called in every version that has them.
_MODELS = {DENSE: "Transformer", SPARSE: "MLMTransformer", LATE: "Transformer"}
_PACKAGES = {
    **dict.fromkeys((*POOLED, *MODULE_NAMES.values()), "models"),
    **dict.fromkeys(("MLMTransformer", "SpladePooling"), "sparse_encoder.models"),
}


def write_modules(pretrained: Pretrained, folder: Path, *, scores: bool = False) -> None:
    """Writes how a model makes its vectors into its folder, for sentence-transformers and here.

    Dense models are read by sentence-transformers from 3 on, or from 6 on if queries have another
    length than passages; sparse ones from 5 on, those of late interaction from 6 on.

    With `scores`, they are a reranker's. Raises InputError for a prompt that does not count, but in
    a dense model.
    """
    embedding, spec = pretrained.embedding, pretrained.spec
    assert embedding is not None
    prompts = {"query": embedding.query_prompt, "document": embedding.passage_prompt}
    if embedding.kind != DENSE and any(prompts.values()) and not embedding.count_prompt:
        raise InputError(
            f"{pretrained.origin}: count_prompt=False in a {embedding.kind} model: "
            "sentence-transformers counts its prompts"
        )
    described = [{"idx": 0, "name": "0", "path": "", "type": _type(_MODELS[embedding.kind])}]
    weights = iter(module_arrays(embedding, spec.hidden_size))
    flat = flatten_dict(dict(pretrained.params), sep="/")
    written = _written(embedding, spec.hidden_size)
    if scores:
        written[-1][1]["module_output_name"] = "scores"
    for number, (name, config) in enumerate(written, start=1):
        path = f"{number}_{name}"
        described.append({"idx": number, "name": f"{number}", "path": path, "type": _type(name)})
        (folder / path).mkdir()
        write_json(folder / path / MODULE_CONFIG, config)
        if name in WITH_ARRAYS:
            turned = {name: flat[path].T for path, (name, _) in next(weights).items()}
            # safetensors ignores strides.
            named = {name: np.ascontiguousarray(array) for name, array in turned.items()}
            (folder / path / MODULE_WEIGHTS).write_bytes(save(named))
    write_json(folder / MODULES_FILE, described)
    query, passage = (embedding.length(q, spec.max_position_embeddings) for q in (True, False))
    lengths = {} if query == passage else dict(zip(LENGTH_NAMES, (query, passage), strict=True))
    model: dict[str, Any] = {"max_seq_length": passage, "do_lower_case": False, **lengths}
    if set(pretrained.head_spec.parts(spec)) - set(pretrained.params):  # a pooler, no part of it
        model["model_args"] = {"add_pooling_layer": False}
    write_json(folder / MODEL_FILE, model)
    # Vectors that are trained by their angle are compared by their cosine.
    similarity = {"angle": "cosine"}.get(embedding.compared_by, embedding.compared_by)
    settings: dict[str, Any] = {
        **{"model_type": CLASSES[embedding.kind], "prompts": prompts},
        **{"default_prompt_name": None, "similarity_fn_name": similarity},
    }
    kept = {name: pretrained.kept[name] for name in PROMPTS if name in pretrained.kept}
    if tuple(prompts_of(kept).values()) == tuple(prompts.values()):
        settings |= kept
    if pretrained.dimensions:
        settings[TRUNCATED] = pretrained.dimensions
    if scores:
        settings = {"model_type": RERANKER, "prompts": {}, "default_prompt_name": None}
    write_json(folder / SETTINGS_FILE, settings)


def _type(name: str) -> str:
    return f"sentence_transformers.{_PACKAGES[name]}.{name}"


def _written(embedding: Embedding, width: int) -> list[tuple[str, dict[str, Any]]]:
    if embedding.kind == SPARSE:
        return [("SpladePooling", {"pooling_strategy": "max", "activation_function": "relu"})]
    modules, first = modules_of(embedding), []
    if embedding.kind == DENSE:
        mode = {pooling: name for name, pooling in MODES.items()}[embedding.pooling]
        modes = {key: name == mode for key, name in POOLING_KEYS.items()}
        pooling = {"word_embedding_dimension": width, **modes}
        pooling["include_prompt"] = embedding.count_prompt
        first.append(("Pooling", pooling))
    if embedding.normalize or embedding.kind == LATE:
        modules += (VectorModule(kind=NORMALIZE),)
    of = INPUTS[embedding.kind]
    before = widths(modules, width)[:-1]
    return first + [_settings(*each, of) for each in zip(modules, before, strict=True)]


def _settings(module: VectorModule, width: int, of: str) -> tuple[str, dict[str, Any]]:
    """The name of a module for vectors of this width, and its settings."""
    settings: dict[str, Any] = dict(module_input_name=of, module_output_name=of)
    if module.kind == LAYER_NORM:
        settings = {"dimension": width}
    if module.kind == PRODUCT:
        torch_name = {own: name for name, own in ACTIVATIONS.items()}[module.activation]
        settings = {
            **dict(in_features=width, out_features=module.width, bias=module.bias),
            "activation_function": IDENTITY if torch_name == "Identity" else OF_TORCH + torch_name,
            **settings,
        }
    return MODULE_NAMES[module.kind], settings
