"""The JSON files of a model's folder, read only where each field is of the type that it must have.

A reader of such a file can rely on its table (`bertjax.base.json_kinds`).
Fields that no table names are free.
"""

from pathlib import Path
from typing import Any

from bertjax.base.errors import InputError
from bertjax.base.json_kinds import Either, OptionalFields, parse, problem_in
from bertjax.encoders.contract import EncoderFamily

TASK_KEY = "bertjax_task"  # in config.json: `bertjax.interop.pretrained.Pretrained.task`
SPECIAL_ROLES = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
EXTRA_ROLES = ("additional_special_tokens", "extra_special_tokens")

_TOKEN = Either((str, {"content": str}))
_NAMED_TOKENS = dict.fromkeys(SPECIAL_ROLES, _TOKEN) | dict.fromkeys(
    EXTRA_ROLES, Either(([_TOKEN], {str: _TOKEN}))
)

# config.json of transformers: what every model has there.
MODEL_CONFIG = OptionalFields(
    dict.fromkeys(("model_type", "problem_type"), str)
    | {"architectures": [str], "id2label": {str: Either((str, int))}}
    | {
        TASK_KEY: OptionalFields(
            dict.fromkeys(("name", "trial"), str)
            | dict.fromkeys(("pairs", "document_context", "unanswerable"), bool)
            | dict.fromkeys(("max_length", "max_query_length", "stride", "choices"), int)
            | dict.fromkeys(("max_answer_length", "n_best"), int)
            | {"null_threshold": float, "columns": {str: str}}
        )
    }
)


def config_of_family(family: EncoderFamily) -> OptionalFields:
    """The config.json of a family; and bert_config.json of google-research/bert."""
    return OptionalFields({**MODEL_CONFIG.fields, **family.hugging_face.fields})


# model.safetensors.index.json, and modules.json of sentence-transformers.
WEIGHTS_INDEX = OptionalFields({"weight_map": {str: str}})
MODULES = [{"path": str, "type": str}]
# tokenizer.json of the library `tokenizers`.
LIBRARY = OptionalFields(
    {
        "model": OptionalFields(
            dict.fromkeys(("type", "unk_token", "continuing_subword_prefix"), str)
            | {"max_input_chars_per_word": int}
            | {"vocab": Either(({str: int}, [(str, float)]))}  # the second of Unigram: with scores
        ),
        "normalizer": OptionalFields(
            {"type": str, "clean_text": bool, "lowercase": bool}
            | {"strip_accents": bool, "handle_chinese_chars": bool}
        ),
        "pre_tokenizer": OptionalFields({"type": str}),
        "added_tokens": [_TOKEN],
    }
)
TOKENIZER_CONFIG = OptionalFields(
    dict.fromkeys(("do_lower_case", "strip_accents", "tokenize_chinese_chars"), bool)
    | {"add_prefix_space": bool, "tokenizer_class": str, "added_tokens_decoder": {str: _TOKEN}}
    | _NAMED_TOKENS
)
SPECIAL_TOKENS_MAP = OptionalFields(_NAMED_TOKENS)
ADDED_TOKENS = {str: int}


def read_json(path: Path, kind: Any) -> Any | None:
    """Reads and checks a file; returns None without the file.

    Args:
      kind: one of the tables above.

    Raises:
      InputError: not JSON, or a field of another type or with a number that cannot be meant.
    """
    try:
        value = parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(f"{path}: damaged: {error}: download it again") from error
    check_json(value, kind, path)
    return value


def check_json(value: Any, kind: Any, path: Path) -> None:
    """Checks what a file contains.

    Raises:
      InputError: a field of another type, or with a number that cannot be meant.
    """
    if problem := problem_in(value, kind, limited=True):
        raise InputError(f"{path}: {problem}: correct it, or download it again")
