"""The contract between host and device: what one array of a batch looks like.

The host makes the arrays with numpy; the step takes them as a dict. Who makes an array says its
field: a layout or a corruption of `bertjax.examples`, or an objective of fine-tuning. Field names
are those of google-research/bert.
"""

from typing import NamedTuple


class Field(NamedTuple):
    """One array of a batch: a shape letter (see `bertjax.base.axes`) per dimension, and a dtype."""

    letters: str
    dtype: str


INPUT = {
    "input_ids": Field("BS", "int32"),
    "input_mask": Field("BS", "int32"),  # 1 on tokens, 0 on padding
    "token_type_ids": Field("BS", "int32"),  # 0 on [CLS] A [SEP], 1 on B [SEP]
}
# Rows of packed documents also have this: 1, 2, ... on the tokens of each, and 0 on padding.
DOCUMENTS = {"documents": Field("BS", "int32")}
