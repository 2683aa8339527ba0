"""The same function as Hugging Face's BertForPreTraining: logits, losses and gradients."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from bertjax.losses import pretraining_sums
from bertjax.model.heads import BertForPreTraining

pytestmark = pytest.mark.peers


def _from_transformers(state: dict[str, np.ndarray], spec) -> dict[str, np.ndarray]:
    """Our parameters, by path, from arrays by the names of transformers' modules."""
    width, heads = spec.hidden_size, (spec.num_attention_heads, spec.head_width)
    ours = {}

    def dense(path, name):
        ours[f"{path}/kernel"] = state[f"{name}.weight"].T
        ours[f"{path}/bias"] = state[f"{name}.bias"]

    def norm(path, name):
        ours[f"{path}/scale"] = state[f"{name}.weight"]
        ours[f"{path}/bias"] = state[f"{name}.bias"]

    for kind, name in (("token", "word"), ("position", "position"), ("segment", "token_type")):
        ours[f"bert/embeddings/{kind}"] = state[f"bert.embeddings.{name}_embeddings.weight"]
    norm("bert/embeddings/norm", "bert.embeddings.LayerNorm")
    for i in range(spec.num_hidden_layers):
        to, of = f"bert/encoder/layer_{i}", f"bert.encoder.layer.{i}"
        names = [f"{of}.attention.self.{name}" for name in ("query", "key", "value")]
        kernels = [state[f"{name}.weight"].T.reshape(width, *heads) for name in names]
        ours[f"{to}/attention/qkv/kernel"] = np.stack(kernels, 1)
        ours[f"{to}/attention/qkv/bias"] = np.stack(
            [state[f"{name}.bias"].reshape(heads) for name in names]
        )
        dense(f"{to}/attention/output", f"{of}.attention.output.dense")
        kernel = ours[f"{to}/attention/output/kernel"]
        ours[f"{to}/attention/output/kernel"] = kernel.reshape(*heads, width)
        norm(f"{to}/attention_norm", f"{of}.attention.output.LayerNorm")
        dense(f"{to}/intermediate", f"{of}.intermediate.dense")
        dense(f"{to}/output", f"{of}.output.dense")
        norm(f"{to}/output_norm", f"{of}.output.LayerNorm")
    dense("pooler/dense", "bert.pooler.dense")
    dense("masked_lm/transform", "cls.predictions.transform.dense")
    norm("masked_lm/norm", "cls.predictions.transform.LayerNorm")
    ours["masked_lm/bias"] = state["cls.predictions.bias"]
    dense("next_sentence_head", "cls.seq_relationship")
    return ours


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

    # The peer takes labels at every position, ours at the gathered ones.
    batch = make_batch(rows=13, length=length, predicted=min(4, length), seed=length)
    labels = np.full((13, length), -100)
    rows, places = np.nonzero(batch["masked_lm_weights"])
    labels[rows, batch["masked_lm_positions"][rows, places]] = batch["masked_lm_ids"][rows, places]
    assert (labels >= 0).sum() == len(rows)
    out = peer(
        input_ids=torch.tensor(batch["input_ids"]).long(),
        attention_mask=torch.tensor(batch["input_mask"]),
        token_type_ids=torch.tensor(batch["segment_ids"]).long(),
        labels=torch.tensor(labels),
        next_sentence_label=torch.tensor(batch["next_sentence_labels"]).long(),
    )
    out.loss.backward()

    state = {name: p.detach().numpy() for name, p in peer.named_parameters()}
    grads = {name: p.grad.numpy() for name, p in peer.named_parameters()}
    params = unflatten_dict(_from_transformers(state, spec), sep="/")
    model = BertForPreTraining(spec)

    def loss(params):
        inputs = (batch[name] for name in ("input_ids", "input_mask", "segment_ids"))
        everywhere = model.apply({"params": params}, *inputs, None, deterministic=True)
        places = batch["masked_lm_positions"][..., None]
        masked = jnp.take_along_axis(everywhere["masked_lm"], places, axis=1)
        sums = pretraining_sums(everywhere | {"masked_lm": masked}, batch)
        loss = sum(sums[name][0] / sums[name][1] for name in ("mlm_loss", "nsp_loss"))
        return loss, everywhere

    (value, logits), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    np.testing.assert_allclose(
        logits["masked_lm"], out.prediction_logits.detach(), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(
        logits["next_sentence"], out.seq_relationship_logits.detach(), rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(value, out.loss.item(), rtol=1e-5)
    gradient, expected = flatten_dict(gradient, sep="/"), _from_transformers(grads, spec)
    assert gradient.keys() == expected.keys()
    for name, leaf in expected.items():
        np.testing.assert_allclose(gradient[name], leaf, rtol=1e-3, atol=2e-5, err_msg=name)


def test_every_parameter_has_its_peer(spec, make_batch):
    """The map between names is one to one: as many numbers on both sides."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.hidden_size,
        num_hidden_layers=spec.num_hidden_layers,
        num_attention_heads=spec.num_attention_heads,
        intermediate_size=spec.intermediate_size,
        max_position_embeddings=spec.max_position_embeddings,
    )
    peer = transformers.BertForPreTraining(config)
    state = {name: p.detach().numpy() for name, p in peer.named_parameters()}
    mapped = _from_transformers(state, spec)
    assert sum(leaf.size for leaf in mapped.values()) == sum(p.size for p in state.values())
