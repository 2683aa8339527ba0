"""A permutation LM as a masked LM: it does not see the tokens that it predicts."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

from bertjax.base.errors import InputError
from bertjax.data.examples.corruption import HiddenTokens, MaskedTokens
from bertjax.data.examples.draws import Draws
from bertjax.data.examples.layout import LaidOut
from bertjax.data.examples.masking import MaskingRule
from bertjax.inference.blanks import fill
from bertjax.inference.likelihood import log_likelihoods
from bertjax.models.encoders import head_types
from bertjax.text.tokenizer import Tokenizer
from tests.helpers.closeness import assert_close
from tests.helpers.same_as_transformers import peer_of
from tests.helpers.small_models import PIECES, random_model, small_spec

# Of several pieces a word, and of another length; the last has one blank.
BLANKS = ["the [MASK] runs of [MASK]s , houseing !", "[MASK] dogs", "a cat [MASK]"]
TEXTS = ["the cat runs , house", "Dogs", "a house runsing blue !"]


@pytest.fixture(scope="module")
def model(vocabulary):
    return random_model(vocabulary, head_types.PERMUTATION_LM, small_spec("xlnet"))


def _hidden_logits(peer, ids, hidden):
    """transformers' logits [N, V] of N places, from the tokens at all other places."""
    import torch

    hidden = np.asarray(hidden)
    unseen = np.zeros((1, len(ids), len(ids)), np.float32)
    unseen[:, :, hidden] = 1
    with torch.inference_mode():
        return peer(
            torch.tensor(ids)[None].long(),
            perm_mask=torch.tensor(unseen),
            target_mapping=torch.tensor(np.eye(len(ids), dtype=np.float32)[hidden][None]),
        ).logits[0]


@pytest.fixture(scope="module")
def peer(model, tmp_path_factory):
    return peer_of(model, tmp_path_factory.mktemp("xlnet"))


@pytest.mark.peers
def test_blanks_are_filled_as_by_transformers(model, peer):
    tokenizer = model.tokenizer
    for text, places in zip(BLANKS, fill(model, BLANKS, 3), strict=True):
        (pieces,) = tokenizer.encode([text], special=True)
        ids = np.array([tokenizer.cls_id, *pieces, tokenizer.sep_id])
        hidden = np.flatnonzero(ids == tokenizer.mask_id)
        expected = _hidden_logits(peer, ids, hidden).softmax(-1).numpy()
        assert len(places) == len(hidden) == text.count("[MASK]")
        for guesses, probabilities in zip(places, expected, strict=True):
            best = np.argsort(-probabilities)[:3]
            assert [guess.token for guess in guesses] == [tokenizer.readable[i] for i in best]
            shown = [guess.probability for guess in guesses]
            assert_close(np.array(shown), probabilities[best], terms=1000)  # logits of about 10


@pytest.mark.peers
@pytest.mark.parametrize("masking", ["token", "word"])
def test_sentences_are_scored_as_by_transformers(masking, model, peer):
    tokenizer, expected = model.tokenizer, []
    for pieces in tokenizer.encode(TEXTS):
        ids = np.array([tokenizer.cls_id, *pieces, tokenizer.sep_id])
        score = 0.0
        for place in range(1, len(ids) - 1):
            end = place + 1
            while masking == "word" and tokenizer.tokens[ids[end]].startswith("##"):
                end += 1
            seen = ids.copy()
            seen[place:end] = tokenizer.mask_id
            logits = _hidden_logits(peer, seen, np.arange(place, end))[0].numpy()
            score += log_softmax(logits.astype(np.float64))[ids[place]]
        expected.append(score)
    assert_close(log_likelihoods(model, TEXTS, masking), expected)


def test_nothing_behind_a_blank_is_seen(model):
    """Another token at a hidden place changes nothing; at a seen place, it changes the logits."""
    module, rng = model.model(head_types.MASKED_LM), np.random.default_rng(4)
    ids, order = rng.integers(5, len(PIECES), (1, 9)), np.zeros((1, 9), np.int32)
    order[0, [2, 6]] = 1
    batch = {"input_ids": ids, "input_mask": np.ones_like(ids), "token_type_ids": 0 * ids}
    batch |= {"order": order, "masked_lm_positions": np.array([[2, 6]])}
    logits = jax.jit(lambda b: module.apply({"params": model.params}, b, deterministic=True))

    def changed(place: int) -> float:
        other = ids.copy()
        other[0, place] = 5 + (ids[0, place] - 4) % (len(PIECES) - 5)
        found = logits({**batch, "input_ids": other}), logits(batch)
        return float(np.abs(found[0]["masked_lm"] - found[1]["masked_lm"]).max())

    assert changed(2) == changed(6) == 0
    assert min(changed(0), changed(3), changed(8)) > 1e-3


def test_it_does_not_read_left_to_right(model):
    with pytest.raises(InputError, match="has not learned to read left to right"):
        model.model(head_types.CAUSAL_LM)
    masked = dataclasses.replace(model, head_type=head_types.MASKED_LM)
    assert type(masked.model(head_types.MASKED_LM)) is not type(model.model(head_types.MASKED_LM))


def test_what_is_predicted_is_hidden(vocabulary):
    """In the text by which models of all objectives are compared."""
    tokenizer, rule = Tokenizer.open(vocabulary), MaskingRule(rate=0.3)
    ids = np.random.default_rng(1).integers(5, len(PIECES), (7, 11)).astype(np.int32)
    index, found = np.arange(7), []
    for corruption in (MaskedTokens(rule), HiddenTokens(rule)):
        rows = LaidOut({"input_ids": ids.copy()}, np.full(7, 11))
        found.append(corruption.open(tokenizer)(rows, Draws(5, "test"), index))
    order = found[1].pop("order")
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])
    for row in range(7):
        used = found[0]["masked_lm_weights"][row] > 0
        wanted = set(found[0]["masked_lm_positions"][row][used].tolist())
        assert set(np.flatnonzero(order[row]).tolist()) == wanted != set()
    assert set(np.unique(order)) == {0, 1}
