"""DeBERTa-v2: other ways to compute it, what it refuses, and the folders of its authors."""

import dataclasses
from functools import partial

import jax
import numpy as np
import pytest
from flax import linen as nn

from bertjax.base.errors import InputError
from bertjax.interop import hugging_face
from bertjax.interop.card import model_card
from bertjax.interop.names import to_hf
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.proof import outputs, random_inputs
from bertjax.interop.published.registry import PUBLISHED, array_names
from bertjax.models.encoders import head_types
from bertjax.models.encoders.presets import DebertaV2Spec
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.encoders.storage import from_canonical, to_canonical
from bertjax.models.heads.head_specs import HEAD_SPECS, text_inputs
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.training.model import zeros
from tests.helpers.closeness import assert_close
from tests.text.small_vocabularies import wordpiece

SIZES = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40)
SPEC = DebertaV2Spec(vocab_size=37, max_position_embeddings=32, position_buckets=8, **SIZES)
READ = partial(hugging_face.spec_of, family=ENCODERS["deberta-v2"], origin="test")


def _model(spec: DebertaV2Spec, head_type: str):
    return HEAD_SPECS[head_type].build(spec, 0)


def _params(spec: DebertaV2Spec, head_type: str):
    """Random numbers in every array, in canonical storage."""
    module, inputs = _model(spec, head_type), zeros(text_inputs(spec, B=1, S=5))
    init = partial(module.init, deterministic=True)
    shapes = nn.unbox(jax.eval_shape(init, jax.random.key(0), inputs)["params"])
    rng = np.random.default_rng(3)
    return jax.tree.map(lambda x: rng.normal(0.1, 0.3, x.shape).astype(np.float32), shapes)


@pytest.mark.parametrize(
    "changes",
    [
        *(dict(remat=remat) for remat in ("none", "attention", "layer")),
        dict(scan_layers=True),
        dict(scan_layers=True, remat="layer"),
        dict(attention="fused"),
    ],
    ids=str,
)
def test_another_way_to_compute_it(changes):
    """The outputs and all gradients of packed documents, of which one is padding."""
    plain = dataclasses.replace(SPEC, attention_probs_dropout_prob=0.0)
    rng, documents = np.random.default_rng(5), np.array([[1] * 9 + [2] * 4, [1] * 11 + [0] * 2])
    inputs = {"input_ids": rng.integers(0, 37, documents.shape), "segment_ids": documents}
    inputs["input_mask"] = (documents > 0).astype(np.int32)
    weights = rng.normal(size=documents.shape) * inputs["input_mask"]

    def found(spec):
        model = _model(spec, head_types.REPLACED_TOKENS)

        def loss(params):
            logits = model.apply({"params": params}, inputs, deterministic=True)["replaced"]
            return (logits * weights).sum()

        given = from_canonical(_params(SPEC, head_types.REPLACED_TOKENS), spec)
        value, grads = jax.jit(jax.value_and_grad(loss))(given)
        return value, to_canonical(grads, spec)

    (value, grads), (other, others) = map(found, (plain, dataclasses.replace(plain, **changes)))
    assert_close(other, value, 1000)
    assert_close(others, grads, 1000, share=0.01)


def test_operations():
    """Of the products of contents and distances, those with the keys that a token sees count."""
    layer = 4 * 24**2 + 2 * 24 * 40 + 4 * 24 * 7.5
    expected = 6 * (2 * layer + 2 / 11 * (24**2 + 24 * 37))
    assert SPEC.flops_per_token(11, 2, 7.5) == pytest.approx(expected)
    assert "by einsum at length 512" in SPEC.attention_by(512)


def test_the_folders_of_its_authors():
    """They have both heads, in names of their own, and a table that their generator alone reads."""
    kinds = head_types.MASKED_LM, head_types.REPLACED_TOKENS
    params = {kind: _params(SPEC, kind) for kind in kinds}
    names = {
        "cls.predictions.transform.": "lm_predictions.lm_head.",
        "cls.predictions.": "lm_predictions.lm_head.",
    }
    arrays = {"deberta.embeddings.position_embeddings.weight": np.zeros((32, 24), np.float32)}
    for kind in kinds:
        entries = array_names(HEAD_SPECS[kind].parts(SPEC), SPEC, kind, 0)
        for name, array in to_hf(params[kind], entries).items():
            theirs = next((name.replace(a, b) for a, b in names.items() if a in name), name)
            arrays[theirs] = array
    tokenizer = wordpiece([*SPECIAL_TOKENS, *map(str, range(32))])
    for kind in kinds:
        model = hugging_face.assemble(arrays, SPEC, kind, tokenizer, "test")
        jax.tree.map(np.testing.assert_array_equal, model.params[kind], params[kind][kind])
        assert {*model.left_out.values()} == {"a constant"} and model.missing == ()


@pytest.mark.peers
def test_transformers_reads_the_encoder_of_a_discriminator(tmp_path):
    """As of the published ones; bertjax reads the head, too."""
    import torch
    import transformers

    tokenizer, kind = wordpiece([*SPECIAL_TOKENS, *map(str, range(32))]), head_types.REPLACED_TOKENS
    model = Pretrained("a deberta", kind, SPEC, _params(SPEC, kind), tokenizer, ())
    hugging_face.write_hugging_face(model, tmp_path)
    again = hugging_face.read_hugging_face(tmp_path, "hf:again")
    assert (again.head_type, again.spec) == (kind, SPEC)
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)
    peer = transformers.AutoModel.from_pretrained(tmp_path).eval()
    assert "import AutoTokenizer, AutoModel\n" in model_card(model, "a", {}, {})
    inputs = random_inputs(model)
    with torch.inference_mode():
        ids, mask = (torch.tensor(inputs[name]).long() for name in ("input_ids", "input_mask"))
        wanted = peer(input_ids=ids, attention_mask=mask).last_hidden_state.numpy()
    encoder = {"deberta-v2": model.params["deberta-v2"]}
    found = outputs(_model(SPEC, head_types.ENCODER), encoder, inputs)["sequence"]
    there = inputs["input_mask"][..., None]
    assert_close(found * there, wanted * there, 1000)


def test_what_is_computed_in_another_way_is_refused():
    write = PUBLISHED["deberta-v2"].config.write
    written = write(SPEC)
    assert (written["max_relative_positions"], written["pos_att_type"]) == (-1, ["p2c", "c2p"])
    assert READ(written) == SPEC
    assert READ(written | {"pos_att_type": "C2P | p2c"}) == SPEC
    far = dataclasses.replace(SPEC, max_relative_positions=99)
    assert (SPEC.farthest, far.farthest, READ(write(far))) == (32, 99, far)
    for changes, message in (
        ({"relative_attention": False}, "relative_attention=False: only True can be read"),
        ({"position_biased_input": True}, "position_biased_input=True: only False can be read"),
        ({"share_att_key": False}, "share_att_key=False: only True can be read"),
        ({"norm_rel_ebd": "none"}, "norm_rel_ebd='none': only 'layer_norm' can be read"),
        ({"pos_att_type": "c2p"}, r"pos_att_type='c2p': only \['p2c', 'c2p'\] can be read"),
        ({"conv_kernel_size": 3}, "conv_kernel_size=3: only 0 can be read"),
        ({"type_vocab_size": 2}, "type_vocab_size=2: only 0 can be read"),
        ({"position_buckets": -1}, "position_buckets=-1: must be at least 2"),
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
