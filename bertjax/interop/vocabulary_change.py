"""Gives weights another vocabulary.

The rows of a piece, in the embeddings and in the decoder, are the means of the rows of the old
pieces that stand for it (`bertjax.text.correspondence`): for a piece that both vocabularies have,
this is its own row. A piece that no old one stands for gets the mean of all pieces.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bertjax.base.errors import InputError
from bertjax.interop.named_tokens import first_of
from bertjax.interop.pretrained import Pretrained
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.encoders.spec import TransformerSpec
from bertjax.models.encoders.storage import tables_of_pieces
from bertjax.text.correspondence import old_pieces
from bertjax.text.tokenizer import OF_WORDS, Tokenizer


def with_vocabulary(pretrained: Pretrained, tokenizer: Tokenizer) -> Pretrained:
    """The same model with the pieces of another tokenizer.

    Rows of the old embeddings that no piece had are left out.

    Raises:
      InputError: the encoder counts positions from the id of the padding, which is another one; or
        a vocabulary is of words, or a BPE of words as GPT's.
    """
    spec = pretrained.spec
    if {pretrained.tokenizer.kind, tokenizer.kind} & set(OF_WORDS):
        raise InputError(
            f"{pretrained.origin}: a vocabulary of words, or a BPE of words as GPT's, has no "
            "pieces that correspond to another vocabulary's: prepare the corpus with --vocabulary "
            "set to that of the weights"
        )
    if isinstance(spec, TransformerSpec) and spec.positions == "counted":
        if spec.pad_token_id != tokenizer.pad_id:
            raise InputError(
                f"{pretrained.origin}: its positions begin after the id of the padding, "
                f"{spec.pad_token_id}, which is {tokenizer.pad_id} in the other vocabulary: extend "
                "its own (--vocabulary, --extend_vocabulary)"
            )
    pieces = old_pieces(pretrained.tokenizer, tokenizer)
    ordinary = np.flatnonzero(pretrained.tokenizer.ordinary)
    changed = with_rows(pretrained, tokenizer, lambda rows: _means(rows, pieces, ordinary))
    lengths = [min(len(each), 2) for each in pieces]
    copied, means, others = (lengths.count(length) for length in (1, 2, 0))
    return dataclasses.replace(
        changed,
        rows=f"{len(pieces):,} pieces instead of {pretrained.tokenizer.vocabulary_size:,}: rows of "
        f"{copied:,} are copies, of {means:,} the means of their old pieces, of {others:,} the "
        "mean of all",
    )


def with_rows(
    pretrained: Pretrained, tokenizer: Tokenizer, change: Callable[[np.ndarray], np.ndarray]
) -> Pretrained:
    """The same model with another tokenizer.

    `change` takes an array with a row for each old piece, or more, and gives one with a row for
    each new piece.
    """
    return dataclasses.replace(
        pretrained,
        spec=dataclasses.replace(pretrained.spec, vocab_size=tokenizer.vocabulary_size),
        params=_changed(pretrained.params, pretrained.spec, change),
        tokenizer=tokenizer,
    )


def with_added_rows(
    params: Mapping[str, Any], spec: EncoderSpec, tokenizer: Tokenizer
) -> tuple[dict[str, Any], str]:
    """Parameters with rows for the added tokens that have none, and what says so; "" for none."""
    lacking = tokenizer.tokens[spec.vocab_size :]
    if not lacking or not set(lacking) <= set(tokenizer.added):
        return dict(params), ""
    pieces = [[number] for number in range(spec.vocab_size)] + [[]] * len(lacking)
    ordinary = np.flatnonzero(tokenizer.ordinary[: spec.vocab_size])
    return _changed(params, spec, lambda rows: _means(rows, pieces, ordinary)), (
        f"{len(lacking)} added tokens have no rows in the weights ({first_of(lacking)}): they get "
        "the mean of all"
    )


def _changed(
    params: Mapping[str, Any], spec: EncoderSpec, change: Callable[[np.ndarray], np.ndarray]
) -> dict[str, Any]:
    flat = flatten_dict(dict(params), sep="/")
    tables = [path for path in tables_of_pieces(spec) if path in flat]
    return unflatten_dict(flat | {path: change(flat[path]) for path in tables}, sep="/")


def _means(rows: np.ndarray, pieces: Sequence[Sequence[int]], ordinary: np.ndarray) -> np.ndarray:
    """The mean of the rows of each piece's old ids; without any, that of the ordinary pieces."""
    found = np.empty((len(pieces), *rows.shape[1:]), rows.dtype)
    of_all = rows[ordinary].mean(axis=0)
    for number, ids in enumerate(pieces):
        found[number] = rows[list(ids)].mean(axis=0) if ids else of_all
    return found
