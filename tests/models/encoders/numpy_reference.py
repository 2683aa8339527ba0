"""BERT and its relatives in numpy and float64, written from their papers and not from this code.

Sizes are those of the arrays; all other numbers are the papers'. A family is a function of one
sequence.

Args:
  p: the parameters by path, such as "bert/encoder/layer_0/attention/qkv/kernel".
  ids, segments, positions: int [S], of each token.
  sees: bool [S, S], True where a query (row) sees a key (column).

Returns:
  Hidden states, the embeddings' and each layer's, [S, D]; and logits: "masked_lm" [S, V], at every
  token.
"""

import math

import numpy as np

_erf = np.vectorize(math.erf)


def gelu(x):
    """x times the normal distribution's probability of less than x (arXiv 1606.08415)."""
    return x * (1 + _erf(x / math.sqrt(2))) / 2


def gelu_tanh(x):
    """The approximation of it in the code of google-research/bert."""
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def silu(x):
    """x times its sigmoid (arXiv 1606.08415, where it is SiLU)."""
    return x / (1 + np.exp(-x))


def layer_norm(x, scale, bias, epsilon):
    """Layer normalization (arXiv 1607.06450) of the last axis."""
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + epsilon) * scale + bias


def rms_norm(x, scale, epsilon):
    """Root mean square layer normalization (arXiv 1910.07467) of the last axis."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * scale


def softmax(x):
    """Of the last axis."""
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def self_attention(query, key, value, sees):
    """softmax(Q K^T / sqrt(H)) V (arXiv 1706.03762), each head alone: [S, N, H]."""
    contexts = []
    for head in range(query.shape[1]):
        q, k, v = query[:, head], key[:, head], value[:, head]
        scores = np.where(sees, q @ k.T / math.sqrt(q.shape[-1]), -np.inf)
        contexts.append(softmax(scores) @ v)
    return np.stack(contexts, 1)


def _norm(p, path, x, epsilon=1e-12):
    return layer_norm(x, p[f"{path}/scale"], p[f"{path}/bias"], epsilon)


def _dense(p, path, x):
    return x @ p[f"{path}/kernel"] + p[f"{path}/bias"]


def _attention(p, layer, x, sees):
    product = np.einsum("sd,dcnh->csnh", x, p[f"{layer}/attention/qkv/kernel"])
    query, key, value = product + p[f"{layer}/attention/qkv/bias"][:, None]
    context = self_attention(query, key, value, sees)
    y = np.einsum("snh,nhd->sd", context, p[f"{layer}/attention/output/kernel"])
    return y + p[f"{layer}/attention/output/bias"]


def _feed_forward(p, layer, x, activation):
    return _dense(p, f"{layer}/output", activation(_dense(p, f"{layer}/intermediate", x)))


def _blocks(p, encoder, x, sees, activation, epsilon=1e-12, norm_first=False):
    """The blocks of the Transformer (arXiv 1706.03762, section 3.1).

    Args:
      norm_first: whether the norm is before each sublayer, as in GPT-2, and not after the sum.

    Returns:
      x [S, D], and the output of each layer.
    """
    states = [x]
    while f"{encoder}/encoder/layer_{len(states) - 1}/output/kernel" in p:
        layer = f"{encoder}/encoder/layer_{len(states) - 1}"
        first, second = f"{layer}/attention_norm", f"{layer}/output_norm"
        if norm_first:
            x = x + _attention(p, layer, _norm(p, first, x, epsilon), sees)
            x = x + _feed_forward(p, layer, _norm(p, second, x, epsilon), activation)
        else:
            x = _norm(p, first, x + _attention(p, layer, x, sees), epsilon)
            x = _norm(p, second, x + _feed_forward(p, layer, x, activation), epsilon)
        states.append(x)
    return states


def _predictions(p, encoder, x, activation=gelu, epsilon=1e-12):
    """BERT's masked-LM head: its decoder has the embeddings of the tokens."""
    hidden = _norm(p, "masked_lm/norm", activation(_dense(p, "masked_lm/transform", x)), epsilon)
    return hidden @ p[f"{encoder}/embeddings/token"].T + p["masked_lm/bias"]


def bert(p, ids, segments, positions, sees, activation=gelu):
    """BERT for pre-training (arXiv 1810.04805, section 3 and its Figure 2).

    Its logits are also "next_sentence" [2].
    """
    tables = "bert/embeddings"
    x = p[f"{tables}/token"][ids] + p[f"{tables}/segment"][segments]
    x = _norm(p, f"{tables}/norm", x + p[f"{tables}/position"][positions])
    states = _blocks(p, "bert", x, sees, activation)
    pooled = np.tanh(_dense(p, "pooler/dense", states[-1][0]))  # the vector of [CLS]
    return states, {
        "masked_lm": _predictions(p, "bert", states[-1], activation),
        "next_sentence": _dense(p, "next_sentence_head", pooled),
    }


def roberta(p, ids, segments, positions, sees, activation=gelu):
    """RoBERTa (arXiv 1907.11692; `make_positions` of fairseq).

    Positions count the tokens, also after padding, and begin after the id of the padding, 1. The
    epsilon of norms is that of PyTorch.
    """
    tables, epsilon = "roberta/embeddings", 1e-5
    x = p[f"{tables}/token"][ids] + p[f"{tables}/segment"][segments]
    x += p[f"{tables}/position"][2 + positions - positions[0]]
    x = _norm(p, f"{tables}/norm", x, epsilon)
    states = _blocks(p, "roberta", x, sees, activation, epsilon)
    logits = _predictions(p, "roberta", states[-1], activation, epsilon)
    return states, {"masked_lm": logits}


def distilbert(p, ids, segments, positions, sees, activation=gelu):
    """DistilBERT (arXiv 1910.01108, section 3): without token types and pooler."""
    del segments
    tables = "distilbert/embeddings"
    x = p[f"{tables}/token"][ids] + p[f"{tables}/position"][positions]
    states = _blocks(p, "distilbert", _norm(p, f"{tables}/norm", x), sees, activation)
    return states, {"masked_lm": _predictions(p, "distilbert", states[-1], activation)}


def electra(p, ids, segments, positions, sees, activation=gelu):
    """ELECTRA's generator (arXiv 2003.10555, section 3.2), whose embeddings are narrow.

    The head has gelu with erf, also where the layers have another activation.
    """
    tables = "electra/embeddings"
    x = p[f"{tables}/token"][ids] + p[f"{tables}/segment"][segments]
    x = _norm(p, f"{tables}/norm", x + p[f"{tables}/position"][positions])
    states = _blocks(p, "electra", _dense(p, "electra/projection", x), sees, activation)
    return states, {"masked_lm": _predictions(p, "electra", states[-1])}


def deberta_v2(p, ids, segments, positions, sees, activation=gelu, buckets=8, farthest=29):
    """DeBERTa-v2 (arXiv 2006.03654, section 3.1; `make_log_bucket_position` of microsoft/DeBERTa).

    The epsilon of norms is 1e-7. The distance of a key j from a query i is i - j. Half of the
    buckets of each direction are single distances, and the others widen up to `farthest`.
    """
    del segments

    def bucket(distance):
        size, half = abs(distance), buckets // 2
        if size > half:
            share = math.log(size / half) / math.log((farthest - 1) / half)
            size = half + math.ceil(share * (half - 1))
        return max(0, min(2 * buckets - 1, buckets + int(math.copysign(size, distance))))

    tables, epsilon = "deberta-v2/embeddings", 1e-7
    table = _norm(p, "deberta-v2/encoder/distance_norm", p["deberta-v2/encoder/distance"], epsilon)
    rows = np.array([[bucket(i - j) for j in positions] for i in positions])

    def attend(layer, x):
        here = f"{layer}/attention"

        def product(x):
            y = np.einsum("sd,dcnh->csnh", x, p[f"{here}/qkv/kernel"])
            return y + p[f"{here}/qkv/bias"][:, None]

        (query, key, value), (of_query, of_key, _) = product(x), product(table)
        scores = np.einsum("inh,jnh->nij", query, key)
        scores += np.einsum("inh,ijnh->nij", query, of_key[rows])
        scores += np.einsum("jnh,ijnh->nij", key, of_query[rows])
        shares = softmax(np.where(sees, scores / math.sqrt(3 * query.shape[-1]), -np.inf))
        context = np.einsum("nij,jnh->inh", shares, value)
        return (
            np.einsum("inh,nhd->id", context, p[f"{here}/output/kernel"]) + p[f"{here}/output/bias"]
        )

    def convolution(kernel, x):
        """Of places that are nearer than 3, and in the same document."""
        places = np.arange(len(x))
        near = [sees & (places - places[:, None] == i - 2) for i in range(5)]
        return gelu(np.einsum("kst,ti,iko->so", near, x, kernel) + p[f"{layer}/convolution/bias"])

    states = [_norm(p, f"{tables}/norm", p[f"{tables}/token"][ids], epsilon)]
    while f"deberta-v2/encoder/layer_{len(states) - 1}/output/kernel" in p:
        layer, x = f"deberta-v2/encoder/layer_{len(states) - 1}", states[-1]
        x = _norm(p, f"{layer}/attention_norm", x + attend(layer, x), epsilon)
        x = x + _feed_forward(p, layer, x, activation)
        x = _norm(p, f"{layer}/output_norm", x, epsilon)
        if (kernel := p.get(f"{layer}/convolution/kernel")) is not None:
            x = _norm(p, f"{layer}/convolution_norm", x + convolution(kernel, states[0]), epsilon)
        states.append(x)
    logits = _predictions(p, "deberta-v2", states[-1], activation, epsilon)
    return states, {"masked_lm": logits}


def gpt(p, ids, segments, positions, sees, activation=gelu_tanh):
    """GPT (Radford et al., 2018, section 3.1), which reads left to right.

    The sum of the embeddings has no norm. The decoder is the table of tokens, without a bias.
    """
    del segments
    token = p["openai-gpt/embeddings/token"]
    x = token[ids] + p["openai-gpt/embeddings/position"][positions]
    states = _blocks(p, "openai-gpt", x, np.tril(sees), activation, 1e-5)
    return states, {"masked_lm": states[-1] @ token.T}


def gpt2(p, ids, segments, positions, sees, activation=gelu_tanh):
    """GPT-2 (Radford et al., 2019, section 2.3): GPT with norms before, and one after all."""
    del segments
    token = p["gpt2/embeddings/token"]
    x = token[ids] + p["gpt2/embeddings/position"][positions]
    states = _blocks(p, "gpt2", x, np.tril(sees), activation, 1e-5, norm_first=True)
    states[-1] = _norm(p, "gpt2/final_norm", states[-1], 1e-5)
    return states, {"masked_lm": states[-1] @ token.T}


def xlm(p, ids, languages, positions, sees, activation=gelu):
    """XLM (arXiv 1901.07291, sections 3.1 and 3.4): BERT, whose decoder has no layer before it."""
    token, tables = p["xlm/embeddings/token"], "xlm/embeddings"
    x = token[ids] + p[f"{tables}/position"][positions] + p[f"{tables}/segment"][languages]
    states = _blocks(p, "xlm", _norm(p, f"{tables}/norm", x), sees, activation)
    return states, {"masked_lm": states[-1] @ token.T + p["masked_lm/bias"]}


def xlnet(p, ids, segments, positions, sees, activation=gelu, memory=None, sees_before=None):
    """XLNet (arXiv 1906.08237, sections 2.2 to 2.4 and appendix A.2).

    Args:
      memory: [L, M, D], what each layer reads of the tokens before the text. They are of segment 0,
        and every token sees them.
      sees_before: bool [S, S], as `sees`, for the query stream, which has the logits then.
    """
    del positions  # they are relative
    token = p["xlnet/embeddings/token"]
    width, remembered = token.shape[1], 0 if memory is None else memory.shape[1]
    place, segments = np.arange(-remembered, len(ids)), np.pad(segments, (remembered, 0))
    distance = place[remembered:, None] - place  # [S, T]
    other = (segments[remembered:, None] != segments).astype(int)
    angles = distance[..., None] / 10_000 ** (np.arange(0, width, 2) / width)
    waves = np.concatenate([np.sin(angles), np.cos(angles)], -1)  # [S, T, D]

    def read(layer, x, known, sees):
        """What the tokens of a stream x [S, D] read of `known` [T, D]."""
        here = f"{layer}/attention"
        query = np.einsum("sd,dnh->snh", x, p[f"{here}/query/kernel"])
        key, value = (
            np.einsum("td,dnh->tnh", known, p[f"{here}/{each}/kernel"]) for each in ("key", "value")
        )
        distance = np.einsum("std,dnh->stnh", waves, p[f"{here}/distance/kernel"])
        text = p[f"{here}/text"][other]  # [S, T, N, H]
        scores = np.einsum("snh,tnh->nst", query + p[f"{here}/content_bias"], key)
        scores += np.einsum("snh,stnh->nst", query + p[f"{here}/distance_bias"], distance)
        scores += np.einsum("snh,stnh->nst", query + p[f"{here}/text_bias"], text)
        sees = np.pad(sees, [(0, 0), (remembered, 0)], constant_values=True)
        shares = softmax(np.where(sees, scores / math.sqrt(query.shape[-1]), -np.inf))
        context = np.einsum("nst,tnh->snh", shares, value)
        return np.einsum("snh,nhd->sd", context, p[f"{here}/output/kernel"])

    def after(layer, x, y):
        x = _norm(p, f"{layer}/attention_norm", x + y)
        return _norm(p, f"{layer}/output_norm", x + _feed_forward(p, layer, x, activation))

    states, query = [token[ids]], np.tile(p["xlnet/embeddings/unknown"], (len(ids), 1))
    while f"xlnet/encoder/layer_{len(states) - 1}/output/kernel" in p:
        layer, x = f"xlnet/encoder/layer_{len(states) - 1}", states[-1]
        known = x if memory is None else np.concatenate([memory[len(states) - 1], x])
        if sees_before is not None:
            query = after(layer, query, read(layer, query, known, sees_before))
        states.append(after(layer, x, read(layer, x, known, sees)))
    predicted = states[-1] if sees_before is None else query
    return states, {"masked_lm": predicted @ token.T + p["masked_lm/bias"]}


def transformer_xl(p, ids, segments, positions, sees, activation=None, memory=None):
    """Transformer-XL (arXiv 1901.02860, the equations of section 3.3), written token by token.

    What the paper does not say is that of kimiyoung/transformer-xl: embeddings times the root of
    the width, u and v of each layer (`untie_r`), an epsilon of 1e-5, and the decoder's bias.

    Args:
      memory: [L, M, D], what each layer reads of the tokens before the text.
    """
    del segments, positions
    assert activation is None and sees.all(), "the paper's model has no other"
    token = p["transfo-xl/embeddings/token"]
    width = token.shape[1]
    inverse = 1 / 10_000 ** (np.arange(0, width, 2) / width)
    states = [token[ids] * math.sqrt(width)]
    while f"transfo-xl/encoder/layer_{len(states) - 1}/output/kernel" in p:
        number, x = len(states) - 1, states[-1]
        layer = f"transfo-xl/encoder/layer_{number}"
        here = {
            name.removeprefix(f"{layer}/attention/"): array.reshape(width, width)
            for name, array in p.items()
            if name.startswith(f"{layer}/attention/") and name.endswith("kernel")
        }
        u, v = p[f"{layer}/attention/content_bias"], p[f"{layer}/attention/distance_bias"]
        heads, size = u.shape
        known = x if memory is None else np.concatenate([memory[number], x])
        read = np.zeros_like(x)
        for i in range(len(x)):
            at = len(known) - len(x) + i  # the place of the query among the keys
            query = (x[i] @ here["query/kernel"]).reshape(heads, size)
            scores = np.empty((heads, at + 1))
            for j in range(at + 1):
                angles = (at - j) * inverse
                wave = np.concatenate([np.sin(angles), np.cos(angles)])
                key = (known[j] @ here["key/kernel"]).reshape(heads, size)
                distance = (wave @ here["distance/kernel"]).reshape(heads, size)
                scores[:, j] = ((query + u) * key + (query + v) * distance).sum(-1)
            values = (known[: at + 1] @ here["value/kernel"]).reshape(-1, heads, size)
            context = np.einsum("nt,tnh->nh", softmax(scores / math.sqrt(size)), values)
            read[i] = context.reshape(-1) @ here["output/kernel"]
        x = _norm(p, f"{layer}/attention_norm", x + read, 1e-5)
        y = _feed_forward(p, layer, x, lambda z: np.maximum(z, 0))
        states.append(_norm(p, f"{layer}/output_norm", x + y, 1e-5))
    return states, {"masked_lm": states[-1] @ token.T + p["masked_lm/bias"]}


def _through(activation):
    return lambda p, x: activation(_dense(p, "dense", x))


# What becomes of the vector of one token, which stands for the text: as in the papers' own code,
# that of BERT, fairseq, XLNet and XLM, or else in transformers.
WHOLE_TEXT = {
    "bert": _through(np.tanh),
    "roberta": _through(np.tanh),
    "distilbert": _through(lambda x: np.maximum(x, 0)),
    "electra": _through(gelu),
    "deberta-v2": _through(gelu),
    "modernbert": lambda p, x: layer_norm(gelu(x @ p["dense/kernel"]), p["norm/scale"], 0, 1e-5),
    "openai-gpt": lambda p, x: x,
    "gpt2": lambda p, x: x,
    "xlm": lambda p, x: x,
    "xlnet": _through(np.tanh),
    "neobert": _through(np.tanh),
}


def rotary(x, positions, theta):
    """RoFormer (arXiv 2104.09864, section 3.2.2): planes of (i, i + H / 2) turn by m theta^(-2i/H).

    Args:
      x: [S, N, H].
      positions: m, int [S].
    """
    half = x.shape[-1] // 2
    turned = np.empty_like(x)
    for i in range(half):
        angle = positions[:, None] * theta ** (-2 * i / x.shape[-1])
        first, second = x[..., i], x[..., i + half]
        turned[..., i] = first * np.cos(angle) - second * np.sin(angle)
        turned[..., i + half] = first * np.sin(angle) + second * np.cos(angle)
    return turned


def modernbert(p, ids, segments, positions, sees, activation=gelu, window=64):
    """ModernBERT for pre-training (arXiv 2412.13663, section 2.1 and appendix A).

    Every third layer, from the first on, is global, with theta 160,000; the others see a window,
    with theta 10,000. Products and norms have no bias, and the epsilon of norms is 1e-5. The first
    layer has no norm before its attention, and the output of the last has one. The decoder has a
    bias.

    Args:
      window: the positions on either side that a token sees in a local layer.
    """
    del segments

    def norm(x, path):
        return layer_norm(x, p[f"{path}/scale"], 0, 1e-5)

    near = np.abs(np.arange(len(ids))[:, None] - np.arange(len(ids))) <= window
    x = norm(p["modernbert/embeddings/token"][ids], "modernbert/embeddings/norm")
    states = [x]
    while f"modernbert/encoder/layer_{len(states) - 1}/attention/qkv/kernel" in p:
        number = len(states) - 1
        layer = f"modernbert/encoder/layer_{number}"
        is_global = number % 3 == 0
        y = norm(x, f"{layer}/attention_norm") if number else x
        query, key, value = np.einsum("sd,dcnh->csnh", y, p[f"{layer}/attention/qkv/kernel"])
        theta = 160_000 if is_global else 10_000
        query, key = rotary(query, positions, theta), rotary(key, positions, theta)
        context = self_attention(query, key, value, sees if is_global else sees & near)
        x = x + np.einsum("snh,nhd->sd", context, p[f"{layer}/attention/output/kernel"])
        y = norm(x, f"{layer}/output_norm")
        # GeGLU (arXiv 2002.05202): GELU(x W) * (x V); the kernel holds W, then V.
        inner, gate = np.einsum("sd,dgf->gsf", y, p[f"{layer}/intermediate/kernel"])
        x = x + (activation(inner) * gate) @ p[f"{layer}/output/kernel"]
        states.append(x)
    states[-1] = norm(x, "modernbert/final_norm")
    hidden = norm(activation(states[-1] @ p["masked_lm/transform/kernel"]), "masked_lm/norm")
    logits = hidden @ p["modernbert/embeddings/token"].T + p["masked_lm/bias"]
    return states, {"masked_lm": logits}


def _llama_like(p, name, x, positions, sees, activation, theta):
    """EuroBERT's and NeoBERT's encoder: no biases, RMSNorm before each sublayer, SwiGLU, rotation.

    Heads of the query share those of key and value in the order of their numbers, as in grouped-
    query attention (arXiv 2305.13245). The epsilon of norms is 1e-5.

    Returns:
      x [S, D], and the output of each layer; that of the last is normalized.
    """

    def norm(x, path):
        return rms_norm(x, p[f"{path}/scale"], 1e-5)

    states = [x]
    while f"{name}/encoder/layer_{len(states) - 1}/output/kernel" in p:
        layer = f"{name}/encoder/layer_{len(states) - 1}"
        y, here = norm(x, f"{layer}/attention_norm"), f"{layer}/attention"
        if f"{here}/qkv/kernel" in p:
            query, key, value = np.einsum("sd,dcnh->csnh", y, p[f"{here}/qkv/kernel"])
        else:
            query = np.einsum("sd,dnh->snh", y, p[f"{here}/query/kernel"])
            key, value = np.einsum("sd,dckh->cskh", y, p[f"{here}/key_value/kernel"])
            share = query.shape[1] // key.shape[1]
            key, value = np.repeat(key, share, 1), np.repeat(value, share, 1)
        query, key = rotary(query, positions, theta), rotary(key, positions, theta)
        context = self_attention(query, key, value, sees)
        x = x + np.einsum("snh,nhd->sd", context, p[f"{here}/output/kernel"])
        y = norm(x, f"{layer}/output_norm")
        # SwiGLU (arXiv 2002.05202): Swish(x W) * (x V); the kernel holds W, then V.
        inner, gate = np.einsum("sd,dgf->gsf", y, p[f"{layer}/intermediate/kernel"])
        x = x + (activation(inner) * gate) @ p[f"{layer}/output/kernel"]
        states.append(x)
    states[-1] = norm(x, f"{name}/final_norm")
    return states


def eurobert(p, ids, segments, positions, sees, activation=silu):
    """EuroBERT (arXiv 2503.05500, section 2.1), of which the decoder is a table, without bias.

    The base of the rotation is that of the published models, which read 8,192 tokens.
    """
    del segments
    x = p["eurobert/embeddings/token"][ids]
    states = _llama_like(p, "eurobert", x, positions, sees, activation, 250_000)
    return states, {"masked_lm": states[-1] @ p["masked_lm/kernel"].T}


def neobert(p, ids, segments, positions, sees, activation=silu):
    """NeoBERT (arXiv 2502.19587, section 3.1), of which the decoder is a table, with a bias."""
    del segments
    x = p["neobert/embeddings/token"][ids]
    states = _llama_like(p, "neobert", x, positions, sees, activation, 10_000)
    return states, {"masked_lm": states[-1] @ p["masked_lm/kernel"].T + p["masked_lm/bias"]}


def late(p, states):
    """What EuroBERT's classifier reads of a text [S, D]: a mean, after a layer for each token."""
    return gelu(_dense(p, "dense", states)).mean(0)
