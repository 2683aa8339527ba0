"""What each head attends to: next to transformers, and by its properties."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.inference.features.attention_maps import attention_maps
from bertjax.interop.hugging_face import write_hugging_face
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import make_encoder
from tests.helpers.closeness import assert_close
from tests.helpers.small_models import MODERNBERT, SPEC, family_model, random_model

TEXT = "the cat of a house runs."


def test_each_layer_and_head_shares_itself_out(make_pretrained):
    pretrained = make_pretrained()
    tokens, maps = attention_maps(pretrained, "The dogs [MASK]!", most=13)
    assert tokens == ["[CLS]", "the", "dog", "##s", "[MASK]", "!", "[SEP]"]
    assert maps.shape == (SPEC.num_hidden_layers, SPEC.num_attention_heads, 7, 7)
    assert_close(maps.sum(-1), np.ones(maps.shape[:-1]))
    assert maps.min() > 0 and len(np.unique(maps.round(6))) > 200


def test_what_is_not_seen_has_no_share(make_pretrained, vocabulary):
    pretrained = make_pretrained()
    causal = dataclasses.replace(pretrained, spec=dataclasses.replace(pretrained.spec, causal=True))
    _, maps = attention_maps(causal, TEXT, most=13)
    size = maps.shape[-1]
    assert (maps[..., ~np.tri(size, dtype=bool)] == 0).all()
    assert (maps[..., np.tri(size, dtype=bool)] > 0).all()
    local = random_model(vocabulary, head_types.MASKED_LM, MODERNBERT)
    _, maps = attention_maps(local, f"{TEXT} {TEXT}", most=64)
    far = abs(np.subtract.outer(*2 * [np.arange(maps.shape[-1])])) > 3
    seen_far = [(layer[:, far] > 0).all() for layer in maps]
    assert seen_far == [True, False, False, True, False]
    assert (maps[1][:, far] == 0).all()


def test_more_layers_than_ten_are_in_their_order(make_pretrained, vocabulary):
    spec = dataclasses.replace(MODERNBERT, num_hidden_layers=12)
    model = random_model(vocabulary, head_types.MASKED_LM, spec)
    _, maps = attention_maps(model, TEXT + TEXT, most=64)
    far = abs(np.subtract.outer(*2 * [np.arange(maps.shape[-1])])) > 3
    seen_far = [bool((layer[:, far] > 0).any()) for layer in maps]
    assert seen_far == [layer % 3 == 0 for layer in range(12)]


def test_nothing_is_recorded_where_nobody_asks(make_pretrained):
    pretrained = make_pretrained()
    encoder = make_encoder(pretrained.spec)
    batch = {name: np.ones((2, 5), np.int32) for name in ("input_ids", "input_mask")}
    batch["token_type_ids"] = np.zeros((2, 5), np.int32)
    init = partial(encoder.init, deterministic=True)
    assert jax.eval_shape(init, jax.random.key(0), batch).keys() == {"params"}
    call = partial(encoder.apply, deterministic=True)
    params = {"params": pretrained.params["bert"]}
    assert jax.eval_shape(call, params, batch).shape == (2, 5, SPEC.hidden_size)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["bert", "modernbert", "deberta-v2"])
def test_they_are_transformers_s(make_pretrained, vocabulary, tmp_path, name):
    import torch
    import transformers

    if name == "bert":
        pretrained = make_pretrained("BertForMaskedLM")
    else:
        pretrained = family_model(vocabulary, name, head_types.MASKED_LM)
    write_hugging_face(pretrained, tmp_path)
    reference = transformers.AutoModel.from_pretrained(tmp_path, attn_implementation="eager").eval()
    tokens, maps = attention_maps(pretrained, TEXT, most=13)
    ids = torch.tensor([[pretrained.tokenizer.readable.index(token) for token in tokens]])
    with torch.no_grad():
        wanted = reference(input_ids=ids, output_attentions=True).attentions
    wanted = np.concatenate([each.numpy() for each in wanted])
    assert_close(maps, wanted, 1000)  # scores of about 10


def test_a_text_that_is_too_long(make_pretrained):
    with pytest.raises(
        InputError, match="'the the.*: 12 tokens, and the model takes 11: shorten it"
    ):
        attention_maps(make_pretrained(), "the " * 10, most=11)
    with pytest.raises(InputError, match="14 tokens, and the model takes 13: shorten it"):
        attention_maps(make_pretrained(), "the " * 12, most=64)
