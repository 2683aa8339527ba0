"""The layout of packed documents: several in a row, each of which sees only itself."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from bertjax.base.fields import DOCUMENTS, INPUT, Field
from bertjax.corpus.store import TokenStore
from bertjax.examples.layout import LaidOut, ragged_arange
from bertjax.examples.packing import SPECIALS, RowPacker
from bertjax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class PackedLayout:
    """[CLS] text [SEP] [CLS] text [SEP] ... [PAD]...: documents, or pieces of long documents."""

    fields: ClassVar[Mapping[str, Field]] = INPUT | DOCUMENTS
    has_short_rows: ClassVar[bool] = False

    def open(self, store, tokenizer, *, length, draws, short_probability) -> "PackedRows":
        """See `Layout`."""
        del short_probability  # 0
        packer = RowPacker(store, length=length, draws=draws)
        return PackedRows(store, tokenizer, length, packer)


@dataclasses.dataclass(frozen=True)
class PackedRows:
    """The rows of a `PackedLayout` over a store."""

    store: TokenStore
    tokenizer: Tokenizer
    length: int
    packer: RowPacker

    def __call__(self, index: np.ndarray) -> LaidOut:
        """The rows of examples `index`, int64 [R]."""
        pieces, shape = self.packer.pieces(index), (len(index), self.length)
        ids = np.full(shape, self.tokenizer.pad_id, np.int32)
        documents = np.zeros(shape, np.int32)
        begin = pieces.row * self.length + pieces.column
        end = begin + pieces.length + 1
        flat = ids.reshape(-1)
        flat[begin] = self.tokenizer.cls_id
        flat[ragged_arange(begin + 1, pieces.length)] = self.store.read_spans(
            pieces.start, pieces.length
        )
        flat[end] = self.tokenizer.sep_id

        documents.reshape(-1)[begin] = 1
        np.cumsum(documents, axis=1, out=documents)
        lengths = np.bincount(pieces.row, pieces.length + SPECIALS).astype(np.int64)
        inside = np.arange(self.length) < lengths[:, None]
        arrays = {
            "input_ids": ids,
            "input_mask": inside.astype(np.int32),
            "token_type_ids": np.zeros(shape, np.int32),
            "documents": documents * inside,
        }
        return LaidOut(arrays, lengths)


PACKED_DOCUMENTS = PackedLayout()
