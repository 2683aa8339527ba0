"""The same function as Hugging Face's BertForPreTraining: logits, losses and gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bertjax.base.fields import TEXT
from bertjax.interop import names
from bertjax.interop.published.registry import array_names
from bertjax.models.encoders import head_types
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.objectives.masked_lm import MaskedLMNextSentence
from tests.helpers.closeness import assert_close
from tests.helpers.sums import sums_of

pytestmark = pytest.mark.peers


def _from_transformers(state: dict[str, np.ndarray], spec) -> dict:
    """Makes our parameters from arrays with the names of transformers' modules."""
    parts = ("bert", "pooler", "masked_lm", "next_sentence_head")
    return names.to_jax(state, array_names(parts, spec, head_types.PRE_TRAINING, 0), "transformers")


@pytest.mark.parametrize(
    "hidden_act, length", [("gelu", 1), ("gelu", 7), ("gelu", 13), ("gelu_tanh", 13)]
)
def test_logits_losses_and_gradients(spec, make_batch, hidden_act, length):
    import torch
    import transformers

    spec = dataclasses.replace(spec, hidden_act=hidden_act)
    torch.manual_seed(1)
    peer = transformers.BertForPreTraining(
        transformers.BertConfig(
            vocab_size=spec.vocab_size,
            hidden_size=spec.hidden_size,
            num_hidden_layers=spec.num_hidden_layers,
            num_attention_heads=spec.num_attention_heads,
            intermediate_size=spec.intermediate_size,
            max_position_embeddings=spec.max_position_embeddings,
            hidden_act={"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}[hidden_act],
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )
    )
    with torch.no_grad():
        for parameter in peer.parameters():  # biases and LayerNorm random, too
            parameter += 0.1 * torch.randn_like(parameter)

    # The peer takes labels at every position, our model at the gathered ones.
    batch = make_batch(rows=13, length=length, predicted=min(4, length), seed=length)
    labels = np.full((13, length), -100)
    rows, places = np.nonzero(batch["masked_lm_weights"])
    labels[rows, batch["masked_lm_positions"][rows, places]] = batch["masked_lm_ids"][rows, places]
    assert (labels >= 0).sum() == len(rows)
    out = peer(
        input_ids=torch.tensor(batch["input_ids"]).long(),
        attention_mask=torch.tensor(batch["input_mask"]),
        token_type_ids=torch.tensor(batch["token_type_ids"]).long(),
        labels=torch.tensor(labels),
        next_sentence_label=torch.tensor(batch["next_sentence_labels"]).long(),
    )
    out.loss.backward()

    state = {name: p.detach().numpy() for name, p in peer.named_parameters()}
    grads = {name: p.grad.numpy() for name, p in peer.named_parameters()}
    params = _from_transformers(state, spec)
    model = PreTrainingModel(spec)

    def loss(params):
        inputs = {name: batch[name] for name in TEXT}
        everywhere = model.apply({"params": params}, inputs, deterministic=True)
        places = batch["masked_lm_positions"][..., None]
        masked = jnp.take_along_axis(everywhere["masked_lm"], places, axis=1)
        sums = sums_of(MaskedLMNextSentence(), everywhere | {"masked_lm": masked}, batch)
        loss = sum(sums[name][0] / sums[name][1] for name in ("mlm_loss", "nsp_loss"))
        return loss, everywhere

    (value, logits), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    assert_close(logits["masked_lm"], out.prediction_logits.detach())
    assert_close(logits["next_sentence"], out.seq_relationship_logits.detach())
    assert_close(value, out.loss.item())
    expected = flatten_dict(_from_transformers(grads, spec), sep="/")
    gradient = flatten_dict(gradient, sep="/")
    assert_close(gradient, expected, 1000, share=0.01)
