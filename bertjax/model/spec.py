"""The shape of one BERT: sizes by name, and the switches that change how it is computed."""

import dataclasses

# (layers, hidden size, attention heads); the feed-forward width is 4 times the hidden size.
SIZES = {
    "tiny": (2, 128, 2),  # tiny to medium: Turc et al. (arXiv 1908.08962), Table 1
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),  # base and large: BERT, section 3
    "large": (24, 1024, 16),
    "L3_H768_A12": (3, 768, 12),  # the rows of BERT's Table 6
    "L6_H768_A3": (6, 768, 3),
    "L6_H768_A12": (6, 768, 12),
    "L12_H768_A12": (12, 768, 12),
    "L12_H1024_A16": (12, 1024, 16),
    "L24_H1024_A16": (24, 1024, 16),
}

_CHOICES = {
    "hidden_act": ("gelu", "gelu_tanh"),
    "compute_dtype": ("float32", "bfloat16"),
    "gradient_dtype": ("float32", "bfloat16"),
    "attention": ("einsum", "fused"),
    "remat": ("none", "attention", "layer"),
}


@dataclasses.dataclass(frozen=True)
class BertSpec:
    """Sizes and switches of one encoder; the names are those of `bert_config.json`.

    Raises:
      ValueError: a value that does not fit, naming the field.
    """

    vocab_size: int = 30_522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: str = "gelu"  # "gelu": erf, the paper's; "gelu_tanh": google-research/bert's code
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    causal: bool = False  # left-to-right attention, for Table 5's "LTR"
    # How it is computed; the function stays the same.
    compute_dtype: str = "float32"  # parameters are float32 always
    gradient_dtype: str = "float32"  # in which the gradients of kernels are summed over devices
    vocab_multiple: int = 1  # rows of padding make the vocabulary divide by this; never predicted
    scan_layers: bool = False  # one compiled layer, looped: faster to compile, slower to run
    remat: str = "none"  # recomputed in the backward pass: nothing, attention, or whole layers
    attention: str = "einsum"  # "fused": jax.nn.dot_product_attention, without its dropout

    def __post_init__(self):
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}={getattr(self, name)!r}: must be one of {choices}")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and (not isinstance(value, int) or isinstance(value, bool)):
                raise ValueError(f"{field.name}={value!r}: must be a whole number")
            if field.type is int and value < 1:
                raise ValueError(f"{field.name}={value}: must be at least 1")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be in [0, 1)")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} does not divide over "
                f"num_attention_heads={self.num_attention_heads}"
            )
        if self.attention == "fused" and self.attention_probs_dropout_prob:
            raise ValueError(
                'attention="fused" cannot drop attention probabilities: '
                "set attention_probs_dropout_prob=0.0"
            )

    @classmethod
    def named(cls, size: str, **fields) -> "BertSpec":
        """A spec by its size's name (a key of `SIZES`), with other fields as given."""
        if size not in SIZES:
            raise ValueError(f"size={size!r}: must be one of {', '.join(SIZES)}")
        layers, hidden, heads = SIZES[size]
        sizes = dict(
            num_hidden_layers=layers,
            hidden_size=hidden,
            num_attention_heads=heads,
            intermediate_size=4 * hidden,
        )
        return cls(**(sizes | fields))

    @property
    def head_width(self) -> int:
        """H, the width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding table: `vocab_size` rounded up to `vocab_multiple`."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple

    def flops_per_token(self, length: int, predicted: int) -> float:
        """Useful floating-point operations of one training step, for each token.

        Matrix products only, forward and backward (6 per weight and token), at sequence
        length `length` with `predicted` positions a sequence through the vocabulary; no
        credit for recomputation.
        """
        layers, width, inner = self.num_hidden_layers, self.hidden_size, self.intermediate_size
        products = layers * (4 * width * width + 2 * width * inner)
        attention = layers * 2 * width * length
        head = predicted / length * (width * self.vocab_size + width * width)
        return 6.0 * (products + attention + head)


def plain_spec(spec: BertSpec) -> BertSpec:
    """The same model in plain storage: see `bertjax.model.storage`."""
    return dataclasses.replace(spec, scan_layers=False, vocab_multiple=1, remat="none")
