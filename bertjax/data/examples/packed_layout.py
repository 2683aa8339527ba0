"""The layout of packed documents: several in a row, each of which sees only itself."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from bertjax.base.fields import SEGMENT_IDS, TEXT, Field
from bertjax.data.corpus.store import TokenStore
from bertjax.data.examples.layout import LaidOut, RowSpec, ragged_arange
from bertjax.data.examples.packing import RowPacker
from bertjax.text.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class PackedLayout:
    """Sequences of one document, or a piece of a long one, each ([CLS] text [SEP]), and padding."""

    fields: ClassVar[Mapping[str, Field]] = TEXT | SEGMENT_IDS
    has_short_rows: ClassVar[bool] = False
    has_fixed_rows: ClassVar[bool] = False

    def open(self, store: TokenStore, spec: RowSpec) -> "PackedRows":
        specials = spec.tokenizer.template.specials(pair=False)
        packer = RowPacker(store, length=spec.length, specials=specials, draws=spec.draws)
        return PackedRows(store, spec.tokenizer, spec.length, packer)


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
        segment_ids, types = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        begin = pieces.row * self.length + pieces.column
        flat, template = ids.reshape(-1), self.tokenizer.template
        places = template.write(flat, begin, pieces.length)
        flat[ragged_arange(places.a, pieces.length)] = self.store.read_spans(
            pieces.start, pieces.length
        )
        types.reshape(-1)[places.end - 1] = template.last_type or 0

        segment_ids.reshape(-1)[begin] = 1
        np.cumsum(segment_ids, axis=1, out=segment_ids)
        lengths = np.bincount(pieces.row, places.end - begin).astype(np.int64)
        inside = np.arange(self.length) < lengths[:, None]
        arrays = {
            "input_ids": ids,
            "input_mask": inside.astype(np.int32),
            "token_type_ids": types,
            "segment_ids": segment_ids * inside,
        }
        return LaidOut(arrays, lengths)


PACKED_DOCUMENTS = PackedLayout()
