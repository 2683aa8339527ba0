"""Rows of weights in another vocabulary: copies, means, and the mean of all pieces."""

import dataclasses

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.interop import proof
from bertjax.interop.vocabulary_change import with_vocabulary
from bertjax.models.encoders.presets import RobertaSpec
from bertjax.models.encoders.storage import tables_of_pieces
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.tokenizer import Tokenizer
from tests.helpers.closeness import assert_close
from tests.helpers.small_models import PIECES, SPEC, small_model

# [MASK] and the words stand at other places than in PIECES.
NEW = [*SPECIAL_TOKENS[::-1], "houses", "the", "\u014b", "running", ",", "##ing", "dog", "a", "e"]


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "old.txt"
    path.write_text("\n".join(PIECES) + "\n")
    return path


@pytest.fixture
def pretrained(vocabulary):
    """A model with two rows of embeddings that belong to no piece."""
    spec = dataclasses.replace(SPEC, vocab_size=len(PIECES) + 2)
    return small_model(vocabulary, "BertForMaskedLM", spec)


def test_rows(pretrained, tmp_path):
    (tmp_path / "new.txt").write_text("\n".join(NEW) + "\n", "utf-8")
    changed = with_vocabulary(pretrained, Tokenizer.open(tmp_path / "new.txt"))
    assert changed.spec.vocab_size == len(NEW) == changed.tokenizer.vocabulary_size
    before, after = (flatten_dict(dict(each.params), sep="/") for each in (pretrained, changed))
    rows = set(tables_of_pieces(pretrained.spec)) & before.keys()
    assert rows == {"bert/embeddings/token", "masked_lm/bias"}
    for path, leaf in before.items():
        if path not in rows:
            assert after[path] is leaf
            continue
        found = dict(zip(NEW, after[path], strict=True))
        old = dict(zip(PIECES, leaf, strict=False))
        assert after[path].dtype == leaf.dtype
        for piece in (*SPECIAL_TOKENS, "the", ",", "##ing", "dog", "a"):
            np.testing.assert_array_equal(found[piece], old[piece])
        assert_close(found["houses"], (old["house"] + old["##s"]) / 2)
        of_all = np.mean([old[piece] for piece in PIECES[len(SPECIAL_TOKENS) :]], axis=0)
        assert_close(found["\u014b"], of_all)
        # "running" is unknown to the old vocabulary, which lacks "##n".
        np.testing.assert_array_equal(found["running"], found["\u014b"])
        np.testing.assert_array_equal(found["e"], found["\u014b"])
    assert "14 pieces instead of 20: rows of 10 are copies, of 1 the means" in changed.summary()


@pytest.mark.slow
def test_the_logits_of_a_shared_piece_are_the_same(pretrained, tmp_path):
    """Text of shared pieces has the same logits for these."""
    (tmp_path / "new.txt").write_text("\n".join(NEW) + "\n", "utf-8")
    changed = with_vocabulary(pretrained, Tokenizer.open(tmp_path / "new.txt"))
    shared = [piece for piece in NEW if piece in PIECES]
    logits = []
    for model in (pretrained, changed):
        ids = [model.tokenizer.tokens.index(piece) for piece in shared]
        inputs = {
            "input_ids": np.array([ids], np.int32),
            "input_mask": np.ones((1, len(ids)), np.int32),
            "token_type_ids": np.zeros((1, len(ids)), np.int32),
            "masked_positions": np.array([[1, 4, 6]], np.int32),
        }
        outputs = proof.outputs(model.model("masked_lm"), dict(model.params), inputs)
        logits.append(np.asarray(outputs["masked_lm"])[..., ids])
    assert_close(logits[1], logits[0])


def test_an_encoder_that_counts_from_the_padding(pretrained, tmp_path):
    (tmp_path / "new.txt").write_text("\n".join(NEW) + "\n", "utf-8")
    fields = dataclasses.asdict(pretrained.spec) | dict(pad_token_id=1)
    pretrained = dataclasses.replace(pretrained, spec=RobertaSpec(**fields))
    with pytest.raises(InputError, match="the id of the padding, 1, which is 4 in the other"):
        with_vocabulary(pretrained, Tokenizer.open(tmp_path / "new.txt"))
