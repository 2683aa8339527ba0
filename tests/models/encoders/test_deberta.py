"""DeBERTa-v2: other ways to compute it, what it refuses, and the folders of its authors."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from bertjax.base.errors import InputError
from bertjax.interop import hugging_face, transformers_check
from bertjax.interop.card import model_card
from bertjax.interop.names import to_hf
from bertjax.interop.proof import random_inputs
from bertjax.interop.published.registry import PUBLISHED
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.encoders.storage import from_canonical, to_canonical
from bertjax.models.heads.head_specs import HEAD_SPECS
from tests.helpers.closeness import assert_close
from tests.helpers.same_as_transformers import same_function
from tests.helpers.small_models import family_model, random_params, small_spec

SPEC = small_spec("deberta-v2")
BOTH = head_types.MASKED_LM, head_types.REPLACED_TOKENS
READ = functools.partial(hugging_face.spec_of, family=ENCODERS["deberta-v2"], origin="test")


@functools.cache
def _loss_and_gradients(spec):
    """Of packed documents, of which one is padding, with the same weights for all."""
    size = spec.conv_kernel_size
    params = random_params(
        head_types.REPLACED_TOKENS, dataclasses.replace(SPEC, conv_kernel_size=size)
    )
    rng, documents = np.random.default_rng(5), np.array([[1] * 9 + [2] * 4, [1] * 11 + [0] * 2])
    inputs = {"input_ids": rng.integers(0, 20, documents.shape), "segment_ids": documents}
    inputs["input_mask"] = (documents > 0).astype(np.int32)
    weights = rng.normal(size=documents.shape) * inputs["input_mask"]
    model = HEAD_SPECS[head_types.REPLACED_TOKENS].build(spec, 0)

    def loss(params):
        logits = model.apply({"params": params}, inputs, deterministic=True)["replaced"]
        return (logits * weights).sum()

    value, grads = jax.jit(jax.value_and_grad(loss))(from_canonical(params, spec))
    return value, to_canonical(grads, spec)


@pytest.mark.parametrize(
    "changes",
    [
        *(dict(conv_kernel_size=3, remat=remat) for remat in ("none", "attention", "layer")),
        dict(scan_layers=True),
        dict(scan_layers=True, remat="layer"),
        dict(attention="fused"),
    ],
    ids=str,
)
def test_another_way_to_compute_it(changes):
    size = changes.get("conv_kernel_size", 0)
    plain = dataclasses.replace(SPEC, attention_probs_dropout_prob=0.0, conv_kernel_size=size)
    value, grads = _loss_and_gradients(plain)
    other, others = _loss_and_gradients(dataclasses.replace(plain, **changes))
    assert_close(other, value, 1000)
    assert_close(others, grads, 1000, share=0.01)


def test_operations():
    """Of the products of contents and distances, those with the keys that a token sees count."""
    layer = 4 * 24**2 + 2 * 24 * 56 + 4 * 24 * 7.5
    expected = 6 * (2 * layer + 2 / 11 * (24**2 + 24 * 20))
    assert SPEC.flops_per_token(11, 2, 7.5) == pytest.approx(expected)
    convolved = dataclasses.replace(SPEC, conv_kernel_size=3).flops_per_token(11, 2, 7.5)
    assert convolved == pytest.approx(expected + 6 * 3 * 24**2)
    assert "by einsum at length 512" in SPEC.attention_by(512)


def _with_names_of_authors(arrays):
    """The arrays, with the names of the authors' decoder of masked tokens."""
    names = ("cls.predictions.transform.", "cls.predictions.")
    for old in names:
        arrays = {key.replace(old, "lm_predictions.lm_head."): x for key, x in arrays.items()}
    return arrays


def test_the_folders_of_its_authors(vocabulary):
    """They have both heads, in names of their own, and a table that their generator alone reads."""
    models = [family_model(vocabulary, "deberta-v2", kind) for kind in BOTH]
    arrays = {"deberta.embeddings.position_embeddings.weight": np.zeros((62, 24), np.float32)}
    for model in models:
        arrays |= _with_names_of_authors(to_hf(model.params, model.entries))
    for model, kind in zip(models, BOTH, strict=True):
        found = hugging_face.assemble(arrays, SPEC, kind, model.tokenizer, "test")
        jax.tree.map(np.testing.assert_array_equal, found.params[kind], model.params[kind])
        assert {*found.left_out.values()} == {"a constant"} and found.missing == ()


@pytest.mark.peers
def test_the_decoder_of_its_authors_in_transformers(vocabulary):
    import torch
    import transformers

    model = family_model(vocabulary, "deberta-v2", head_types.MASKED_LM)
    config = transformers.DebertaV2Config(**model.names.config.write(SPEC) | {"legacy": False})
    peer = transformers.DebertaV2ForMaskedLM(config).eval()
    arrays = _with_names_of_authors(to_hf(model.params, model.entries))
    peer.load_state_dict({key: torch.tensor(array) for key, array in arrays.items()})
    inputs = random_inputs(model)
    same_function(model, peer, inputs, transformers_check.inputs(inputs))


@pytest.mark.peers
def test_transformers_reads_the_encoder_of_a_discriminator(vocabulary, tmp_path):
    """As of the published ones; bertjax reads the head, too."""
    import transformers

    model = family_model(vocabulary, "deberta-v2", head_types.REPLACED_TOKENS)
    hugging_face.write_hugging_face(model, tmp_path)
    assert "import AutoTokenizer, AutoModel\n" in model_card(model, "a", {}, {})
    peer = transformers.AutoModel.from_pretrained(tmp_path).eval()
    encoder = {"deberta-v2": model.params["deberta-v2"]}
    model = dataclasses.replace(model, head_type=head_types.ENCODER, params=encoder)
    peer.save_pretrained(tmp_path)
    again = hugging_face.read_hugging_face(tmp_path, "hf:again")
    jax.tree.map(np.testing.assert_array_equal, again.params, encoder)


def test_what_is_computed_in_another_way_is_refused():
    write = PUBLISHED["deberta-v2"].config.write
    written = write(SPEC)
    assert (written["max_relative_positions"], written["pos_att_type"]) == (-1, ["p2c", "c2p"])
    assert READ(written) == SPEC
    assert READ(written | {"pos_att_type": "C2P | p2c"}) == SPEC
    far = dataclasses.replace(SPEC, max_relative_positions=99)
    assert (SPEC.farthest, far.farthest, READ(write(far))) == (62, 99, far)
    without = {key: value for key, value in written.items() if key != "conv_act"}
    assert READ(without) == SPEC
    tanh = dataclasses.replace(SPEC, conv_kernel_size=3, conv_act="tanh")
    assert READ(without | {"conv_kernel_size": 3}) == READ(write(tanh)) == tanh
    for changes, message in (
        ({"relative_attention": False}, "relative_attention=False: only True can be read"),
        ({"position_biased_input": True}, "position_biased_input=True: only False can be read"),
        ({"share_att_key": False}, "share_att_key=False: only True can be read"),
        ({"norm_rel_ebd": "none"}, "norm_rel_ebd='none': only 'layer_norm' can be read"),
        ({"pos_att_type": "c2p"}, r"pos_att_type='c2p': only \['p2c', 'c2p'\] can be read"),
        ({"conv_kernel_size": 4}, "conv_kernel_size=4: must be odd, or 0"),
        ({"conv_groups": 2}, "conv_groups=2: only 1 can be read"),
        ({"conv_act": "relu"}, "conv_act='relu': must be one of gelu, .*, swish, tanh"),
        ({"type_vocab_size": 2}, "type_vocab_size=2: only 0 can be read"),
        ({"position_buckets": -1}, "position_buckets=-1: must be at least 2"),
        ({"position_buckets": 7}, "position_buckets=7: must be even"),
        ({"embedding_size": 16}, "embedding_size=16: only that of hidden_size can be read"),
        ({"pooler_hidden_size": 16}, "pooler_hidden_size=16: only that of hidden_size can be"),
        ({"pooler_hidden_act": "tanh"}, "pooler_hidden_act='tanh': only 'gelu' can be read"),
        ({"attention_head_size": 4}, "attention_head_size=4: only hidden_size / num_attention"),
    ):
        with pytest.raises(InputError, match=message):
            READ(written | changes)
    absent = {key: value for key, value in written.items() if key != "share_att_key"}
    with pytest.raises(InputError, match="share_att_key=False: only True can be read"):
        READ(absent)
    with pytest.raises(ValueError, match="no DeBERTa-v2 with causal=True"):
        write(dataclasses.replace(SPEC, causal=True))
    for changes, message in (
        ({"causal": True}, "conv_kernel_size=3: left to right, a token would see those after"),
        ({"scan_layers": True}, "scan_layers=True: the layers of deberta-v2 are not alike"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(tanh, **changes)
