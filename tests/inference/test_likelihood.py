"""Log-probabilities of sentences: each as one computes it by hand, from one sentence alone."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy.special import log_softmax

from bertjax.base.errors import InputError
from bertjax.inference.likelihood import log_likelihoods
from bertjax.inference.scored_rows import MASKINGS
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.models.encoders import head_types
from tests.helpers.closeness import rounding
from tests.helpers.slow_cases import others_slow
from tests.helpers.small_models import MODERNBERT, SPEC, random_model

# Of 1 to 11 pieces; one word has three, and one is unknown.
TEXTS = [
    *("the cat runs , house ##s", "Dogs", "a house runsing blue !", "cat", "zebra of 7 dogs ."),
    *("The cat runs, house ##s.", "blue blue blue blue blue blue dogs runs a"),
]
PADDED = dataclasses.replace(SPEC, vocab_size=SPEC.vocab_size + 6)
CAUSAL = dataclasses.replace(PADDED, causal=True)


def own_logits(model):
    """A function from a sequence's ids to the model's logits [13, V], a sequence at a time."""
    module, longest = model.model(head_types.MASKED_LM), SPEC.max_position_embeddings

    @jax.jit
    def of_inputs(inputs):
        return module.apply({"params": model.params}, inputs, deterministic=True)["masked_lm"][0]

    def logits(ids):
        inputs = {"input_ids": ids, "input_mask": np.ones_like(ids), "token_type_ids": 0 * ids}
        padding = [(0, longest - len(ids))]
        return of_inputs({name: np.pad(array, padding)[None] for name, array in inputs.items()})

    return logits


def reference_logits(model, folder, name):
    """The same by transformers."""
    import torch
    import transformers

    write_hugging_face(model, folder)
    peer = getattr(transformers, name).from_pretrained(folder).eval()

    def logits(ids):
        with torch.no_grad():
            return peer(torch.tensor(ids)[None].long()).logits[0].numpy()

    return logits


def by_hand(model, text, masking, logits):
    """The score of a text, a token at a time."""
    tokenizer = model.tokenizer
    (pieces,) = tokenizer.encode([text])
    ids = np.array([tokenizer.cls_id, *pieces, tokenizer.sep_id])
    score = 0.0
    for place in range(1, len(ids) - 1):
        seen, row = ids.copy(), place
        if masking == "left to right":
            seen, row = ids[:place], place - 1
        else:
            end = place + 1
            while masking == "word" and tokenizer.tokens[ids[end]].startswith("##"):
                end += 1
            seen[place:end] = tokenizer.mask_id
        real = np.asarray(logits(seen)[row], np.float64)[: tokenizer.vocabulary_size]
        score += log_softmax(real)[ids[place]]
    return score


@pytest.mark.parametrize("masking", MASKINGS)
def test_pseudo_log_likelihoods(make_pretrained, masking):
    """The model has more rows than the vocabulary has pieces."""
    model = make_pretrained("BertForPreTraining", PADDED)
    found = log_likelihoods(model, TEXTS, masking)
    expected = [by_hand(model, text, masking, own_logits(model)) for text in TEXTS]
    np.testing.assert_allclose(found, expected, rounding(1))
    # Only a text with a word of several pieces has another score.
    several = ["##" in "".join(map(model.tokenizer.tokens.__getitem__, ids))
               for ids in model.tokenizer.encode(TEXTS)]  # fmt: skip
    assert 0 < sum(several) < len(TEXTS)
    assert (np.abs(found - log_likelihoods(model, TEXTS)) > 1e-3).tolist() == [
        masking == "word" and each for each in several
    ]


def test_left_to_right(make_pretrained):
    model = make_pretrained("BertLMHeadModel", CAUSAL)
    found = log_likelihoods(model, TEXTS)
    expected = [by_hand(model, text, "left to right", own_logits(model)) for text in TEXTS]
    np.testing.assert_allclose(found, expected, rounding(1))


@pytest.mark.slow
def test_another_family(vocabulary):
    model = random_model(vocabulary, head_types.MASKED_LM, MODERNBERT)
    expected = [by_hand(model, text, "word", own_logits(model)) for text in TEXTS[:3]]
    np.testing.assert_allclose(log_likelihoods(model, TEXTS[:3], "word"), expected, rounding(1))


@pytest.mark.peers
@pytest.mark.parametrize(
    "name, spec, masking",
    [
        ("BertForMaskedLM", SPEC, "token"),
        ("BertForMaskedLM", SPEC, "word"),
        ("BertLMHeadModel", dataclasses.replace(SPEC, causal=True), "left to right"),
    ],
)
def test_transformers_agrees(make_pretrained, tmp_path, name, spec, masking):
    model = make_pretrained(name, spec)
    logits = reference_logits(model, tmp_path, name)
    found = log_likelihoods(model, TEXTS, "word" if masking == "word" else "token")
    expected = [by_hand(model, text, masking, logits) for text in TEXTS]
    np.testing.assert_allclose(found, expected, rounding(1))


@pytest.mark.devices(8)
@pytest.mark.parametrize(
    "name, spec",
    others_slow(
        [("BertForMaskedLM", SPEC), ("BertLMHeadModel", CAUSAL)], ("BertForMaskedLM", SPEC)
    ),
)
def test_neither_order_nor_batches_matter(make_pretrained, name, spec):
    model = make_pretrained(name, spec)
    found = log_likelihoods(model, TEXTS)
    order = np.random.default_rng(0).permutation(len(TEXTS))
    again = log_likelihoods(model, [TEXTS[n] for n in order], batch_tokens=29)
    np.testing.assert_allclose(again, found[order], rounding(1))


def test_texts_with_equal_tokens_are_computed_once(make_pretrained, capsys):
    """The upper case is lost, and every unknown word is the same token."""
    model = make_pretrained("BertForMaskedLM")
    texts = ["the cat", "a zebra runs", "The CAT", "the cat .", "A lion runs", "the  cat"]
    found = log_likelihoods(model, texts)
    assert found[0] == found[2] == found[5] and found[1] == found[4]
    assert len({*found.tolist()}) == 3
    # Each of 2, 4 and 3 tokens has a row, with [CLS] and [SEP].
    assert f"/{2 * 4 + 4 * 6 + 3 * 5}" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "texts, masking, message",
    [
        (["cat", "cat " * 12], "token", "text 1: 12 tokens, and the model takes 11: shorten it"),
        (["\u200b", "cat"], "token", "text 0: '.*' has no token"),
        (["cat"], "words", "--masking=words: must be one of token, word"),
    ],
)
def test_bad_input(make_pretrained, texts, masking, message):
    with pytest.raises(InputError, match=message):
        log_likelihoods(make_pretrained("BertForMaskedLM"), texts, masking)


def test_the_longest_text(make_pretrained):
    found = log_likelihoods(make_pretrained("BertForMaskedLM"), ["cat " * 11])
    assert found.shape == (1,) and found < 0


def test_models_that_cannot_score(make_pretrained):
    with pytest.raises(InputError, match="reads left to right, and nothing is masked for it"):
        log_likelihoods(make_pretrained("BertLMHeadModel", CAUSAL), ["cat"], "word")
    for name in ("BertForSequenceClassification", "BertModel", "BertForQuestionAnswering"):
        with pytest.raises(InputError, match=f"{name} weights without masked_lm"):
            log_likelihoods(make_pretrained(name), ["cat"])


def test_a_discriminator(vocabulary):
    model = random_model(vocabulary, head_types.REPLACED_TOKENS, MODERNBERT)
    with pytest.raises(InputError, match="without masked_lm.*: take the generator next to it"):
        log_likelihoods(model, ["cat"])


def test_weights_that_are_not_finite(make_pretrained):
    model = make_pretrained("BertForMaskedLM")
    model.params["masked_lm"]["bias"][3] = np.nan
    with pytest.raises(InputError, match="a BertForMaskedLM: gives probabilities that are not"):
        log_likelihoods(model, ["cat"])
