"""Transformer-XL: its sizes, and what is not read. Its function: test_numpy_reference.py."""

from math import prod

import pytest

from bertjax.base.errors import InputError
from bertjax.interop import hugging_face
from bertjax.interop.names import arrays_of
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.encoders.xlnet.spec import TransformerXlSpec


@pytest.mark.parametrize("size, millions", [("12l", 41), ("24l", 277)])
def test_those_of_enwik8_have_as_many_parameters_as_the_papers(size, millions):
    """Table 2 of arXiv 1901.02860; enwik8 has 204 characters."""
    spec = TransformerXlSpec.named(size, vocab_size=204)
    arrays = arrays_of(spec, head_types.CAUSAL_LM, 0)
    assert round(sum(prod(shape) for shape, _ in arrays.values()) / 1e6) == millions


def test_the_published_one_is_refused():
    with pytest.raises(InputError, match="no Transformer-XL: its published weights have an adapt"):
        hugging_face.spec_of({"d_model": 1024}, ENCODERS["transfo-xl"], "test")


def test_it_reads_left_to_right_only():
    with pytest.raises(ValueError, match="transfo-xl reads left to right only: set config"):
        TransformerXlSpec(causal=False)
