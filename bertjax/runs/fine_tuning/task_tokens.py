"""The tokens around the texts of a task, for models that have none (GPT, 2018, section 3.3).

A text becomes _start_ text _classify_, and a pair _start_ A _delimiter_ B _classify_; a classifier
reads the last token. The names are those of openai/finetune-transformer-lm (train.py).
"""

import dataclasses
import json

import numpy as np

from bertjax.interop.pretrained import Pretrained
from bertjax.interop.vocabulary_change import with_rows
from bertjax.models.encoders.computation import canonical
from bertjax.text.template import Template
from bertjax.text.tokenizer import LIBRARY_KINDS, Tokenizer

START, DELIMITER, EXTRACT = "_start_", "_delimiter_", "_classify_"
_NAMES = (START, DELIMITER, EXTRACT)


def with_task_tokens(pretrained: Pretrained) -> Pretrained:
    """The same model with these tokens; their random embeddings are always the same.

    A model that puts special tokens around texts stays as it is.
    """
    tokenizer = pretrained.tokenizer
    if tokenizer.template.specials(pair=True) or tokenizer.kind not in LIBRARY_KINDS:
        return pretrained
    rng, deviation = np.random.default_rng(0), pretrained.spec.initializer_range

    def with_fresh(rows: np.ndarray) -> np.ndarray:
        rows = rows[: tokenizer.vocabulary_size]  # a table may have more
        shape = (len(_NAMES), *rows.shape[1:])
        new = rng.normal(0, deviation, shape) if rows.ndim > 1 else np.zeros(shape)
        return np.concatenate([rows, new.astype(rows.dtype)])

    changed = with_rows(pretrained, _extended(tokenizer, pretrained.origin), with_fresh)
    return dataclasses.replace(changed, spec=canonical(changed.spec))


def _extended(tokenizer: Tokenizer, origin: str) -> Tokenizer:
    content, size = tokenizer.description(), tokenizer.vocabulary_size
    settings = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    content["added_tokens"] += [
        {"id": size + number, "content": name, "special": True} | settings
        for number, name in enumerate(_NAMES)
    ]
    return tokenizer.with_vocabulary(
        json.dumps(content, ensure_ascii=False).encode(),
        origin,
        special_tokens=tokenizer.names | {"cls": EXTRACT, "sep": DELIMITER},
        template=Template((size,), (size + 1,), (size + 2,), second_type=0),
    )
