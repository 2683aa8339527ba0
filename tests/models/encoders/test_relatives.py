"""The families that are like BERT: the names and the functions of transformers."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.interop import hugging_face
from bertjax.interop.names import to_hf, to_jax
from bertjax.interop.pretrained import Pretrained
from bertjax.interop.proof import greatest_difference, outputs, random_inputs
from bertjax.interop.published.registry import PUBLISHED, array_names
from bertjax.interop.transformers_check import OUTPUTS
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.encoders.storage import from_canonical, to_canonical
from bertjax.models.heads.head_specs import HEAD_SPECS, text_inputs
from bertjax.objectives.cross_entropy import cross_entropy
from bertjax.text.tokenizer import Tokenizer
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.slow_cases import others_slow

NAMES = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
NAMES |= {"electra": "Electra", "distilbert": "DistilBert", "deberta-v2": "DebertaV2"}
NAMES |= {"eurobert": "EuroBert", "neobert": "NeoBERT"}
NAMES |= {"openai-gpt": "OpenAIGPT", "gpt2": "GPT2", "xlm": "XLM", "xlnet": "XLNet"}
LIKE_ROBERTA = ("roberta", "xlm-roberta", "camembert")
# Sizes of single families. In some, the feed-forward has four times the width in transformers.
FOUR_TIMES = {"intermediate_size": 96}
OWN = {"electra": {"embedding_size": 16}, "openai-gpt": FOUR_TIMES, "xlm": FOUR_TIMES}
OWN["deberta-v2"] = {"position_buckets": 16}
OWN["eurobert"] = {"num_key_value_heads": 1}
OWN["xlnet"] = {"max_position_embeddings": 512}  # no field of its config.json
SIZES = dict(
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=56,
)
CASES = [(name, kind) for name in NAMES for kind in PUBLISHED[name].classes]
IN_TRANSFORMERS = [
    (name, kind)
    for name, kind in CASES
    if name != "neobert" and kind not in PUBLISHED[name].elsewhere
]
CLASSES = tuple(f"class {i}" for i in range(5))
WITH_CLASSES = (head_types.SEQUENCE_CLASSIFICATION, head_types.TOKEN_CLASSIFICATION)
VOCABULARY = 97


def _spec(name: str, **changes):
    sizes = SIZES | dict(vocab_size=VOCABULARY, max_position_embeddings=62) | OWN.get(name, {})
    return ENCODERS[name].spec(**sizes | changes)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """Whose padding has the id 1, as RoBERTa's."""
    pieces = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *(f"w{i}" for i in range(92))]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in pieces))
    return Tokenizer.open(path)


def _model(name: str, kind: str, tokenizer: Tokenizer) -> Pretrained:
    """Random numbers in every array."""
    always = ENCODERS[name].spec.causal
    spec, rng = _spec(name, causal=always or kind == head_types.CAUSAL_LM), np.random.default_rng(3)
    classes = CLASSES if kind in WITH_CLASSES else ()
    classes = ("LABEL_0",) if kind == head_types.MULTIPLE_CHOICE else classes
    entries = array_names(HEAD_SPECS[kind].parts(spec), spec, kind, len(classes))
    arrays = {e.hf_name: rng.normal(0.1, 0.2, e.shape).astype(np.float32) for e in entries}
    params = to_jax(arrays, entries, "test")
    return Pretrained(f"a {name}", kind, spec, params, tokenizer, classes)


@pytest.mark.parametrize(
    "name, kind",
    others_slow(CASES, *(case for case in CASES if case[1] in (head_types.ENCODER, *WITH_CLASSES))),
)
def test_names_cover_the_parameters(name, kind):
    spec = _spec(name, vocab_multiple=8)
    head_spec = HEAD_SPECS[kind]
    module = head_spec.build(spec, 1 if "C" in head_spec.axes else 5)
    shape = dict(zip(head_spec.axes, (2, 3, 7)[-len(head_spec.axes) :], strict=True))

    def init(inputs):
        return module.init(jax.random.key(0), inputs, deterministic=True)["params"]

    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(leaf.dtype),
        nn.unbox(jax.eval_shape(init, text_inputs(spec, **shape))),
    )
    canonical = to_canonical(params, spec)
    classes = 1 if "C" in head_spec.axes else 5
    entries = array_names(head_spec.parts(spec), spec, kind, classes)
    again = to_jax(to_hf(canonical, entries), entries, "test")
    assert flatten_dict(again).keys() == flatten_dict(canonical).keys()
    jax.tree.map(np.testing.assert_array_equal, again, canonical)
    padded = from_canonical(again, spec)[name]["embeddings"]["token"]
    assert padded.shape[0] == 104 and not padded[VOCABULARY:].any()


@pytest.mark.parametrize("name, kind", CASES)
def test_folders_are_bit_equal_there_and_back(name, kind, tokenizer, tmp_path):
    model = _model(name, kind, tokenizer)
    hugging_face.write_hugging_face(model, tmp_path)
    again = hugging_face.read_hugging_face(tmp_path, "hf:again")
    assert (again.spec, again.head_type, again.classes) == (
        dataclasses.replace(model.spec),
        kind,
        model.classes if kind != head_types.MULTIPLE_CHOICE else again.classes,
    )
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)
    assert again.left_out == {} and again.missing == ()


def _limit(wanted) -> float:
    return rounding(max(np.abs(each).max() for each in wanted.values()))


def _peer(name: str, kind: str, **settings):
    """transformers' model with random weights, in float64, and its arrays."""
    import torch
    import transformers

    like_roberta = name in LIKE_ROBERTA
    sizes = SIZES | OWN.get(name, {}) | ({"type_vocab_size": 1} if like_roberta else {})
    sizes |= dict(layer_norm_eps=ENCODERS[name].spec.layer_norm_eps)
    sizes["is_decoder"] = kind == head_types.CAUSAL_LM
    if name == "eurobert" and kind in WITH_CLASSES:
        del sizes["num_key_value_heads"]  # as many as of queries
    if name == "deberta-v2":
        sizes |= PUBLISHED[name].config.written | {"pos_att_type": "p2c|c2p"}
    if name == "gpt2":
        sizes["n_inner"] = sizes.pop("intermediate_size")
    if name == "distilbert":
        sizes = dict(dim=24, n_layers=2, n_heads=3, hidden_dim=56)
    if name == "xlm":
        sizes = dict(emb_dim=24, n_layers=2, n_heads=3, n_langs=4)
    if name == "xlnet":
        sizes = dict(d_model=24, n_layer=2, n_head=3, d_inner=56)
    else:
        sizes["max_position_embeddings"] = 64 if like_roberta else 62
    sizes |= settings
    config = getattr(transformers, f"{NAMES[name]}Config")(
        **sizes,
        vocab_size=VOCABULARY,
        num_labels=5 if kind in WITH_CLASSES else 2,
        pad_token_id=1,
    )
    torch.manual_seed(0)
    model = getattr(transformers, PUBLISHED[name].classes[kind])(config).eval()
    with torch.no_grad():
        for array in model.parameters():
            array += 0.05 * torch.randn_like(array)
    arrays = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    return model.double(), config, arrays


@pytest.mark.peers
@pytest.mark.parametrize("name, kind", IN_TRANSFORMERS)
def test_the_function_is_that_of_transformers(name, kind, tokenizer):
    """With padding after, and before."""
    _assert_is_the_function(name, kind, tokenizer)


@pytest.mark.peers
def test_debertas_other_decoder(tokenizer):
    """The arrays have the names that its authors give them, and far distances have one row."""
    settings = dict(legacy=False, max_relative_positions=20)
    _assert_is_the_function("deberta-v2", head_types.MASKED_LM, tokenizer, **settings)


@pytest.mark.peers
@pytest.mark.parametrize("pooling, heads", [("bos", 3), ("mean", None)])
def test_euroberts_other_poolings(pooling, heads, tokenizer):
    """And as many heads of keys and values as of queries."""
    settings = dict(classifier_pooling=pooling, num_key_value_heads=heads)
    _assert_is_the_function("eurobert", head_types.SEQUENCE_CLASSIFICATION, tokenizer, **settings)


@pytest.mark.peers
@pytest.mark.parametrize(
    "name, kind, field",
    [
        (
            "roberta",
            head_types.MASKED_LM,
            "hidden_act",
        ),  # gelu in its head, whatever is in the layers
        ("electra", head_types.MASKED_LM, "hidden_act"),
        ("electra", head_types.REPLACED_TOKENS, "hidden_act"),
        ("distilbert", head_types.MASKED_LM, "activation"),
        ("openai-gpt", head_types.CAUSAL_LM, "afn"),
        ("gpt2", head_types.CAUSAL_LM, "activation_function"),
        ("xlnet", head_types.PERMUTATION_LM, "ff_activation"),
    ],
)
def test_silu_is_that_of_transformers(name, kind, field, tokenizer):
    _assert_is_the_function(name, kind, tokenizer, **{field: "silu"})


def _assert_is_the_function(name, kind, tokenizer, **settings):
    import torch

    peer, config, arrays = _peer(name, kind, **settings)
    spec = hugging_face.spec_of(config.to_dict(), ENCODERS[name], "test")
    classes = CLASSES if kind in WITH_CLASSES else ()
    model = hugging_face.assemble(arrays, spec, kind, tokenizer, "test", classes)
    assert spec.max_position_embeddings == _spec(name).max_position_embeddings
    assert model.missing == ()
    inputs = random_inputs(model)
    found = outputs(model.model(), model.params, inputs)
    tensors = {name: torch.tensor(array).long() for name, array in inputs.items()}
    tensors["attention_mask"] = tensors.pop("input_mask")
    with torch.inference_mode():
        reference = peer(**tensors)
    wanted = {
        key: reference[next(each for each in OUTPUTS[key] if each in reference)].numpy()
        for key in found
    }
    assert greatest_difference(wanted, found, inputs) < _limit(wanted)


@pytest.mark.peers
@pytest.mark.parametrize(
    "name",
    ["roberta", "electra", "deberta-v2", "distilbert", "eurobert", "openai-gpt", "gpt2", "xlm"]
    + ["xlnet"],
)
def test_gradients_of_predicted_tokens(name, tokenizer):
    import torch

    reads_on = ENCODERS[name].spec.causal
    kind = head_types.CAUSAL_LM if reads_on else head_types.MASKED_LM
    kind = head_types.PERMUTATION_LM if name == "xlnet" else kind
    peer, config, arrays = _peer(name, kind)
    spec = hugging_face.spec_of(config.to_dict(), ENCODERS[name], "test")
    model = hugging_face.assemble(arrays, spec, kind, tokenizer, "test")
    inputs = random_inputs(model)
    drawn = np.random.default_rng(1).integers(0, VOCABULARY, inputs["input_ids"].shape)
    mask, labels = inputs["input_mask"] > 0, drawn
    if reads_on:  # transformers compares each output with the label of the next place
        mask = np.pad(mask[:, :-1] & mask[:, 1:], [(0, 0), (1, 0)])
    wanted = np.where(mask, drawn, -100)
    if reads_on:
        mask, labels = np.roll(mask, -1, axis=1), np.roll(labels, -1, axis=1)

    def loss(params):
        logits = model.model().apply({"params": params}, inputs, deterministic=True)["masked_lm"]
        return (cross_entropy(logits, jnp.asarray(labels)) * mask).sum() / mask.sum()

    grads = to_hf(jax.tree.map(np.asarray, jax.jit(jax.grad(loss))(model.params)), model.entries)
    tensors = {name: torch.tensor(array).long() for name, array in inputs.items()}
    tensors["attention_mask"] = tensors.pop("input_mask")
    peer(**tensors, labels=torch.tensor(wanted)).loss.backward()
    reference = {
        key: array.grad for key, array in peer.named_parameters() if array.grad is not None
    }
    padding = {"embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"}
    padding |= {"embeddings.weight", "embed_tokens.weight"}
    wanted = {key: gradient.numpy() for key, gradient in reference.items()}
    result = {key: grads[key].copy() for key in wanted}
    for key in wanted:
        if key.partition(".")[2] in padding:  # torch gives the row of padding no gradient
            result[key][1] = wanted[key][1]
    assert_close(result, wanted, 1000, share=0.01)


@pytest.mark.peers
@pytest.mark.parametrize("kind", PUBLISHED["neobert"].classes)
def test_neobert_computes_what_its_own_code_does(kind, tokenizer):
    """Outputs and all gradients; 2/3 of the 57 columns are 38, and the next multiple of 8 is 40."""
    import torch

    from tests.models.encoders import neobert_reference

    sizes = SIZES | dict(vocab_size=VOCABULARY, intermediate_size=57, num_labels=5)
    config = neobert_reference.NeoBERTConfig(**sizes)
    torch.manual_seed(0)
    peer = getattr(neobert_reference, PUBLISHED["neobert"].classes[kind])(config).double().eval()
    arrays = {key: x.numpy().astype(np.float32) for key, x in peer.state_dict().items()}
    spec = hugging_face.spec_of(dataclasses.asdict(config), ENCODERS["neobert"], "test")
    assert (spec.intermediate_size, spec.layer_norm_eps) == (40, 1e-5)
    model = hugging_face.assemble(arrays, spec, kind, tokenizer, "test")
    inputs = random_inputs(model)
    reference = peer(*(torch.tensor(inputs[key]).long() for key in ("input_ids", "input_mask")))
    mask = np.expand_dims(inputs["input_mask"], 2) if reference.ndim == 3 else 1
    weights = np.random.default_rng(4).normal(size=reference.shape) * mask

    def summed(params):
        (found,) = model.model().apply({"params": params}, inputs, deterministic=True).values()
        return (found * weights).sum(), found * mask

    (_, found), grads = jax.jit(jax.value_and_grad(summed, has_aux=True))(model.params)
    assert_close(found, reference.detach().numpy() * mask, 1000)
    (reference * torch.tensor(weights)).sum().backward()
    bare = PUBLISHED["neobert"].bare * (kind == head_types.ENCODER)
    wanted = {bare + key: array.grad.numpy() for key, array in peer.named_parameters()}
    found = to_hf(jax.tree.map(np.asarray, grads), model.entries)
    assert_close(found, wanted, 1000, share=0.01)


@pytest.mark.peers
@pytest.mark.parametrize("name", ["roberta", "distilbert", "electra", "xlm"])
def test_positions_and_languages_that_a_batch_gives(name, tokenizer):
    """As of a text and its translation; also the gradient of the embeddings of languages."""
    import torch

    peer, config, arrays = _peer(name, head_types.MASKED_LM)
    spec = hugging_face.spec_of(config.to_dict(), ENCODERS[name], "test")
    model = hugging_face.assemble(arrays, spec, head_types.MASKED_LM, tokenizer, "test")
    inputs = {key: array[2:] for key, array in random_inputs(model).items()}
    mask = inputs["input_mask"]
    column, begin = np.arange(mask.shape[1]), (mask.sum(1) // 3)[:, None]
    in_b = column >= begin
    positions = column - begin * in_b
    inputs["position_ids"] = positions.astype(np.int32)
    tensors = {key: torch.tensor(array).long() for key, array in inputs.items()}
    tensors["attention_mask"] = tensors.pop("input_mask")
    if name in LIKE_ROBERTA:
        tensors["position_ids"] = torch.tensor(np.where(mask, positions + 2, 1)).long()
    if name == "xlm":
        inputs["language_ids"] = np.where(in_b, 3, 1).astype(np.int32)
        tensors["langs"] = torch.tensor(inputs["language_ids"]).long()
    weights = np.random.default_rng(4).normal(size=(*mask.shape, VOCABULARY)) * mask[..., None]

    def summed(params):
        logits = model.model().apply({"params": params}, inputs, deterministic=True)["masked_lm"]
        return (logits * weights).sum(), logits

    (_, found), grads = jax.jit(jax.value_and_grad(summed, has_aux=True))(model.params)
    logits = peer(**tensors).logits
    wanted = {"masked_lm": logits.detach().numpy()}
    assert greatest_difference(wanted, {"masked_lm": np.asarray(found)}, inputs) < _limit(wanted)
    alone = outputs(model.model(), model.params, {k: inputs[k] for k in random_inputs(model)})
    assert np.abs(np.asarray(found) - alone["masked_lm"]).max() > 0.1
    (logits * torch.tensor(weights)).sum().backward()
    grads = to_hf(jax.tree.map(np.asarray, grads), model.entries)
    tables = [key for key, _ in peer.named_parameters() if re.search("position|lang_emb", key)]
    assert len(tables) == 1 + (name == "xlm")
    for key in tables:
        reference = peer.get_parameter(key).grad.numpy()
        assert_close(grads[key], reference, 1000, err_msg=key)


def test_xlm_that_is_computed_in_another_way_is_refused():
    fields = {"emb_dim": 24, "n_heads": 3, "n_layers": 2, "n_words": VOCABULARY, "pad_index": 2}
    read = functools.partial(hugging_face.spec_of, family=ENCODERS["xlm"], origin="test")
    assert read(fields) == _spec(
        "xlm", max_position_embeddings=512, vocab_size=VOCABULARY, type_vocab_size=0
    )
    assert read(fields | {"n_langs": 15}).type_vocab_size == 15
    assert read(fields | {"n_langs": 17, "use_lang_emb": False}).type_vocab_size == 0
    assert read(fields | {"sinusoidal_embeddings": True}) == read(fields)
    for name, value in (
        ("causal", True),
        ("asm", True),
        ("gelu_activation", False),
        ("summary_type", "last"),
    ):
        with pytest.raises(InputError, match=f"{name}={value!r}: only .* can be read"):
            read(fields | {name: value})
    with pytest.raises(InputError, match="summary_activation='tanh': cannot be read"):
        read(fields | {"summary_activation": "tanh"})
    for changes, message in (
        ({"causal": True}, "no xlm with causal=True"),
        ({"intermediate_size": 56}, "no xlm with intermediate_size=56, only 96"),
    ):
        with pytest.raises(ValueError, match=message):
            PUBLISHED["xlm"].config.write(_spec("xlm", **changes))
    with pytest.raises(ValueError, match="type_vocab_size=1: the number of languages"):
        _spec("xlm", type_vocab_size=1)


def test_silu_is_written_and_read():
    for name in (name for name in PUBLISHED if PUBLISHED[name].classes):
        spec, config = ENCODERS[name].spec(hidden_act="silu"), PUBLISHED[name].config
        if name == "xlm":
            with pytest.raises(ValueError, match="no xlm with hidden_act='silu', only 'gelu'"):
                config.write(spec)
        else:
            assert hugging_face.spec_of(config.write(spec), ENCODERS[name], "test") == spec
    with pytest.raises(ValueError, match="no openai-gpt with hidden_act='gelu', only gelu_tanh"):
        PUBLISHED["openai-gpt"].config.write(ENCODERS["openai-gpt"].spec(hidden_act="gelu"))


def test_eurobert_that_is_computed_in_another_way_is_refused():
    read = functools.partial(hugging_face.spec_of, family=ENCODERS["eurobert"], origin="test")
    old = {"rope_theta": 160_000.0, "rope_scaling": None, "num_key_value_heads": 6}
    spec = read(old | {"head_dim": 64, "clf_pooling": "late", "classifier_pooling": "late"})
    assert (spec.global_rope_theta, spec.num_key_value_heads) == (160_000, 6)
    rope = {"rope_theta": 10_000.0, "rope_type": "default"}
    new = {"rope_parameters": rope, "num_key_value_heads": None, "classifier_pooling": "bos"}
    spec = read(new)
    assert (spec.global_rope_theta, spec.num_key_value_heads) == (10_000, 0)
    written = PUBLISHED["eurobert"].config.write(spec)
    assert written["rope_parameters"] == rope and written["classifier_pooling"] == "bos"
    assert "num_key_value_heads" not in written and spec.classifier_pooling == "cls"
    for changes, message in (
        ({"tie_word_embeddings": True}, "tie_word_embeddings=True: only False can be read"),
        ({"attention_bias": True}, "attention_bias=True: only False can be read"),
        ({"mlp_bias": True}, "mlp_bias=True: only False can be read"),
        ({"is_causal": True}, "is_causal=True: only False can be read"),
        ({"head_dim": 32}, "head_dim=32: only hidden_size / num_attention_heads can be read"),
        ({"rope_scaling": {"type": "linear"}}, "rotary positions without scaling"),
        ({"rope_parameters": rope | {"rope_type": "llama3"}}, "rope_type='llama3': only 'default'"),
        ({"classifier_pooling": "cls"}, "classifier_pooling='cls': must be one of bos, mean, late"),
        ({"clf_pooling": "mean"}, "clf_pooling='mean', which transformers ignores"),
        ({"num_key_value_heads": 5}, "num_key_value_heads=5 does not divide"),
    ):
        with pytest.raises(InputError, match=message):
            read(old | changes)
    with pytest.raises(InputError, match="rope_theta is missing: the published code takes 250000"):
        read({})
    with pytest.raises(ValueError, match="no EuroBERT with causal=True"):
        PUBLISHED["eurobert"].config.write(dataclasses.replace(spec, causal=True))


def test_neobert_that_is_computed_in_another_way_is_refused():
    read = functools.partial(hugging_face.spec_of, family=ENCODERS["neobert"], origin="test")
    write = PUBLISHED["neobert"].config.write
    spec = read({"intermediate_size": 57, "hidden_act": "swiGLU", "max_length": 62})
    assert (spec.intermediate_size, spec.layer_norm_eps) == (40, 1e-6)
    written = write(dataclasses.replace(spec, initializer_range=0.01))
    assert written["intermediate_size"] == 60 and written["embedding_init_range"] == 0.01
    assert written["auto_map"]["AutoModel"] == "chandar-lab/NeoBERT--model.NeoBERT"
    assert read(written) == dataclasses.replace(spec, initializer_range=0.01)
    for changes, message in (
        ({"rms_norm": False}, "rms_norm=False: only True can be read"),
        ({"rope": False}, "rope=False: only True can be read"),
        ({"ngpt": True}, "ngpt=True: only False can be read"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu': only 'SwiGLU' can be read"),
        ({"embedding_init_range": 0.01}, "embedding_init_range=0.01: only that of decoder_init"),
        ({"dim_head": 96}, "dim_head=96: only hidden_size / num_attention_heads can be read"),
    ):
        with pytest.raises(InputError, match=message):
            read(changes)
    for changes, message in (
        ({"intermediate_size": 42}, "intermediate_size=42: must be a multiple of 8"),
        ({"hidden_act": "gelu"}, "no NeoBERT with hidden_act='gelu', only 'silu'"),
        ({"causal": True}, "no NeoBERT with causal=True"),
    ):
        with pytest.raises(ValueError, match=message):
            write(dataclasses.replace(spec, **changes))


def test_a_decoder_that_is_not_tied(tokenizer):
    for name, tied in (("eurobert", False), ("neobert", False), ("roberta", True)):
        config = hugging_face.config_of(_model(name, head_types.MASKED_LM, tokenizer))
        assert config["tie_word_embeddings"] is tied


def test_positions_begin_behind_the_id_of_the_padding():
    spec = _spec("roberta")
    assert spec.position_rows == 64 and _spec("electra").position_rows == 62
    fields = PUBLISHED[spec.encoder].config.write(spec)
    assert (fields["max_position_embeddings"], fields["pad_token_id"]) == (64, 1)
    assert _spec("roberta", pad_token_id=0).position_rows == 63
    with pytest.raises(ValueError, match="pad_token_id=-1: must be at least 0"):
        _spec("roberta", pad_token_id=-1)


@pytest.mark.parametrize(
    "name, kind, decoder, table",
    [
        ("roberta", head_types.MASKED_LM, "lm_head.decoder", "roberta.embeddings.word_embeddings"),
        ("gpt2", head_types.CAUSAL_LM, "lm_head", "transformer.wte"),
        ("openai-gpt", head_types.ENCODER, "lm_head", "transformer.tokens_embed"),
    ],
)
def test_a_decoder_of_its_own_is_refused(name, kind, decoder, table, tokenizer):
    """One that repeats the embeddings is left out, and stands for them where they are missing."""
    model = _model(name, kind, tokenizer)
    arrays = to_hf(model.params, model.entries)
    decoder, table = f"{decoder}.weight", f"{table}.weight"
    read = functools.partial(
        hugging_face.assemble, spec=model.spec, head_type=kind, tokenizer=tokenizer, origin="test"
    )
    with pytest.raises(InputError, match=rf"test: {decoder} differs from {table}: only a model in"):
        read(arrays | {decoder: arrays[table] + 1})
    tied = arrays | {decoder: arrays[table]}
    for found in (read(tied), read({key: tied[key] for key in tied if key != table})):
        jax.tree.map(np.testing.assert_array_equal, found.params, model.params)
        assert found.left_out == {decoder: f"{table} once more"}


def test_a_summary_that_is_computed_in_another_way_is_refused():
    config = {"model_type": "electra", "summary_type": "mean"}
    with pytest.raises(InputError, match="summary_type='mean': only 'first' can be read"):
        hugging_face.spec_of(config, ENCODERS["electra"], "test")


def test_a_config_without_the_fields_that_have_usual_values():
    """As OpenAI's published models have it, from before these fields."""
    fields = {"n_embd": 24, "n_head": 3, "n_inner": None, "vocab_size": VOCABULARY}
    spec = hugging_face.spec_of(fields, ENCODERS["gpt2"], "test")
    assert (spec.intermediate_size, spec.hidden_act, spec.causal) == (96, "gelu_tanh", True)
    for name, wrong in (("gpt2", {"scale_attn_weights": False}), ("openai-gpt", {"afn": "relu"})):
        with pytest.raises(InputError, match=f"{next(iter(wrong))}=.*: (only|must be one of) "):
            hugging_face.spec_of(fields | wrong, ENCODERS[name], "test")
    with pytest.raises(ValueError, match="no openai-gpt with intermediate_size=56, only 96"):
        spec = _spec("openai-gpt", intermediate_size=56)
        PUBLISHED[spec.encoder].config.write(spec)


def test_gpt_reads_left_to_right_only():
    with pytest.raises(ValueError, match="causal=False: gpt2 reads left to right only"):
        _spec("gpt2", causal=False)


@pytest.mark.parametrize("name", others_slow(["openai-gpt", "gpt2"], "gpt2"))
def test_fresh_kernels_into_the_residual(name):
    """GPT-2 scales them by the root of the number of its residual layers."""
    spec = _spec(name, hidden_size=96, intermediate_size=384, num_hidden_layers=8)
    module = HEAD_SPECS[head_types.CAUSAL_LM].build(spec, 0)
    inputs = {name: np.zeros(x.shape, x.dtype) for name, x in text_inputs(spec, B=1, S=3).items()}
    init = jax.jit(functools.partial(module.init, deterministic=True))
    params = jax.device_get(nn.unbox(init(jax.random.key(0), inputs))["params"])
    layer = params[name]["encoder"]["layer_3"]
    whole = 0.88 * 0.02
    scaled = whole / 4 if name == "gpt2" else whole
    for kernel, deviation in (
        (layer["attention"]["qkv"]["kernel"], whole),
        (layer["attention"]["output"]["kernel"], scaled),
        (layer["intermediate"]["kernel"], whole),
        (layer["output"]["kernel"], scaled),
    ):
        assert float(kernel.std()) == pytest.approx(deviation, rel=0.05)
