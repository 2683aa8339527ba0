"""The types of the JSON files in a model's folder, on which their readers rely.

A field that its type does not name may have any value.
"""

from pathlib import Path
from typing import Any, TypedDict

from bertjax.base.limits import Count, Few
from bertjax.base.validation import if_given, optional, parsed
from bertjax.interop.published.registry import PUBLISHED
from bertjax.models.encoders.contract import EncoderFamily
from bertjax.text.special_tokens import ROLES

TASK_KEY = "bertjax_task"  # in config.json: `bertjax.interop.pretrained.Pretrained.task`
EXTRA_ROLES = ("additional_special_tokens", "extra_special_tokens")


class _TokenObject(TypedDict):
    content: str


class _Module(TypedDict):
    path: str
    type: str


_TOKEN = str | _TokenObject
_NAMED_TOKENS = {
    **dict.fromkeys((f"{role}_token" for role in ROLES), _TOKEN),
    **dict.fromkeys(EXTRA_ROLES, list[_TOKEN] | dict[str, _TOKEN]),
}
_TASK = optional(
    **dict(name=str, trial=str, loss=str, pairs=bool, document_context=bool, unanswerable=bool),
    **dict(max_length=int, max_query_length=Count, stride=Count, choices=int),
    **dict(max_answer_length=Few, n_best=Few, null_threshold=float, columns=dict[str, str]),
    thresholds=dict[str, float],
)
# The fields of transformers' config.json for every model.
_OF_MODEL = dict(
    **dict(model_type=str, problem_type=str, architectures=list[str]),
    **{"id2label": dict[str, str | int], TASK_KEY: _TASK},
    # The activation of a reranker for sentence-transformers, in a new and in an old form.
    sentence_transformers=optional(activation_fn=str),
    sbert_ce_default_activation_function=str,
)
WEIGHTS_INDEX = optional(weight_map=dict[str, str])  # model.safetensors.index.json
# Of sentence-transformers: modules.json, config_sentence_transformers.json (also PyLate's), and the
# config.json of each module.
MODULES = list[_Module]
SENTENCE_TRANSFORMERS = optional(
    **dict(model_type=str, similarity_fn_name=str, default_prompt_name=str),
    prompts=dict[str, str | None],
    **dict(activation_fn=str, truncate_dim=Count, max_active_dims=int),
    **dict(query_length=int, document_length=int, query_prefix=str, document_prefix=str),
    **dict(do_query_expansion=bool, skiplist_words=list[str]),
)
SENTENCE_MODEL = optional(
    **dict(max_seq_length=int, do_lower_case=bool, query_length=int, document_length=int),
    **dict(transformer_task=str, module_output_name=str, query_expansion=dict),
    **dict(processing_kwargs=dict, processor_kwargs=dict, tokenizer_args=dict),
)
POOLING_KEYS = {  # of older versions -> the mode
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
SENTENCE_MODULE = optional(
    **dict(pooling_mode=str | list[str], include_prompt=bool),
    **dict.fromkeys(POOLING_KEYS, bool),
    **dict(pooling_strategy=str, activation_function=str),
    **dict(in_features=int, out_features=int, bias=bool, use_residual=bool),
    **dict(module_input_name=str, module_output_name=str, dimension=int),
    **dict(skiplist_words=list[str], keep_only_token_ids=list[int]),
)
# tokenizer.json of the library `tokenizers`.
LIBRARY = optional(
    model=optional(
        **dict(type=str, unk_token=str, continuing_subword_prefix=str),
        end_of_word_suffix=str,
        max_input_chars_per_word=int,
        vocab=dict[str, int] | list[tuple[str, float]],  # the second is Unigram's, with scores
    ),
    normalizer=optional(
        **dict(type=str, clean_text=bool, lowercase=bool),
        **dict(strip_accents=bool, handle_chinese_chars=bool),
        normalizers=list[dict],
    ),
    pre_tokenizer=optional(type=str),
    added_tokens=list[_TOKEN],
)
TOKENIZER_CONFIG = optional(
    **dict(do_lower_case=bool, strip_accents=bool, tokenize_chinese_chars=bool),
    **dict(add_prefix_space=bool, split_by_punct=bool, model_max_length=int | float),
    **dict(tokenizer_class=str, added_tokens_decoder=dict[str, _TOKEN]),
    **_NAMED_TOKENS,
)
SPECIAL_TOKENS_MAP = optional(**_NAMED_TOKENS)
PIECES = dict[str, int]  # added_tokens.json, vocab.json


def read_config(path: Path, family: EncoderFamily | None = None) -> dict[str, Any] | None:
    """Reads and checks a config.json, or a bert_config.json; returns None without the file.

    Without a `family`, only the fields of every model are checked.
    """
    of_model = {name: type_ | None for name, type_ in _OF_MODEL.items()}
    fields = PUBLISHED[family.name].config.types(family.spec) if family else {}
    return read_optional(path, if_given(**of_model, **fields), limited=True)


def read_optional(path: Path, type_: Any, *, limited: bool = False) -> Any | None:
    """Reads and checks a file of one of the types above; returns None without the file."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return parsed(data, type_, path, "correct it, or download it again", limited=limited)
