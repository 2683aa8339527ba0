"""The JSON files of a model's folder, read only where each field is of the type that it must have.

Whoever reads such a file here may take what is in its table for granted. Null stands for a field
that is absent, and fields that no table names are free.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertjax import limits
from bertjax.encoders.contract import EncoderFamily
from bertjax.errors import InputError

# A kind is a type of JSON's texts and numbers (a float may be written as a whole number); [kind]
# is a list of any length, (kind, kind) one of this length; {str: kind} is an object with any
# fields; and one of the following.


@dataclasses.dataclass(frozen=True)
class Object:
    """An object with some fields, of which those in `needed` may not be absent."""

    fields: Mapping[str, Any]
    needed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Either:
    """Any of some kinds."""

    kinds: tuple[Any, ...]


# ---------------------------------------------------------------------------- the tables

TASK_KEY = "bertjax_task"  # in config.json: `bertjax.interop.pretrained.Pretrained.task`
SPECIAL_ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
EXTRA_ROLES = ("additional_special_tokens", "extra_special_tokens")

_TOKEN = Either((str, Object({"content": str}, needed=("content",))))
_NAMED_TOKENS = dict.fromkeys(SPECIAL_ROLES, _TOKEN) | dict.fromkeys(
    EXTRA_ROLES, Either(([_TOKEN], {str: _TOKEN}))
)

# config.json of transformers: what every model has there.
MODEL_CONFIG = Object(
    dict.fromkeys(("model_type", "hidden_act", "problem_type"), str)
    | {"architectures": [str], "id2label": {str: Either((str, int))}}
    | {
        TASK_KEY: Object(
            dict.fromkeys(("name", "trial"), str)
            | dict.fromkeys(("pairs", "document_context", "unanswerable"), bool)
            | dict.fromkeys(("max_length", "max_query_length", "stride", "choices"), int)
            | dict.fromkeys(("max_answer_length", "n_best"), int)
            | {"null_threshold": float}
        )
    }
)


def config_of_family(family: EncoderFamily) -> Object:
    """The config.json of a family; and bert_config.json of google-research/bert."""
    return Object({**MODEL_CONFIG.fields, **family.hugging_face.fields})


# model.safetensors.index.json, and modules.json of sentence-transformers.
WEIGHTS_INDEX = Object({"weight_map": {str: str}})
MODULES = [Object({"path": str, "type": str}, needed=("path", "type"))]
# tokenizer.json of the library `tokenizers`.
LIBRARY = Object(
    {
        "model": Object(
            dict.fromkeys(("type", "unk_token", "continuing_subword_prefix"), str)
            | {"max_input_chars_per_word": int}
            | {"vocab": Either(({str: int}, [(str, float)]))}  # the second of Unigram: with scores
        ),
        "normalizer": Object(
            {"type": str, "clean_text": bool, "lowercase": bool}
            | {"strip_accents": bool, "handle_chinese_chars": bool}
        ),
        "pre_tokenizer": Object({"type": str}),
        "added_tokens": [_TOKEN],
    }
)
TOKENIZER_CONFIG = Object(
    dict.fromkeys(("do_lower_case", "strip_accents", "tokenize_chinese_chars"), bool)
    | {"tokenizer_class": str, "added_tokens_decoder": {str: _TOKEN}}
    | _NAMED_TOKENS
)
SPECIAL_TOKENS_MAP = Object(_NAMED_TOKENS)
ADDED_TOKENS = {str: int}


# ---------------------------------------------------------------------------- the reader


def read_json(path: Path, kind: Any) -> Any | None:
    """What is in a file; None without the file.

    Args:
      kind: one of the tables above.

    Raises:
      InputError: not JSON, or a field of another type or with a number that cannot be meant.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is the first, too
        raise InputError(f"{path}: damaged: {error}: download it again") from error
    if problem := _problem(value, kind, ""):
        raise InputError(f"{path}: {problem}: correct it, or download it again")
    return value


def _problem(value: Any, kind: Any, place: str) -> str:
    """What is wrong with a value, and where; "" if nothing is.

    Args:
      place: of the value in the file, as "model.vocab.the"; "": the whole.
    """
    kinds = kind.kinds if isinstance(kind, Either) else (kind,)
    kind = next((each for each in kinds if _is_of(value, each)), None)
    if kind is None:
        wanted = " or ".join(map(_called, kinds))
        if not place:
            return f"must hold {wanted}, not {_shown(value)}"
        return f"{place} is {_shown(value)}, must be {wanted}"
    if isinstance(kind, type):
        is_number = kind in (int, float)
        problem = limits.problem_with(place, value) if is_number else ""
        return problem and f"{place} is {limits.shown(value)}, {problem}"
    if isinstance(kind, Object):
        absent = [name for name in kind.needed if value.get(name) is None]
        if absent:
            return f"{place or 'it'} has no {absent[0]!r}"
    problems = (_problem(*part) for part in _parts(value, kind, place))
    return next(filter(None, problems), "")


def _parts(value: Any, kind: Any, place: str) -> Iterator[tuple[Any, Any, str]]:
    """What a list or an object consists of: value, kind and place of each."""
    inside = f"{place}." if place else ""
    if isinstance(kind, Object):
        for name, each in kind.fields.items():
            if value.get(name) is not None:
                yield value[name], each, inside + name
    elif isinstance(kind, dict):  # whose fields are not names of ours, such as a vocabulary's
        for name, each in value.items():
            yield each, kind[str], f"{place}[{name!r}]"
    else:
        kinds = kind if isinstance(kind, tuple) else kind * len(value)
        for number, (each, its_kind) in enumerate(zip(value, kinds, strict=True)):
            yield each, its_kind, f"{place}[{number}]"


def _is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind, but for what is in it."""
    if isinstance(kind, Object | dict):
        return isinstance(value, dict)
    if isinstance(kind, list):
        return isinstance(value, list)
    if isinstance(kind, tuple):
        return isinstance(value, list) and len(value) == len(kind)
    return type(value) is kind or (kind is float and type(value) is int)


def _called(kind: Any) -> str:
    """A kind in words."""
    if isinstance(kind, type):
        names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
        return names[kind]
    if isinstance(kind, tuple):
        return f"a list of {len(kind)}"
    return "a list" if isinstance(kind, list) else "an object"


def _shown(value: Any) -> str:
    """A value in a message: texts and numbers themselves."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return repr(value)[:80] if isinstance(value, str) else json.dumps(value)[:80]
