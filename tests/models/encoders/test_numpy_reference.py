"""The whole function of BERT and of its relatives is that of a forward pass in plain numpy."""

import functools

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax.traverse_util import flatten_dict

from bertjax.interop.names import to_hf
from bertjax.interop.published.registry import PUBLISHED, array_names
from bertjax.models.encoders import head_types
from bertjax.models.encoders.registry import ENCODERS
from bertjax.models.heads.head_specs import HEAD_SPECS, text_inputs
from bertjax.models.heads.memory import MemoryModel
from bertjax.models.heads.output_heads import pooler
from bertjax.models.heads.permutation import PermutationModel
from bertjax.models.heads.pretraining import PreTrainingModel
from bertjax.models.heads.replaced_tokens import ReplacedTokens
from bertjax.training.model import zeros
from tests.helpers.closeness import assert_close
from tests.models.encoders import numpy_reference as reference

LENGTH, VOCABULARY = 29, 37
ACTIVATIONS = {"gelu": reference.gelu, "gelu_tanh": reference.gelu_tanh, "silu": reference.silu}
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=LENGTH,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
FOUR_TIMES = {"intermediate_size": 96}  # the only width of it in transformers
RELATIVES = {
    "roberta": (reference.roberta, {}),
    "distilbert": (reference.distilbert, {}),
    "electra": (reference.electra, {"embedding_size": 16, "hidden_act": "gelu_tanh"}),
    "deberta-v2": (reference.deberta_v2, {"position_buckets": 8}),
    "openai-gpt": (reference.gpt, FOUR_TIMES),
    "gpt2": (reference.gpt2, {}),
    "xlm": (reference.xlm, {"type_vocab_size": 3, **FOUR_TIMES}),
    "xlnet": (reference.xlnet, {}),
    "transfo-xl": (reference.transformer_xl, {}),
    "eurobert": (reference.eurobert, {"num_key_value_heads": 1}),
    "neobert": (reference.neobert, {}),
}
FAMILIES = {
    "bert": (reference.bert, {}),
    "modernbert": (
        functools.partial(reference.modernbert, window=9),
        {"num_hidden_layers": 4, "local_attention": 18},
    ),
    **RELATIVES,
}


def _model(name: str, **changes):
    """A model, and the function of its numpy form; without `hidden_act`, each has its own."""
    forward, own = FAMILIES[name]
    settings = own | changes
    if "hidden_act" in settings:
        forward = functools.partial(forward, activation=ACTIVATIONS[settings["hidden_act"]])
    spec = ENCODERS[name].spec(**SIZES | settings)
    return PreTrainingModel(spec, next_sentence=name == "bert"), forward


def _params(model):
    """Random values in every array; embeddings so small that the epsilon of norms counts."""
    inputs = zeros(text_inputs(model.spec, B=1, S=5))
    shapes = jax.eval_shape(
        lambda key: nn.unbox(model.init(key, inputs, deterministic=True)["params"]),
        jax.random.key(0),
    )
    rng = np.random.default_rng(3)
    small = ("embeddings/token", "embeddings/segment", "embeddings/position", "masked_lm/bias")

    def draw(path, leaf):
        name = "/".join(key.key for key in path)
        mean, deviation = (1, 0.2) if name.endswith("scale") else (0, 0.25)
        deviation = 0.01 if name.endswith(small) else deviation
        return rng.normal(mean, deviation, leaf.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def _by_path(params):
    return {path: leaf.astype(float) for path, leaf in flatten_dict(params, sep="/").items()}


def _assert_is_the_reference(model, forward, packed: bool = False):
    """Compares all outputs at every token of three rows, the second with padding on both sides.

    Args:
      forward: (params by path, ids, segments, positions, sees) of one row -> see the reference.
    """
    rng, spec = np.random.default_rng(8), model.spec
    firsts, lengths = (0, 4, 0), (LENGTH, 23, 3)
    mask = np.zeros((3, LENGTH), np.int32)
    for row, (first, length) in enumerate(zip(firsts, lengths, strict=True)):
        mask[row, first : first + length] = 1
    ids = rng.integers(0, VOCABULARY, mask.shape)
    segments = rng.integers(0, spec.type_vocab_size or 2, mask.shape) * mask
    documents, positions = mask.copy(), np.tile(np.arange(LENGTH), (3, 1))
    if packed:
        sizes = [12, 4, 7, 6]
        documents[0] = np.repeat([1, 2, 3, 4], sizes)
        positions[0] = np.concatenate([np.arange(size) for size in sizes])
        positions[1] -= 4

    def both(model, inputs):
        states = model.encoder.hidden_states(inputs, deterministic=True)
        return states, model(inputs, deterministic=True)

    params = _params(model)
    apply = jax.jit(functools.partial(model.apply, method=both))
    inputs = {"input_ids": ids, "input_mask": mask}
    inputs["language_ids" if spec.encoder == "xlm" else "token_type_ids"] = segments
    if packed:
        inputs["segment_ids"] = documents
    states, logits = apply({"params": params}, inputs)
    for row, (first, length) in enumerate(zip(firsts, lengths, strict=True)):
        here = row, slice(first, first + length)
        sees = documents[here][:, None] == documents[here]
        row_inputs = ids[here], segments[here], positions[here], sees
        wanted_states, wanted = forward(_by_path(params), *row_inputs)
        found = {"masked_lm": logits["masked_lm"][here]}
        if first:
            wanted.pop("next_sentence", None)  # it is of the first place
        elif "next_sentence" in logits:
            found["next_sentence"] = logits["next_sentence"][row]
        assert len(states) == len(wanted_states) and found.keys() == wanted.keys()
        found |= {f"layer {i}": x[here] for i, x in enumerate(states)}
        wanted |= {f"layer {i}": x for i, x in enumerate(wanted_states)}
        assert_close(found, wanted, err_msg=f"row {row}, ")


@pytest.mark.parametrize(
    "hidden_act, packed, causal", [("gelu", False, False), ("gelu_tanh", True, True)]
)
def test_bert(hidden_act, packed, causal):
    """Two layers with both heads, and left to right (Table 5)."""
    model, forward = _model("bert", hidden_act=hidden_act, causal=causal)

    def masked(p, ids, segments, positions, sees):
        return forward(p, ids, segments, positions, np.tril(sees) if causal else sees)

    _assert_is_the_reference(model, masked, packed)


@pytest.mark.parametrize(
    "hidden_act, packed, local_attention", [("gelu", False, 18), ("gelu_tanh", True, 6)]
)
def test_modernbert(hidden_act, packed, local_attention):
    """Four layers, of which 0 and 3 are global; windows by a mask (18), and by blocks (6)."""
    model, forward = _model("modernbert", hidden_act=hidden_act, local_attention=local_attention)
    forward = functools.partial(forward, window=local_attention // 2)
    _assert_is_the_reference(model, forward, packed)


@pytest.mark.parametrize(
    "name, changes",
    [*((name, {}) for name in RELATIVES), ("deberta-v2", {"conv_kernel_size": 5})],
)
def test_relatives(name, changes):
    """Two layers with the head that predicts tokens; of relative positions with packed texts."""
    model, forward = _model(name, **changes)
    _assert_is_the_reference(model, forward, packed=name in ("xlnet", "deberta-v2"))


@pytest.mark.parametrize("name", ["bert", "roberta", "xlm"])
def test_embeddings_by_what_a_batch_gives(name):
    """Positions of packed documents, or of a text and its translation; and no languages."""
    model, forward = _model(name)
    params, rng = _params(model), np.random.default_rng(4)
    ids = rng.integers(0, VOCABULARY, (1, LENGTH))
    segments = rng.integers(0, model.spec.type_vocab_size, ids.shape)
    positions = np.concatenate([np.arange(17), np.arange(12)])[None]
    inputs = {"input_ids": ids, "input_mask": np.ones_like(ids)}
    if name != "xlm":
        inputs["token_type_ids"] = segments
    documents = {"segment_ids": np.repeat([[1, 2]], [17, 12], 1)}, {"position_ids": positions}

    def embed(model, inputs):
        return [model.encoder.embeddings(inputs | each, deterministic=True) for each in documents]

    found = jax.jit(functools.partial(model.apply, method=embed))({"params": params}, inputs)
    by_path, sees = _by_path(params), np.ones((LENGTH, LENGTH), bool)
    if name == "xlm":
        by_path["xlm/embeddings/segment"] *= 0
    (wanted, *_), _ = forward(by_path, ids[0], segments[0], positions[0], sees)
    for each in found:
        assert_close(each[0], wanted)


def test_transformer_xl_with_memory():
    """The first row remembers seven tokens, and the second the last two of seven."""
    _, forward = _model("transfo-xl")
    model, rng = MemoryModel(_model("transfo-xl")[0].spec), np.random.default_rng(5)
    ids, memory = rng.integers(0, VOCABULARY, (2, LENGTH)), rng.normal(size=(2, 2, 7, 24))
    inputs = {
        "input_ids": ids,
        "input_mask": np.ones_like(ids),
        "memory": memory.astype(np.float32),
        "memory_mask": np.array([[1] * 7, [0] * 5 + [1] * 2]),
    }
    params = _params(model)
    found = jax.jit(functools.partial(model.apply, deterministic=True))({"params": params}, inputs)
    sees = np.ones((LENGTH, LENGTH), bool)
    for row, first in enumerate((0, 5)):
        known = inputs["memory"][row, :, first:].astype(float)
        states, wanted = forward(_by_path(params), ids[row], None, None, sees, memory=known)
        wanted["memory"] = np.stack(states[:-1])[:, LENGTH - 1 - 7 : LENGTH - 1]
        assert_close({name: found[name][row] for name in wanted}, wanted, err_msg=f"row {row}, ")
    assert found["memory_mask"].all() and found["memory_mask"].shape == (2, 7)


def test_xlnet_with_two_streams_and_memory():
    """The tokens of a random order from those before them, and what is remembered."""
    lengths, predicted, memory, reuse = (LENGTH, LENGTH - 3), 5, 7, 11
    _, forward = _model("xlnet")
    model = PermutationModel(_model("xlnet")[0].spec, reuse=reuse, memory=memory)
    rng, shape = np.random.default_rng(5), (2, LENGTH)
    mask, order = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    places = np.stack([rng.permutation(length)[:predicted] for length in lengths])
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
        order[row, places[row]] = rng.permutation(predicted) + 1
    inputs = {
        "input_ids": rng.integers(0, VOCABULARY, shape),
        "input_mask": mask,
        "token_type_ids": rng.integers(0, 3, shape),
        "order": order,
        "masked_lm_positions": places,
        "memory": rng.normal(size=(2, 2, memory, 24)).astype(np.float32),
    }
    params = _params(model)
    found = jax.jit(functools.partial(model.apply, deterministic=True))({"params": params}, inputs)
    for row, length in enumerate(lengths):
        ids, types, ranks = (
            inputs[each][row, :length] for each in ("input_ids", "token_type_ids", "order")
        )
        remembered = inputs["memory"][row].astype(float)
        states, wanted = forward(
            _by_path(params),
            ids,
            types,
            None,
            ranks <= ranks[:, None],
            memory=remembered,
            sees_before=ranks < ranks[:, None],
        )
        assert_close(found["masked_lm"][row], wanted["masked_lm"][places[row]])
        kept = np.concatenate([remembered, np.stack(states[:-1])[:, :reuse]], 1)
        assert_close(found["memory"][row], kept[:, -memory:])


@pytest.mark.parametrize(
    "name, causal",
    [(name, False) for name in reference.WHOLE_TEXT if "gpt" not in name]
    + [(name, True) for name in reference.WHOLE_TEXT if name != "xlnet"],
)
def test_the_vector_of_a_whole_text(name, causal):
    """It is of the first token, [CLS]; or of the last, where that alone has seen the others.

    EuroBERT's is the mean of what becomes of each token.
    """
    spec = _model(name, causal=causal)[0].spec
    module = pooler(spec, head_types.SEQUENCE_CLASSIFICATION)
    rng, lengths = np.random.default_rng(2), np.array([5, 7, 2])
    states = rng.normal(size=(3, 7, 24)).astype(np.float32)
    mask = (np.arange(7) < lengths[:, None]).astype(np.int32)
    read = functools.partial(module.apply, deterministic=True)
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), states, mask, True))
    params = jax.tree.map(lambda x: rng.normal(size=x.shape), nn.unbox(shapes))
    found = jax.jit(read)(params, states, mask)
    one = states[range(3), lengths - 1] if causal or name == "xlnet" else states[:, 0]
    by_path, one = flatten_dict(params.get("params", {}), sep="/"), one.astype(float)
    if name == "eurobert":
        texts = (text[:length] for text, length in zip(states, lengths, strict=True))
        wanted = np.stack([reference.late(by_path, text.astype(float)) for text in texts])
    else:
        wanted = reference.WHOLE_TEXT[name](by_path, one)
    assert_close(found, wanted)


@pytest.mark.parametrize("hidden_act", ACTIVATIONS)
def test_the_head_of_a_discriminator(hidden_act):
    """ELECTRA's (arXiv 2003.10555, section 3.2), whose activation is that of the layers."""
    module = ReplacedTokens(_model("bert", hidden_act=hidden_act)[0].spec)
    rng = np.random.default_rng(2)
    states = rng.normal(size=(2, 7, 24)).astype(np.float32)
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), states))
    params = jax.tree.map(lambda x: rng.normal(size=x.shape), nn.unbox(shapes))
    p = params["params"]
    hidden = states.astype(float) @ p["dense"]["kernel"] + p["dense"]["bias"]
    logits = ACTIVATIONS[hidden_act](hidden) @ p["output"]["kernel"] + p["output"]["bias"]
    assert_close(jax.jit(module.apply)(params, states), logits[..., 0])


def test_the_head_of_debertas_discriminator():
    """Microsoft/DeBERTa's, whose norm is of each state plus that of the text's first token."""
    module = ReplacedTokens(_model("deberta-v2")[0].spec)
    rng = np.random.default_rng(2)
    states = rng.normal(size=(2, 7, 24)).astype(np.float32)
    documents = np.array([[1] * 7, [1] * 3 + [2] * 4])
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), states))
    params = jax.tree.map(lambda x: rng.normal(size=x.shape), nn.unbox(shapes))
    p, first = params["params"], states[[[0] * 7, [1] * 7], [[0] * 7, [0] * 3 + [3] * 4]]
    sums = states.astype(float) + first
    normed = reference.layer_norm(sums, p["norm"]["scale"], p["norm"]["bias"], 1e-7)
    hidden = reference.gelu(normed @ p["dense"]["kernel"] + p["dense"]["bias"])
    logits = (hidden @ p["output"]["kernel"] + p["output"]["bias"])[..., 0]
    assert_close(jax.jit(module.apply)(params, states, documents), logits)
    assert_close(jax.jit(module.apply)(params, states)[0], logits[0])


@pytest.mark.peers
@pytest.mark.parametrize(
    "name", [name for name in FAMILIES if name not in ("neobert", "transfo-xl")]
)
def test_the_reference_is_that_of_transformers(name):
    """In float64, apart from XLNet's waves and EuroBERT's norms.

    So the reference itself is held to something. NeoBERT and Transformer-XL are not in it.
    """
    import torch
    import transformers

    model, forward = _model(name)
    params, spec, names = _params(model), model.spec, PUBLISHED[name]
    kind = next(
        each
        for each in (head_types.MASKED_LM, head_types.PERMUTATION_LM, head_types.CAUSAL_LM)
        if each in names.classes
    )
    entries = array_names(HEAD_SPECS[kind].parts(spec), spec, kind, 0)
    its_class = getattr(transformers, names.classes[kind])
    config = {"pad_token_id": 1} | names.config.write(spec)
    peer = its_class(its_class.config_class(**config)).eval()
    arrays = {key: torch.tensor(each) for key, each in to_hf(params, entries).items()}
    assert not peer.load_state_dict(arrays, strict=False).unexpected_keys
    peer.double()
    if name == "xlnet":
        waves = peer.transformer.relative_positional_encoding
        peer.transformer.relative_positional_encoding = lambda *args, **more: waves(
            *args, **more
        ).double()
    rng = np.random.default_rng(6)
    ids = rng.integers(5, VOCABULARY, LENGTH)  # without the ids of padding
    segments = rng.integers(0, spec.type_vocab_size or 2, LENGTH)
    inputs = {"input_ids": ids}
    if spec.type_vocab_size:
        inputs["langs" if name == "xlm" else "token_type_ids"] = segments
    with torch.inference_mode():
        logits = peer(**{key: torch.tensor(each)[None] for key, each in inputs.items()}).logits
    sees = np.ones((LENGTH, LENGTH), bool)
    _, found = forward(_by_path(params), ids, segments, np.arange(LENGTH), sees)
    assert_close(found["masked_lm"], logits[0].numpy())


@pytest.mark.peers
@pytest.mark.parametrize("pooling", ["late", "mean", "bos"])
def test_what_euroberts_classifier_reads(pooling):
    """The activation is gelu with erf, whatever that of the layers is."""
    import torch
    import transformers

    config = transformers.EuroBertConfig(
        **dict(vocab_size=VOCABULARY, hidden_size=24, num_hidden_layers=1, num_attention_heads=3),
        **dict(intermediate_size=40, pad_token_id=1, classifier_pooling=pooling, num_labels=3),
    )
    peer = transformers.EuroBertForSequenceClassification(config).double().eval()
    lengths = (7, 4)
    ids = torch.tensor(np.random.default_rng(2).integers(5, VOCABULARY, (2, 7)))
    mask = torch.tensor((np.arange(7) < np.array(lengths)[:, None]).astype(int))
    with torch.inference_mode():
        states = peer.model(ids, attention_mask=mask).last_hidden_state.numpy()
        logits = peer(ids, attention_mask=mask).logits.numpy()
    p = {name: x.detach().numpy() for name, x in peer.named_parameters()}
    dense = {"dense/kernel": p["dense.weight"].T, "dense/bias": p["dense.bias"]}
    for row, length in enumerate(lengths):
        text = states[row, :length]
        read = {"late": text, "mean": text.mean(0, keepdims=True), "bos": text[:1]}[pooling]
        found = reference.late(dense, read) @ p["classifier.weight"].T + p["classifier.bias"]
        assert_close(found, logits[row], terms=1)
