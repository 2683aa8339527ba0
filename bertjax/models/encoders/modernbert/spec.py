"""The spec of one ModernBERT: its sizes by name, and how it is computed."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bertjax.models.encoders.computation import AttentionComputation, check_choice, check_shares

# (layers, hidden size, attention heads, feed-forward width)
SIZES = {
    "tiny": (2, 128, 2, 336),  # tiny and mini: about as many parameters a layer as BERT's
    "mini": (4, 256, 4, 680),
    "17m": (7, 256, 4, 384),  # 17m to 1b: Ettin (arXiv 2507.11412), Table 1
    "32m": (10, 384, 6, 576),
    "68m": (19, 512, 8, 768),
    "base": (22, 768, 12, 1152),  # base and large: ModernBERT, Table 4; Ettin's 150m and 400m
    "large": (28, 1024, 16, 2624),
    "1b": (28, 1792, 28, 3840),
}

ROTARY, LEARNED = "rotary", "learned"
BEFORE, AFTER = "before", "after"
GATED, PLAIN = "gated", "plain"


@dataclasses.dataclass(frozen=True)
class ModernBertArchitecture:
    """The function that an encoder computes; the defaults are ModernBERT-base's.

    Attributes:
      positions: "rotary", or "learned": a table of positions that is added to the embeddings.
      norm: "before" each part (pre-norm), and once at the end; or "after" the part is added to its
        input (post-norm).
      feed_forward: "gated" (GeGLU, arXiv 2002.05202), or "plain", with one product less.
      global_attn_every_n_layers: the first layer and every n-th after it see the whole sequence;
        the others see a window.
      local_attention: the width of the window; a token sees half of it on either side.
      global_rope_theta, local_rope_theta: the base of the rotary frequencies in both kinds of
        layers.
      classifier_pooling: what heads of whole sequences read: "cls", or the "mean" of all tokens.
      hidden_dropout_prob: the rate of dropout of the embeddings, in the feed-forward, and before a
        task's output layer, as in transformers.
      attention_probs_dropout_prob: the rate of dropout of attention's probabilities and of its
        output, as in transformers.
      causal: whether a token sees only those before it.
    """

    vocab_size: int = 50_368
    hidden_size: int = 768
    num_hidden_layers: int = 22
    num_attention_heads: int = 12
    intermediate_size: int = 1152
    max_position_embeddings: int = 8192
    positions: str = ROTARY
    norm: str = BEFORE
    feed_forward: str = GATED
    global_attn_every_n_layers: int = 3
    local_attention: int = 128
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    classifier_pooling: str = "cls"
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.0
    attention_probs_dropout_prob: float = 0.0
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-5
    causal: bool = False


@dataclasses.dataclass(frozen=True)
class ModernBertSpec(AttentionComputation, ModernBertArchitecture):
    """The architecture of one ModernBERT (arXiv 2412.13663, section 2.1), and how it is computed.

    Raises:
      ValueError: a value does not fit; the message names the field.
    """

    encoder: ClassVar[str] = "modernbert"
    sizes: ClassVar[Mapping[str, tuple[int, ...]]] = SIZES
    type_vocab_size: ClassVar[int] = 0
    phase_fields: ClassVar[tuple[str, ...]] = (
        *AttentionComputation.phase_fields,
        *("global_rope_theta", "local_rope_theta"),
    )

    def __post_init__(self):
        super().__post_init__()
        check_choice(self, "positions", (ROTARY, LEARNED))
        check_choice(self, "norm", (BEFORE, AFTER))
        check_choice(self, "feed_forward", (GATED, PLAIN))
        check_choice(self, "classifier_pooling", ("cls", "mean"))
        check_choice(self, "hidden_act", ("gelu", "gelu_tanh"))
        check_shares(self, "hidden_dropout_prob", "attention_probs_dropout_prob", "layer_norm_eps")
        if self.positions == ROTARY and self.head_width % 2:
            raise ValueError(
                f"hidden_size={self.hidden_size} gives each of num_attention_heads="
                f"{self.num_attention_heads} a width of {self.head_width}: rotary positions need "
                "an even width"
            )
        if self.local_attention < 2:
            raise ValueError(
                f"local_attention={self.local_attention}: a window of no tokens: must be at least 2"
            )
        for theta in ("global_rope_theta", "local_rope_theta"):
            if not getattr(self, theta) > 1:
                raise ValueError(f"{theta}={getattr(self, theta)}: must be above 1")
        if self.scan_layers:
            raise ValueError(
                "scan_layers=True: the layers of modernbert are not alike, so they cannot be "
                "scanned: set it to False"
            )

    def is_global(self, layer: int) -> bool:
        """Whether a layer, counted from 0, sees the whole sequence."""
        return layer % self.global_attn_every_n_layers == 0

    def layer_kind(self, layer: int) -> str:
        """See `bertjax.models.encoders.contract.EncoderSpec`."""
        return "global" if self.is_global(layer) else "local"

    def flops_per_token(self, length: int, predicted: int, context: float | None = None) -> float:
        """See `bertjax.models.encoders.contract.EncoderSpec`; of a window, the keys seen."""
        layers, width = self.num_hidden_layers, self.hidden_size
        feed_forward = (3 if self.feed_forward == GATED else 2) * width * self.intermediate_size
        products = layers * (4 * width * width + feed_forward)
        context = length if context is None else context
        window = min(context, 2 * (self.local_attention // 2) + 1)
        seen = sum(context if self.is_global(layer) else window for layer in range(layers))
        head = predicted / length * (width * self.vocab_size + width * width)
        return 6.0 * (products + 2 * width * seen + head)
