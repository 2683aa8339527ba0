"""Model folders as Hugging Face's transformers reads and writes them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
from flax.traverse_util import unflatten_dict
from safetensors.numpy import save

from bertjax.base.checks import check_in_folder, input_error_at
from bertjax.base.errors import InputError
from bertjax.base.files import inside, write_json
from bertjax.interop import json_files
from bertjax.interop.derived import as_scorer, as_vectors
from bertjax.interop.json_files import TASK_KEY, read_config, read_optional
from bertjax.interop.names import to_hf, to_jax
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.published.registry import PUBLISHED, array_names, names_of
from bertjax.interop.sentence_transformers import (
    ACTIVATION,
    IDENTITY,
    TOKENIZER_FILE,
    Modules,
    module_arrays,
    read_kept,
    read_modules,
)
from bertjax.interop.sentence_transformers_writing import write_modules
from bertjax.interop.tokenizer_files import read_tokenizer, write_tokenizer
from bertjax.interop.vocabulary_change import with_added_rows
from bertjax.models.encoders import head_types
from bertjax.models.encoders.contract import EncoderFamily, EncoderSpec
from bertjax.models.encoders.registry import ENCODERS, family_of
from bertjax.models.heads.embedding import head_type_of
from bertjax.text.tokenizer import Tokenizer

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = f"{WEIGHTS_FILE}.index.json"
_PICKLE = "pytorch_model.bin"

_FLOATS = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}


# ------------------------------------------------------------------------------- reading


def read_hugging_face(
    folder: Path, origin: str, arrays: Mapping[str, np.ndarray] | None = None
) -> Pretrained:
    """Reads config.json, the tokenizer, and model.safetensors (or its shards), but no pickles.

    `origin` is what the user calls the folder. `arrays` take the place of the folder's weights.
    """
    config = read_config(folder / CONFIG_FILE)
    if config is None:
        raise InputError(f"{origin}: no {CONFIG_FILE} in it: not the folder of a model")
    family = _family(config, origin)
    read_config(folder / CONFIG_FILE, family)
    spec = spec_of(config, family, origin)
    files = [] if arrays else _weight_files(folder, origin, config)
    tokenizer = read_tokenizer(folder)
    raw = dict(arrays or {})
    for file in files:
        raw |= read_arrays(file, family)
    modules = read_modules(folder, origin, tokenizer, spec)
    classes = _classes(config, origin)
    head_type = head_type_of(modules.embedding) if modules else _head_type(config, family, origin)
    if not has_model(spec, head_type):
        raise InputError(
            f"{origin}: {names_of(spec).classes[head_type]} that reads left to right (is_decoder): "
            "transformers predicts from [CLS], which then sees no other token: take another model"
        )
    model = assemble(raw, spec, head_type, tokenizer, origin, classes)
    params = dict(model.params)
    if modules:
        params |= _params_of_modules(modules, spec, family)
    embedding, dimensions = (modules.embedding, modules.dimensions) if modules else (None, 0)
    if modules and modules.scores:
        model = as_scorer(dataclasses.replace(model, params=params, embedding=embedding))
        params, embedding, head_type = dict(model.params), None, model.head_type
    task, kept = _task(config), read_kept(folder, config)
    if head_type == head_types.SEQUENCE_CLASSIFICATION:
        longest = modules.embedding.passage_length if modules else 0
        length = {"max_length": longest} if longest else {}
        task = _text_length(folder, spec.max_position_embeddings) | length | task
    return dataclasses.replace(
        model, params=params, task=task, embedding=embedding, dimensions=dimensions, kept=kept
    )


def _params_of_modules(
    modules: Modules, spec: EncoderSpec, family: EncoderFamily
) -> dict[str, Any]:
    found = {}
    described = module_arrays(modules.embedding, spec.hidden_size)
    for file, arrays in zip(modules.files, described, strict=True):
        check_in_folder(file, file.parent)
        stored = read_arrays(file, family)
        for path, (name, shape) in arrays.items():
            array = stored.get(name, np.zeros(()))
            if array.shape != shape:
                raise InputError(f"{file}: {name} is {array.shape}, where {shape} belongs")
            _check_finite(name, array, str(file))
            found[path] = np.ascontiguousarray(array.T)
    return unflatten_dict(found, sep="/")


def _family(config: Mapping[str, Any], origin: str) -> EncoderFamily:
    """The family of a config.json; old files of BERT do not name it."""
    name = config.get("model_type", "bert")
    if name not in ENCODERS:
        known = ", ".join(ENCODERS)
        raise InputError(
            f"{origin}: model_type={name!r} in {CONFIG_FILE}: only {known} can be read"
        )
    return ENCODERS[name]


def spec_of(
    config: Mapping[str, Any], family: EncoderFamily, origin: str, file: str = CONFIG_FILE
) -> EncoderSpec:
    """The spec in a config.json, or in Google's bert_config.json (`file`)."""
    with input_error_at(f"{origin}: {file}"):
        return family.spec(**PUBLISHED[family.name].config.read(config))


def _head_type(config: Mapping[str, Any], family: EncoderFamily, origin: str) -> str:
    classes = PUBLISHED[family.name].classes
    alone = classes[head_types.ENCODER]
    name = (config.get("architectures") or [alone])[0]
    for head_type, known in classes.items():
        if known == name:
            return head_type
    raise InputError(
        f"{origin}: architectures={name!r} in {CONFIG_FILE}: can be read are "
        f"{', '.join(classes.values())}. To take only the encoder, write {alone!r} there"
    )


def _classes(config: Mapping[str, Any], origin: str) -> tuple[str, ...]:
    labels = config.get("id2label") or {}
    if labels.keys() != set(map(str, range(len(labels)))):
        raise InputError(
            f"{origin}: id2label in {CONFIG_FILE} has {', '.join(labels)[:80]}: its {len(labels)} "
            f"classes must be numbered from 0 to {len(labels) - 1}"
        )
    return tuple(str(labels[key]) for key in sorted(labels, key=int))


def _task(config: Mapping[str, Any]) -> dict[str, Any]:
    """The task of a classifier: models of this package store it, others may have a problem_type."""
    problem = config.get("problem_type")
    return ({"problem_type": problem} if problem else {}) | (config.get(TASK_KEY) or {})


def _text_length(folder: Path, longest: int) -> dict[str, int]:
    """The length to which other libraries cut a classifier's texts, if it takes more."""
    named = read_optional(folder / TOKENIZER_FILE, json_files.TOKENIZER_CONFIG) or {}
    length = named.get("model_max_length") or longest
    return {"max_length": int(length)} if length < longest else {}


def _weight_files(folder: Path, origin: str, config: Mapping[str, Any]) -> list[Path]:
    if (folder / WEIGHTS_FILE).exists():
        return [folder / WEIGHTS_FILE]
    if (folder / INDEX_FILE).exists():
        index = read_optional(folder / INDEX_FILE, json_files.WEIGHTS_INDEX) or {}
        shards = sorted(set((index.get("weight_map") or {}).values()))
        files = [inside(folder, name, folder / INDEX_FILE) for name in shards]
        absent = [file.name for file in files if not file.exists()]
        if absent or not files:
            raise InputError(f"{origin}: {INDEX_FILE} names {' '.join(absent) or 'no shards'}, "
                             "which must lie next to it: download them")  # fmt: skip
        return files
    if list(folder.glob("pytorch_model*.bin")):
        name = (config.get("architectures") or ["AutoModel"])[0]
        raise InputError(
            f"{origin}: has its weights only as {_PICKLE}, a pickle, which can run any code "
            "and is never opened here. If you trust it, convert it where transformers is "
            f'installed: python -c "from transformers import {name} as M; '
            "M.from_pretrained('FOLDER').save_pretrained('NEW_FOLDER')\", and copy the "
            "tokenizer's files next to the result"
        )
    raise InputError(
        f"{origin}: no {WEIGHTS_FILE} in it. If the model has its weights only as {_PICKLE}: that "
        "is a pickle, never opened here; convert it with transformers' save_pretrained"
    )


def read_arrays(path: Path, family: EncoderFamily) -> dict[str, np.ndarray]:
    """The arrays of a file: floats as float32, which is exact; other constants as bytes."""
    with input_error_at(f"{path}: damaged", safetensors.SafetensorError):
        pairs = safetensors.deserialize(path.read_bytes())
    arrays = {}
    for name, content in pairs:
        dtype = _FLOATS.get(content["dtype"])
        if dtype is None:
            if not PUBLISHED[family.name].is_buffer(name):
                raise InputError(
                    f"{path}: {name} is of type {content['dtype']}: only weights in "
                    f"{', '.join(_FLOATS)} can be read"
                )
            dtype = np.uint8
        array = np.frombuffer(content["data"], dtype)
        if content["dtype"] in _FLOATS:
            array = array.reshape(content["shape"]).astype(np.float32)
        arrays[name] = array
    return arrays


def assemble(
    arrays: Mapping[str, np.ndarray],
    spec: EncoderSpec,
    head_type: str,
    tokenizer: Tokenizer,
    origin: str,
    classes: tuple[str, ...] = (),
) -> Pretrained:
    """Makes a model of arrays under any of Hugging Face's names; `left_out` names the unused ones.

    An array of the encoder must have a place of its own in it, and finite values.
    """
    family = family_of(spec)
    names = names_of(spec)
    found: dict[str, np.ndarray] = {}
    left_out: dict[str, str] = {}
    for name, array in arrays.items():
        canonical = names.one_spelling(name)
        if canonical in found:
            raise InputError(f"{origin}: two arrays for {canonical}: remove one of them")
        if names.is_buffer(name):
            left_out[name] = "a constant"
        elif canonical not in names.copies and part_of(canonical, family, head_type) is None:
            left_out[name] = f"not a part of {names.classes[head_type]}"
        else:
            _check_finite(name, array, origin)
            found[canonical] = array
    left_out |= _without_copies(found, names.copies, origin)
    if not any(part_of(name, family, head_type) == family.name for name in found):
        raise InputError(
            f"{origin}: no array of an encoder ({names.bare}embeddings..., embeddings...) among "
            f"its {len(arrays)}, which begin with {min(arrays, default='nothing')!r}"
        )
    owners = (part_of(name, family, head_type) for name in sorted(found))
    parts = dict.fromkeys(part for part in owners if part)
    width = len(classes)
    if "classifier" in parts:
        ((_, classifier, *_),) = names.rows("classifier", head_type)
        width = len(found.get(f"{classifier}.weight", classes))
    if head_type != head_types.MULTIPLE_CHOICE and len(classes) not in (0, width):
        raise InputError(
            f"{origin}: the classifier has {width} rows, and {CONFIG_FILE} names {len(classes)} "
            f"classes (id2label): are these of the same model?"
        )
    if len(classes) != width:
        classes = tuple(f"LABEL_{i}" for i in range(width))
    entries = array_names(parts, spec, head_type, len(classes))
    params = to_jax(found, entries, origin)
    # The table of a model may be padded to a multiple of 128 rows.
    if spec.vocab_size - tokenizer.vocabulary_size >= 128:
        raise InputError(
            f"{origin}: the vocabulary has {tokenizer.vocabulary_size} pieces, the model "
            f"{spec.vocab_size}: take the tokenizer it was trained with"
        )
    for name in found.keys() - {entry.hf_name for entry in entries}:
        raise InputError(
            f"{origin}: {name} has no place in a {names.classes[head_types.ENCODER]} of "
            f"{spec.num_hidden_layers} layers: the model would not compute the same without it"
        )
    params, rows = with_added_rows(params, spec, tokenizer)
    if rows:
        spec = dataclasses.replace(spec, vocab_size=tokenizer.vocabulary_size)
    return Pretrained(origin, head_type, spec, params, tokenizer, classes, left_out, rows=rows)


def part_of(name: str, family: EncoderFamily, head_type: str) -> str | None:
    """The part of a model that an array of transformers belongs to; None: no known part."""
    return PUBLISHED[family.name].owner(name, family.name, family.heads[head_type], head_type)


def _check_finite(name: str, array: np.ndarray, origin: str) -> None:
    wrong = np.flatnonzero(~np.isfinite(array))
    if len(wrong):
        place = [int(each) for each in np.unravel_index(wrong[0], array.shape)]
        raise InputError(
            f"{origin}: {name} has {len(wrong):,} of {array.size:,} values that are not finite "
            f"(the first, at {place}, is {array.flat[wrong[0]]}): it diverged in training, or the "
            "file is damaged: take other weights"
        )


def _without_copies(
    found: dict[str, np.ndarray], copies: Mapping[str, str], origin: str
) -> dict[str, str]:
    """Takes out the arrays that repeat others, such as a decoder that is tied to the embeddings."""
    left_out = {}
    for name, original in copies.items():
        if name not in found:
            continue
        copy = found.pop(name)
        if not np.array_equal(found.setdefault(original, copy), copy):
            raise InputError(
                f"{origin}: {name} differs from {original}: only a model in which they are one "
                "array (tied) can be read"
            )
        left_out[name] = f"{original} once more"
    return left_out


# ------------------------------------------------------------------------------- writing


def write_hugging_face(pretrained: Pretrained, folder: Path) -> None:
    """Writes what transformers' `from_pretrained` loads, into an empty folder.

    With vectors of texts, also what sentence-transformers loads. Such a BERT may have no pooler,
    which they do not need: then AutoModel makes a random one, and says so.
    """
    pretrained.model()  # raises if a part is missing
    scores = pretrained.scoring is not None
    if scores:
        pretrained = as_vectors(pretrained)
    if not has_class(pretrained):
        raise InputError(
            f"{pretrained.origin}: transformers has no such model as this {pretrained.class_name} "
            "(a BiLSTM, a CRF, an answer network, a class of a text read left to right, or another "
            "encoder than ELECTRA's trained as it): launch/finetune.py and launch/predict.py open "
            "it, and launch/convert.py exports an ELMo with --to=elmo:FOLDER, and others without a "
            "CRF and an answer network with --to=stablehlo:FOLDER"
        )
    arrays = to_hf(pretrained.params, pretrained.entries)
    if pretrained.head_type == head_types.ENCODER:  # saved without the prefix
        bare = pretrained.names.bare
        arrays = {name.removeprefix(bare): array for name, array in arrays.items()}
    # Not `save_file`, whose files only their owner may read.
    (folder / WEIGHTS_FILE).write_bytes(save(arrays, metadata={"format": "pt"}))
    write_settings(pretrained, folder, scores=scores)


def write_settings(pretrained: Pretrained, folder: Path, *, scores: bool = False) -> None:
    """Writes all of a model's folder but its weights; `scores`: its vectors are scores of pairs."""
    config = config_of(pretrained)
    longest, of_texts = pretrained.spec.max_position_embeddings, head_types.SEQUENCE_CLASSIFICATION
    cut = scores or pretrained.head_type == of_texts
    length = pretrained.task.get("max_length") if cut else None
    write_tokenizer(
        pretrained.tokenizer,
        folder,
        length or longest,
        token_types=pretrained.family.tells_texts_apart(pretrained.spec),
        pads_left=pretrained.names.pads_left,
    )
    write_json(folder / CONFIG_FILE, config)
    if pretrained.embedding:
        write_modules(pretrained, folder, scores=scores)


def has_class(pretrained: Pretrained) -> bool:
    """Whether transformers has a class for a model."""
    own = pretrained.bilstm or pretrained.scoring
    return not own and has_model(pretrained.spec, pretrained.head_type)


def has_model(spec: EncoderSpec, head_type: str) -> bool:
    """Whether transformers has a model of this kind that computes the same.

    For whole texts that are read left to right, most families have none: transformers predicts from
    [CLS], and `bertjax.models.heads.tasks` from the last token.
    """
    names = names_of(spec)
    from_cls = spec.causal and head_type in head_types.OF_WHOLE_TEXTS and not names.last_token
    return head_type in names.classes and not from_cls


def fields_of(spec: EncoderSpec, origin: str) -> dict[str, Any]:
    """The fields of config.json for a spec, which `spec_of` reads; InputError if there are none."""
    with input_error_at(origin):
        return names_of(spec).config.write(spec)


def config_of(pretrained: Pretrained) -> dict[str, Any]:
    """The config.json of a model."""
    tokenizer = pretrained.tokenizer
    roles = dict(tokenizer.roles)
    for role, other in (("bos", "cls"), ("eos", "sep")):
        if other in roles:
            roles.setdefault(role, roles[other])
    known = pretrained.names.config.roles
    ids = {f"{role}_token_id": number for role, number in roles.items() if role in known}
    config = {
        "architectures": [pretrained.class_name],
        "model_type": pretrained.family.name,
        "tie_word_embeddings": True,
        **fields_of(pretrained.spec, pretrained.origin),
        **ids,
        "dtype": "float32",
    }
    task = dict(pretrained.task)
    # CrossEncoder of sentence-transformers makes a number from 0 to 1 of one output by default.
    usual = IDENTITY if task.get("problem_type") == "regression" else None
    if activation := pretrained.kept.get(ACTIVATION, usual):
        config["sentence_transformers"] = {ACTIVATION: activation}
    if "problem_type" in task:
        config["problem_type"] = task.pop("problem_type")
    if task:
        config[TASK_KEY] = task
    if pretrained.classes:
        config["id2label"] = {str(i): name for i, name in enumerate(pretrained.classes)}
        config["label2id"] = {name: i for i, name in enumerate(pretrained.classes)}
    return config
