"""Reads how a folder of sentence-transformers makes vectors, next to what transformers reads.

modules.json names modules that run in turn, each with a folder for its settings:

dense   Transformer, Pooling, and any of Dense, LayerNorm, Normalize (SentenceTransformer)
sparse  Transformer of logits, SpladePooling (SparseEncoder)
late    Transformer, Dense, Normalize, perhaps MultiVectorMask (MultiVectorEncoder, PyLate)

A reranker (CrossEncoder) is the Transformer alone, transformers' class with its classifier; or the
modules of a dense model, of which the last is a Dense whose output is the scores.
A dense model may have "truncate_dim" in its settings: its vectors are cut to so many numbers. Here,
they have length 1 after the cut, as in training. The library gives the same with
`encode(normalize_embeddings=True)`; otherwise it does not normalize after the cut.
The forms are those of sentence-transformers 6.2, and what its older versions wrote.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from bertjax.base.checks import input_error_at
from bertjax.base.errors import InputError
from bertjax.base.files import inside
from bertjax.interop import json_files
from bertjax.interop.json_files import POOLING_KEYS, read_optional
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.heads.embedding import (
    DENSE,
    LATE,
    MODULES,
    PROJECTION,
    SPARSE,
    Embedding,
)
from bertjax.models.heads.vector_modules import (
    LAYER_NORM,
    NORMALIZE,
    PRODUCT,
    VectorModule,
    name_of,
    widths,
)
from bertjax.text.tokenizer import Tokenizer

MODULES_FILE = "modules.json"
SETTINGS_FILE = "config_sentence_transformers.json"
MODEL_FILE = "sentence_bert_config.json"
# Older versions had a name for each family.
_MODEL_FILES = (
    MODEL_FILE,
    *(f"sentence_{name}_config.json" for name in ("roberta", "camembert", "xlm-roberta")),
)
TOKENIZER_FILE = "tokenizer_config.json"
MODULE_CONFIG, MODULE_WEIGHTS = "config.json", "model.safetensors"
# The arrays of a module, and their names in Flax; a kernel is turned.
_ARRAYS = {
    PRODUCT: {"kernel": "linear.weight", "bias": "linear.bias"},
    LAYER_NORM: {"scale": "norm.weight", "bias": "norm.bias"},
}
MODULE_NAMES = {PRODUCT: "Dense", LAYER_NORM: "LayerNorm", NORMALIZE: "Normalize"}
WITH_ARRAYS = [MODULE_NAMES[kind] for kind in _ARRAYS]
OF_TORCH = "torch.nn.modules.activation."
IDENTITY = "torch.nn.modules.linear.Identity"
# The names of the activation functions in PyTorch, whose defaults JAX has.
ACTIVATIONS = {
    **dict(Identity="identity", Tanh="tanh", GELU="gelu", ReLU="relu", ReLU6="relu6", SiLU="silu"),
    **dict(LeakyReLU="leaky_relu", ELU="elu", SELU="selu", CELU="celu", Mish="mish"),
    **dict(Sigmoid="sigmoid", LogSigmoid="log_sigmoid", Softplus="softplus", Softsign="soft_sign"),
    **dict(Hardtanh="hard_tanh", Hardsigmoid="hard_sigmoid", Hardswish="hard_silu"),
}

POOLED = ("Transformer", "Pooling")
_SEQUENCES: dict[str, list[tuple[str, ...]]] = {
    DENSE: [POOLED],
    SPARSE: [("Transformer", "SpladePooling"), ("MLMTransformer", "SpladePooling")],
    LATE: [
        ("Transformer", "Dense", "MultiVectorMask", "Normalize"),
        ("Transformer", "Dense", "Normalize", "MultiVectorMask"),
        ("Transformer", "Dense", "Normalize"),
    ],
}
_PYLATE = ("Transformer", "Dense")  # which masks and normalizes by itself
RERANKER = "CrossEncoder"
_OF_A_RERANKER = ("Transformer",)
CLASSES = {DENSE: "SentenceTransformer", SPARSE: "SparseEncoder", LATE: "MultiVectorEncoder"}
_KINDS = {name: kind for kind, name in CLASSES.items()} | {"ColBERT": LATE}
MODES = {"mean": "mean", "max": "max", "cls": "cls", "lasttoken": "last"}
_SIMILARITIES = {DENSE: ("cosine", "dot", "euclidean"), LATE: ("maxsim",)}
_SIMILARITIES[SPARSE] = _SIMILARITIES[DENSE]
LENGTH_NAMES = ("query_length", "document_length")
_STATES = "token_embeddings"
# The task and the output of the Transformer module.
_TASKS = {
    **dict.fromkeys((DENSE, LATE), ("feature-extraction", _STATES)),
    SPARSE: ("fill-mask", _STATES),
    RERANKER: ("sequence-classification", "scores"),
}
# Settings that change the tokens of a text.
_CHANGES = ("query_expansion", "processing_kwargs", "processor_kwargs", "tokenizer_args")
INPUTS = {DENSE: "sentence_embedding", LATE: _STATES}  # of Dense and Normalize
_SKIPPED = "for tokens that do not count"
PROMPTS = ("prompts", "default_prompt_name")
TRUNCATED = "truncate_dim"  # the first numbers of a vector that are kept
ACTIVATION = "activation_fn"  # of a reranker's output


class Modules(NamedTuple):
    """What the modules of a folder do, and the files of those that have arrays."""

    embedding: Embedding
    files: list[Path]
    scores: bool = False  # whether the vectors are scores of pairs
    dimensions: int = 0  # the first numbers that are kept of a vector; 0: all


class _NotComputed(ValueError):
    """Says what of a folder is not computed here."""


def makes_vectors(folder: Path) -> bool:
    """Whether vectors of texts are made of an encoder's output, by what a folder says."""
    modules, settings = _described_modules(folder)
    return len(modules) > 1 and settings.get("model_type") != RERANKER


def _described_modules(folder: Path) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """The modules of a folder, and its settings, which it has only with modules."""
    modules = read_optional(folder / MODULES_FILE, json_files.MODULES) or []
    settings = read_optional(folder / SETTINGS_FILE, json_files.SENTENCE_TRANSFORMERS) or {}
    return modules, settings if modules else {}


def read_kept(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """What a folder says to sentence-transformers alone (`Pretrained.kept`)."""
    _, settings = _described_modules(folder)
    # Where the activation is: of version 6, of 4 and 5, and of those before.
    places = settings, config.get("sentence_transformers") or {}
    activations = [place[ACTIVATION] for place in places if place.get(ACTIVATION)]
    activation = (*activations, config.get("sbert_ce_default_activation_function"))[0]
    return {ACTIVATION: activation} | {
        name: settings[name] for name in PROMPTS if settings.get(name) is not None
    }


def read_modules(
    folder: Path, origin: str, tokenizer: Tokenizer, spec: EncoderSpec
) -> Modules | None:
    """Reads what follows the encoder in a folder; None if no vectors of texts are made of it."""
    modules, settings = _described_modules(folder)
    hint = f"bertjax does not compute it; without {MODULES_FILE}, the encoder is read alone"
    with input_error_at(origin, _NotComputed, hint):
        if settings.get("model_type") == RERANKER:
            _check_no_prompt(settings)
            if modules[1:]:
                return _modules(folder, modules, settings, tokenizer, spec)
            names = [_class_name(module["type"]) for module in modules]
            _check_sequence(names, [None], [_OF_A_RERANKER])
            _model_settings(folder, RERANKER, tokenizer)
            return None
        return _modules(folder, modules, settings, tokenizer, spec) if modules[1:] else None


def _check_no_prompt(settings: Mapping[str, Any]) -> None:
    default = settings.get("default_prompt_name")
    if prompt := (settings.get("prompts") or {}).get(default or ""):
        raise _NotComputed(f"the prompt {prompt!r} before the texts of a reranker")


def _modules(
    folder: Path,
    modules: list[dict[str, str]],
    settings: Mapping[str, Any],
    tokenizer: Tokenizer,
    spec: EncoderSpec,
) -> Modules:
    names = [_class_name(module["type"]) for module in modules]
    places = [inside(folder, module["path"], folder / MODULES_FILE) for module in modules[1:]]
    configs = [read_optional(place / MODULE_CONFIG, json_files.SENTENCE_MODULE) for place in places]
    kind = _KINDS.get(settings.get("model_type") or "", DENSE)
    if any(module["type"].startswith("pylate.") for module in modules):
        kind = LATE
    elif kind == DENSE and "SpladePooling" in names:
        kind = SPARSE
    pylate = kind == LATE and settings.get("model_type") != CLASSES[LATE]
    after = tuple(takewhile(lambda name: name in MODULE_NAMES.values(), names[2:]))
    sequences = [POOLED + after] if kind == DENSE else _SEQUENCES[kind] + [_PYLATE] * pylate
    _check_sequence(names, configs, sequences)
    scores = settings.get("model_type") == RERANKER
    may_be_cut = kind == DENSE and not scores
    refused = ["max_active_dims", *([] if may_be_cut else [TRUNCATED])]
    _check_settings(settings, dict.fromkeys(refused), f"in {SETTINGS_FILE}")
    found = list(zip(names[1:], configs, strict=True))
    for name, config in found:
        if config is None and name != "Normalize":  # which had no file
            raise InputError(f"{folder}: no {MODULE_CONFIG} of the module {name}: download it, too")
    model = _model_settings(folder, kind, tokenizer)
    if pylate:
        _check_pylate(settings)
        model = {**model, **{name: settings.get(name) for name in LENGTH_NAMES}}
    fields: dict[str, Any] = {**prompts_of(settings), **_fields_of_modules(found, kind, scores)}
    lengths = _lengths(model, spec.max_position_embeddings)
    fields |= {"similarity": _similarity(settings, kind), **lengths}
    embedding = Embedding(kind=kind, **fields)
    after_encoder = zip(names[1:], places, strict=True)
    files = [place / MODULE_WEIGHTS for name, place in after_encoder if name in WITH_ARRAYS]
    width = embedding.dimensions(spec.hidden_size)
    cut = settings.get(TRUNCATED) or width
    return Modules(embedding, files, scores, dimensions=cut if cut < width else 0)


def module_arrays(embedding: Embedding, width: int) -> list[dict[str, tuple[str, tuple[int, ...]]]]:
    """The arrays of each module that has some: path here -> name and shape in PyTorch.

    `width` is that of the encoder.
    """
    modules = modules_of(embedding)
    before = widths(modules, width)
    found = []
    for number, module in enumerate(modules):
        path = PROJECTION if embedding.kind == LATE else f"{MODULES}/{name_of(number)}"
        shapes: dict[str, tuple[int, ...]] = {"kernel": (module.width, before[number])}
        arrays = {
            f"{path}/{leaf}": (torch_name, shapes.get(leaf, (before[number + 1],)))
            for leaf, torch_name in _ARRAYS.get(module.kind, {}).items()
            if leaf != "bias" or module.bias
        }
        found += [arrays] * bool(arrays)
    return found


def modules_of(embedding: Embedding) -> tuple[VectorModule, ...]:
    """The modules after the pooling, or after the tokens of late interaction."""
    projection = VectorModule(width=embedding.width, bias=False)
    return (projection,) if embedding.kind == LATE else embedding.modules


def _class_name(type_: str) -> str:
    """The class of a module; with its module, if it is not of a library known here."""
    known = type_.startswith(("sentence_transformers.", "pylate."))
    return type_.rpartition(".")[2] if known else type_


def _check_sequence(
    names: list[str], configs: list[dict[str, Any] | None], sequences: list[tuple[str, ...]]
) -> None:
    if tuple(names) in sequences:
        return
    same = [os.path.commonprefix([names, list(sequence)]) for sequence in sequences]
    longest = max(same, key=len)
    place = len(longest)
    if place < len(names):
        raise _NotComputed(_described(names[place], configs[place - 1] if place else None))
    (missing, *_) = (each[place] for each in sequences if list(each[:place]) == longest)
    raise _NotComputed(f"no {missing} module after {names[-1]}")


def _described(name: str, config: dict[str, Any] | None) -> str:
    config = config or {}
    if name != "Dense":
        return f"a module {name} in {MODULES_FILE}"
    activation = (config.get("activation_function") or "Tanh").rpartition(".")[2].lower()
    sizes = f"{config.get('in_features')} -> {config.get('out_features')}"
    bias = "" if config.get("bias", True) else ", without bias"
    residual = " and a residual" * bool(config.get("use_residual"))
    return f"a Dense module {sizes} with {activation}{residual}{bias}"


def _model_settings(folder: Path, kind: str, tokenizer: Tokenizer) -> dict[str, Any]:
    """The settings of the Transformer module; without "max_seq_length", it is the tokenizer's."""
    paths = [folder / name for name in _MODEL_FILES if (folder / name).exists()]
    model = (read_optional(paths[0], json_files.SENTENCE_MODEL) if paths else None) or {}
    names = ("transformer_task", "module_output_name")
    expected = {**dict.fromkeys(_CHANGES), **dict(zip(names, _TASKS[kind], strict=True))}
    where = f"in {paths[0].name}" if paths else ""
    _check_settings(model, expected, where)
    if model.get("do_lower_case") and tokenizer.cased:
        raise _NotComputed(f"do_lower_case {where}, over a tokenizer that keeps case")
    if not model.get("max_seq_length"):
        named = read_optional(folder / TOKENIZER_FILE, json_files.TOKENIZER_CONFIG) or {}
        model["max_seq_length"] = named.get("model_max_length")
    return model


def _check_pylate(settings: Mapping[str, Any]) -> None:
    prefixes = ("query_prefix", "document_prefix")
    _check_settings(settings, dict.fromkeys(prefixes), "before each text")
    if settings.get("do_query_expansion") is not False:
        raise _NotComputed("do_query_expansion, queries that are filled up with [MASK]")
    _check_settings(settings, {"skiplist_words": None}, _SKIPPED)
    if settings.get("skiplist_words") is None:
        raise _NotComputed("PyLate's skiplist_words, punctuation that does not count")


def _check_settings(settings: Mapping[str, Any], expected: Mapping[str, Any], which: str) -> None:
    """Refuses settings that have values, and not the wanted ones."""
    for name, value in expected.items():
        if (setting := settings.get(name) or value) != value:
            raise _NotComputed(f"{name}={setting!r} {which}")


def _similarity(settings: Mapping[str, Any], kind: str) -> str:
    name = settings.get("similarity_fn_name") or ""
    if name not in ("", *_SIMILARITIES[kind]):
        raise _NotComputed(f"similarity_fn_name={name!r} in {SETTINGS_FILE}")
    usual = Embedding(kind=kind).compared_by
    return "" if name == usual else name


def prompts_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """The prompts by the names that sentence-transformers looks for, or else the default."""
    prompts = settings.get("prompts") or {}
    default = prompts.get(settings.get("default_prompt_name") or "")
    # Version 6 takes "" where "document" is absent, and never looks for "passage".
    names = {"query_prompt": ("query",), "passage_prompt": ("document", "passage", "corpus")}
    found = {
        field: next((prompts[each] for each in each_of if each in prompts), default)
        for field, each_of in names.items()
    }
    return {field: prompt or "" for field, prompt in found.items()}


def _lengths(model: Mapping[str, Any], longest: int) -> dict[str, int]:
    both = [model.get(name) or model["max_seq_length"] or longest for name in LENGTH_NAMES]
    if min(both) < 1:
        raise _NotComputed(f"texts of at most {min(both)} tokens")
    query, passage = (0 if length >= longest else length for length in both)
    return {"query_length": query, "passage_length": passage}


def _fields_of_modules(
    found: Sequence[tuple[str, dict[str, Any] | None]], kind: str, scores: bool
) -> dict[str, Any]:
    """The fields that a kind has of its own, from the names of the modules and their settings.

    `scores`: the last module gives the scores of a reranker.
    """
    configs = {name: config or {} for name, config in found}
    if kind == SPARSE:
        expected = {"pooling_strategy": "max", "activation_function": "relu"}
        _check_settings(configs["SpladePooling"], expected, "in a SpladePooling module")
        return {}
    for number, (name, config) in enumerate(found, start=1):
        if name in MODULE_NAMES.values():
            expected = dict.fromkeys(("module_input_name", "module_output_name"), INPUTS[kind])
            if scores and number == len(found):
                expected["module_output_name"] = "scores"
            _check_settings(config or {}, expected, f"in a {name} module")
    if kind == DENSE:
        after = [_after_pooling(name, config or {}) for name, config in found[1:]]
        if scores and not after:
            raise _NotComputed("no Dense module after Pooling")
        if scores and (after[-1].kind, after[-1].activation) != (PRODUCT, "identity"):
            raise _NotComputed(f"{_described(*found[-1])} at the end of a reranker")
        normalize = after[-1:] == [VectorModule(kind=NORMALIZE)]
        modules = tuple(after[: len(after) - normalize])
        return {**_pooling(configs["Pooling"]), "modules": modules, "normalize": normalize}
    skipped = {"skiplist_words": None, "keep_only_token_ids": None}
    _check_settings(configs.get("MultiVectorMask", {}), skipped, _SKIPPED)
    dense = configs["Dense"]
    linear = (dense.get("activation_function") or "").endswith(".Identity")
    width = dense.get("out_features") or 0
    if dense.get("bias", True) or dense.get("use_residual") or not linear or width < 1:
        raise _NotComputed(_described("Dense", dense))
    return {"width": width}


def _after_pooling(name: str, config: Mapping[str, Any]) -> VectorModule:
    kind = {name: kind for kind, name in MODULE_NAMES.items()}[name]
    if kind != PRODUCT:
        return VectorModule(kind=kind)
    path = config.get("activation_function") or f"{OF_TORCH}Tanh"
    activation = ACTIVATIONS.get(path.rpartition(".")[2]) if path.startswith("torch.nn.") else None
    width = config.get("out_features") or 0
    if activation is None or width < 1 or config.get("use_residual"):
        raise _NotComputed(_described(name, dict(config)))
    return VectorModule(width=width, bias=config.get("bias", True), activation=activation)


def _pooling(config: Mapping[str, Any]) -> dict[str, Any]:
    modes = config.get("pooling_mode") or [m for key, m in POOLING_KEYS.items() if config.get(key)]
    modes = [modes] if isinstance(modes, str) else modes or ["mean"]
    if len(modes) > 1 or modes[0] not in MODES:
        raise _NotComputed(f"a Pooling module of {' and '.join(modes)}")
    return {
        "pooling": MODES[modes[0]],
        "count_prompt": config.get("include_prompt") is not False,
    }
