"""BERT and ModernBERT in numpy and float64, written from their papers and not from this code.

Sizes are those of the arrays; all other numbers are the papers'. The functions take one sequence:
int ids [S], and `sees`, bool [S, S], True where a query (row) sees a key (column). An array of
parameters is found by its path, "bert/encoder/layer_0/attention/qkv/kernel".
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


def layer_norm(x, scale, bias, epsilon):
    """Layer normalization (arXiv 1607.06450) of the last axis."""
    apart = x - x.mean(-1, keepdims=True)
    return apart / np.sqrt((apart**2).mean(-1, keepdims=True) + epsilon) * scale + bias


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


def bert(p, ids, segments, positions, sees, activation=gelu):
    """BERT for pre-training (arXiv 1810.04805, section 3 and its Figure 2).

    Args:
      p: the parameters by path; the epsilon of its norms is 1e-12.
      segments, positions: int [S], of each token.

    Returns:
      hidden states, the embeddings' and each layer's, [S, D]; and logits: "masked_lm" [S, V], at
      every token, and "next_sentence" [2].
    """

    def norm(x, path):
        return layer_norm(x, p[f"{path}/scale"], p[f"{path}/bias"], 1e-12)

    def dense(x, path):
        return x @ p[f"{path}/kernel"] + p[f"{path}/bias"]

    tables = "bert/embeddings"
    x = p[f"{tables}/token"][ids] + p[f"{tables}/segment"][segments]
    x = norm(x + p[f"{tables}/position"][positions], f"{tables}/norm")
    states = [x]
    while f"bert/encoder/layer_{len(states) - 1}/output/kernel" in p:
        layer = f"bert/encoder/layer_{len(states) - 1}"
        product = np.einsum("sd,dcnh->csnh", x, p[f"{layer}/attention/qkv/kernel"])
        query, key, value = product + p[f"{layer}/attention/qkv/bias"][:, None]
        context = self_attention(query, key, value, sees)
        y = np.einsum("snh,nhd->sd", context, p[f"{layer}/attention/output/kernel"])
        x = norm(x + y + p[f"{layer}/attention/output/bias"], f"{layer}/attention_norm")
        y = dense(activation(dense(x, f"{layer}/intermediate")), f"{layer}/output")
        x = norm(x + y, f"{layer}/output_norm")
        states.append(x)
    hidden = norm(activation(dense(x, "masked_lm/transform")), "masked_lm/norm")
    pooled = np.tanh(dense(x[0], "pooler/dense"))  # the vector of [CLS]
    return states, {
        "masked_lm": hidden @ p[f"{tables}/token"].T + p["masked_lm/bias"],
        "next_sentence": dense(pooled, "next_sentence_head"),
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


def modernbert(p, ids, positions, sees, window, activation=gelu):
    """ModernBERT for pre-training (arXiv 2412.13663, section 2.1 and appendix A).

    Every third layer, from the first on, is global, with theta 160,000; the others see a window,
    with theta 10,000. Products and norms have no bias, and the epsilon of norms is 1e-5. The first
    layer has no norm before its attention. The decoder has a bias.

    Args:
      p: the parameters by path.
      positions: int [S], of each token.
      window: the positions on either side that a token sees in a local layer.

    Returns:
      hidden states, the embeddings' and each layer's, [S, D], of which the last is normalized once
      more; and logits: "masked_lm" [S, V], at every token.
    """

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
        inner, gate = np.einsum("sd,dgf->gsf", y, p[f"{layer}/feed_forward/intermediate/kernel"])
        x = x + (activation(inner) * gate) @ p[f"{layer}/feed_forward/output/kernel"]
        states.append(x)
    states[-1] = norm(x, "modernbert/final_norm")
    hidden = norm(activation(states[-1] @ p["masked_lm/head/dense/kernel"]), "masked_lm/head/norm")
    logits = hidden @ p["modernbert/embeddings/token"].T + p["masked_lm/bias"]
    return states, {"masked_lm": logits}
