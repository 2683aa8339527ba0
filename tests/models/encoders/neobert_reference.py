"""NeoBERT (arXiv 2502.19587) in PyTorch, because transformers does not have it.

It computes what model.py and rotary.py of chandar-lab/NeoBERT on the Hugging Face hub compute, with
their classes, names of arrays and fields of config.json, but is written anew. Only tests use it.
"""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional


@dataclasses.dataclass
class NeoBERTConfig:
    """The fields of the published config.json that the outputs depend on, with its values."""

    vocab_size: int = 30_522
    hidden_size: int = 768
    num_hidden_layers: int = 28
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    norm_eps: float = 1e-5  # where the file lacks it, the code takes 1e-6
    classifier_dropout: float = 0.1
    num_labels: int = 2


def rotary(x: torch.Tensor) -> torch.Tensor:
    """Turns the planes of columns (2 i, 2 i + 1), [B, S, N, H], by S 10000^(-2i/H)."""
    length, width = x.shape[1], x.shape[-1]
    speeds = 10_000.0 ** (-torch.arange(0, width, 2).to(x) / width)
    angles = torch.outer(torch.arange(length).to(x), speeds)
    turns = torch.polar(torch.ones_like(angles), angles)[:, None]
    planes = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(planes * turns).flatten(-2)


class Layer(nn.Module):
    """One layer, with norms before its sublayers; dense layers have no bias."""

    def __init__(self, config: NeoBERTConfig):
        super().__init__()
        width, eps, self.heads = config.hidden_size, config.norm_eps, config.num_attention_heads
        inner = 8 * math.ceil(2 * config.intermediate_size // 3 / 8)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(width, eps), nn.RMSNorm(width, eps)
        self.qkv = nn.Linear(width, 3 * width, bias=False)  # of each head: query, key, value
        self.wo = nn.Linear(width, width, bias=False)
        self.ffn = nn.ModuleDict(
            {
                "w12": nn.Linear(width, 2 * inner, bias=False),  # what silu takes, then the factor
                "w3": nn.Linear(inner, width, bias=False),
            }
        )

    def forward(self, x: torch.Tensor, sees: torch.Tensor | None) -> torch.Tensor:
        """x: [B, S, D]; sees: bool [B, 1, 1, S], the keys that are no padding."""
        heads = self.qkv(self.attention_norm(x)).unflatten(-1, (self.heads, -1))
        query, key, value = heads.chunk(3, -1)
        query, key, value = (y.transpose(1, 2) for y in (rotary(query), rotary(key), value))
        context = functional.scaled_dot_product_attention(query, key, value, sees)
        x = x + self.wo(context.transpose(1, 2).flatten(-2))
        inner, factor = self.ffn["w12"](self.ffn_norm(x)).chunk(2, -1)
        return x + self.ffn["w3"](functional.silu(inner) * factor)


class NeoBERT(nn.Module):
    """The encoder: ids [B, S] -> the states [B, S, D], the last of them normalized."""

    def __init__(self, config: NeoBERTConfig):
        super().__init__()
        self.encoder = nn.Embedding(config.vocab_size, config.hidden_size)
        layers = range(config.num_hidden_layers)
        self.transformer_encoder = nn.ModuleList(Layer(config) for _ in layers)
        self.layer_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)

    def hidden_states(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> list[torch.Tensor]:
        """The embeddings, and the output of each layer; attention_mask: [B, S], 0 at padding."""
        sees = None if attention_mask is None else attention_mask.bool()[:, None, None]
        states = [self.encoder(input_ids)]
        for layer in self.transformer_encoder:
            states.append(layer(states[-1], sees))
        return [*states[:-1], self.layer_norm(states[-1])]

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """The output of the last layer, normalized."""
        return {"last_hidden_state": self.hidden_states(input_ids, attention_mask)[-1]}


class NeoBERTLMHead(nn.Module):
    """The logits of all tokens [B, S, V]; the decoder has a table of its own, and a bias."""

    def __init__(self, config: NeoBERTConfig):
        super().__init__()
        self.model = NeoBERT(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """See above."""
        return {"logits": self.decoder(self.model.hidden_states(input_ids, attention_mask)[-1])}


class NeoBERTForSequenceClassification(nn.Module):
    """The logits of a text [B, C], from its first token."""

    def __init__(self, config: NeoBERTConfig):
        super().__init__()
        self.model = NeoBERT(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """See above; what is dropped is the input of both dense layers."""
        first = self.dropout(self.model.hidden_states(input_ids, attention_mask)[-1][:, 0])
        hidden = self.dropout(torch.tanh(self.dense(first)))
        return {"logits": self.classifier(hidden)}
