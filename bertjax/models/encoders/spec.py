"""The spec of one transformer encoder: every setting of the block that its presets share."""

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

import jax

from bertjax.base.limits import Count, CountOrNone, Few, Kinds, Many, Meta, Pieces, Rate, Width
from bertjax.models.attention.choice import Call, Way, taken
from bertjax.models.attention.contract import AttentionPattern
from bertjax.models.encoders.computation import AttentionComputation

_CHOICES = {
    "type_input": ("token_type_ids", "language_ids"),
    "positions": ("rotary", "learned", "counted", "disentangled"),
    "norm": ("before", "after"),
    "norm_type": ("layer", "unbiased", "rms"),
    "feed_forward": ("gated", "plain"),
    "dropout_of": ("outputs", "inner"),
    "classifier_pooling": ("cls", "mean", "late"),
    "hidden_act": ("gelu", "gelu_tanh", "silu"),
    "conv_act": ("gelu", "gelu_tanh", "silu", "tanh"),
    "lm_head": ("transform", "bias", "none"),
}


@dataclasses.dataclass(frozen=True)
class TransformerArchitecture:
    """The function that an encoder computes. Where config.json has a setting, the name is its."""

    vocab_size: Pieces = 30_522
    hidden_size: Width = 768
    num_hidden_layers: Few = 12
    num_attention_heads: Count = 12
    intermediate_size: Many = 3072
    max_position_embeddings: Many = 512
    type_vocab_size: Kinds = 0
    positions: str = "learned"
    norm: str = "after"
    feed_forward: str = "plain"
    global_attn_every_n_layers: Count = 1
    local_attention: Annotated[int, Meta(ge=2)] = 128
    global_rope_theta: Annotated[float, Meta(gt=1)] = 10_000.0
    local_rope_theta: Annotated[float, Meta(gt=1)] = 10_000.0
    classifier_pooling: str = "cls"
    hidden_act: str = "gelu"
    hidden_dropout_prob: Rate = 0.1
    attention_probs_dropout_prob: Rate = 0.1
    initializer_range: float = 0.02
    layer_norm_eps: Rate = 1e-12
    causal: bool = False


@dataclasses.dataclass(frozen=True)
class TransformerSpec(AttentionComputation, TransformerArchitecture):
    """The settings of a transformer encoder. A preset is a subclass, whose body is a row of values.

    Only the `fields` of a preset are fields of its dataclass, which configs may name; the other
    settings are constants of the class. The order of the fields is that of this class.

    Attributes:
      vocab_size: the pieces of the vocabulary; in pre-training, the corpus decides it.
      hidden_size: D, the width of the layers.
      num_hidden_layers: the layers.
      num_attention_heads: the heads of attention, which divide the width.
      intermediate_size: the inner width of the feed-forward.
      max_position_embeddings: the most tokens of a sequence.
      hidden_dropout_prob: the rate of dropout of embeddings and of the sublayers' outputs.
      attention_probs_dropout_prob: the rate of dropout of attention's probabilities.
      initializer_range: the standard deviation of random kernels and tables.
      layer_norm_eps: what a norm adds to the variance.
      pad_token_id: the id of the padding.
      type_vocab_size: the number of token types, or of languages; 0: no embeddings of them.
      type_input: the array that has them. A batch without it adds none.
      positions: "learned": a table of positions that is added to the embeddings; "counted": the
        same, where positions count the tokens and begin after `pad_token_id` (fairseq's
        `make_positions`); "rotary" (arXiv 2104.09864); "disentangled": a table of distances, in
        the scores of attention (DeBERTa, arXiv 2006.03654).
      norm: "after" a sublayer is added to its input (post-norm); or "before" each sublayer
        (pre-norm), and once at the end.
      norm_type: "layer"; "unbiased": a layer normalization without bias; "rms" (arXiv 1910.07467).
      embedding_norm: whether the embeddings are normalized. With the norm "before", the first
        layer then has none before its attention.
      feed_forward: "plain", or "gated" (arXiv 2002.05202), with one product more.
      use_bias: whether the products of the layers add biases.
      hidden_act: "gelu": the erf form; "gelu_tanh": that of google-research/bert's code; "silu".
      global_attn_every_n_layers: the first layer and every n-th after it see the whole sequence;
        the others see a window.
      local_attention: the width of the window; a token sees half of it on either side.
      global_rope_theta, local_rope_theta: the base of the rotary frequencies in both kinds of
        layers.
      num_key_value_heads: K, the heads of keys and values, which divides the heads of queries
        (arXiv 2305.13245); 0: as many.
      position_buckets: the distances in either direction that have rows of their own in that table;
        the nearer half of them is exact, and the others are ranges of distances.
      max_relative_positions: the distance from which on all have one row; 0:
        `max_position_embeddings`.
      conv_kernel_size: how many tokens, side by side in a document, a convolution of the embeddings
        reads, whose output is added to that of the first layer (arXiv 2006.03654, section 5.3); 0:
        there is none.
      conv_act: its activation: one of `hidden_act`, or "tanh".
      dropout_of: "outputs": of attention and of the feed-forward, at `hidden_dropout_prob`; or
        "inner": of the feed-forward's inner columns at that rate, and of attention's output at
        `attention_probs_dropout_prob`.
      residual_by_depth: whether random kernels whose products are added to the residual are smaller
        in deeper models.
      classifier_pooling: what heads of whole sequences read: "cls", or the last token left to
        right; the "mean" of all tokens; or "late", the mean of what the head makes of each token.
      lm_head: what stands before the decoder: "transform": a dense layer, an activation and a norm;
        "bias": nothing, but its bias; "none".
      lm_act: the activation of the transform; "": `hidden_act`.
      tied: whether the decoder is the table of the token embeddings.
      embedding_size: E, the width of the embeddings, which a product makes as wide as the layers;
        0: that of the layers.
      causal: whether a token sees only those before it.

    Raises:
      ValueError: a value does not fit; the message names the field.
    """

    encoder: ClassVar[str]
    fields: ClassVar[tuple[str, ...]]
    biases_scores: ClassVar[bool] = False  # the scores of attention get a bias that no kernel adds
    choices = {**AttentionComputation.choices, **_CHOICES}

    pad_token_id: CountOrNone = 0
    embedding_size: CountOrNone = 0
    num_key_value_heads: CountOrNone = 0
    position_buckets: Annotated[int, Meta(ge=2)] = 256
    max_relative_positions: CountOrNone = 0
    conv_kernel_size: Annotated[int, Meta(ge=0, le=1_000)] = 0
    conv_act: str = "gelu"
    type_input: str = "token_type_ids"
    norm_type: str = "layer"
    embedding_norm: bool = True
    use_bias: bool = True
    dropout_of: str = "outputs"
    residual_by_depth: bool = False
    lm_head: str = "transform"
    lm_act: str = ""
    tied: bool = True

    def __init_subclass__(cls, fields: Iterable[str] = (), **keywords: Any) -> None:
        """Makes a preset; `fields` are its fields, besides `COMPUTED`. (): those of its parent."""
        super().__init_subclass__(**keywords)
        cls.fields = tuple(fields) or cls.fields
        types = {field.name: field.type for field in dataclasses.fields(TransformerSpec)}
        open_to_configs = {*cls.fields, *COMPUTED}
        cls.__annotations__ = {
            name: of if name in open_to_configs else ClassVar[of] for name, of in types.items()
        }
        dataclasses.dataclass(frozen=True)(cls)

    def __post_init__(self):
        super().__post_init__()
        if self.num_attention_heads % self.key_value_heads:
            raise ValueError(
                f"num_key_value_heads={self.num_key_value_heads} does not divide "
                f"num_attention_heads={self.num_attention_heads}"
            )
        if self.positions == "rotary" and self.head_width % 2:
            raise ValueError(
                f"hidden_size={self.hidden_size} gives each of num_attention_heads="
                f"{self.num_attention_heads} a width of {self.head_width}: rotary positions need "
                "an even width"
            )
        if self.position_buckets % 2:
            raise ValueError(f"position_buckets={self.position_buckets}: must be even")
        if self.conv_kernel_size and not self.conv_kernel_size % 2:
            raise ValueError(f"conv_kernel_size={self.conv_kernel_size}: must be odd, or 0")
        if self.conv_kernel_size and self.causal:
            raise ValueError(
                f"conv_kernel_size={self.conv_kernel_size}: left to right, a token would see those "
                "after it: set it to 0"
            )
        if self.scan_layers and not self._layers_are_alike:
            raise ValueError(
                f"scan_layers=True: the layers of {self.encoder} are not alike, so they cannot be "
                "scanned: set it to False"
            )

    @property
    def key_value_heads(self) -> int:
        """K, the heads of keys and values."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        """E, the width of the embeddings."""
        return self.embedding_size or self.hidden_size

    @property
    def position_rows(self) -> int:
        """The rows of the table of positions; 0: there is none."""
        if self.positions in ("rotary", "disentangled"):
            return 0
        return self.max_position_embeddings + self.first_position

    @property
    def farthest(self) -> int:
        """The distance from which on all have one row in the table of distances."""
        return self.max_relative_positions or self.max_position_embeddings

    @property
    def first_position(self) -> int:
        """The row of the first token's position."""
        return self.pad_token_id + 1 if self.positions == "counted" else 0

    @property
    def residual_range(self) -> float:
        """The standard deviation of random kernels whose products are added to the residual."""
        by = (2 * self.num_hidden_layers) ** 0.5 if self.residual_by_depth else 1
        return self.initializer_range / by

    @property
    def pre_norm(self) -> bool:
        """Whether the norms stand before the sublayers."""
        return self.norm == "before"

    @property
    def _layers_are_alike(self) -> bool:
        first_differs = (self.pre_norm and self.embedding_norm) or self.conv_kernel_size > 0
        return self.global_attn_every_n_layers == 1 and not first_differs

    def is_global(self, layer: int) -> bool:
        """Whether a layer, counted from 0, sees the whole sequence."""
        return layer % self.global_attn_every_n_layers == 0

    def window(self, layer: int) -> int | None:
        """How many tokens a token of the layer sees on either side; None: all."""
        return None if self.is_global(layer) else self.local_attention // 2

    def theta(self, layer: int) -> float:
        """The base of the layer's rotary frequencies."""
        return self.global_rope_theta if self.is_global(layer) else self.local_rope_theta

    def layer_type(self, layer: int) -> str:
        if self.global_attn_every_n_layers == 1:
            return ""
        return "global" if self.is_global(layer) else "local"

    def attention_by(self, length: int) -> str:
        """Says what computes attention in training, and why, as "by flash at length 512"."""
        found: dict[Way, str] = {}
        for layer in range(self.num_hidden_layers):
            pattern = AttentionPattern(self.causal, self.window(layer))
            rate = self.attention_probs_dropout_prob
            call = Call(
                *(length, self.head_width, self.compute_dtype, pattern, rate),
                bias=self.biases_scores,
                distances=self.positions == "disentangled",
            )
            found.setdefault(taken(self.attention, call), self.layer_type(layer))
        several = len({way.name for way in found}) > 1
        ways = [
            way.name + f" in {layer_type} layers" * several for way, layer_type in found.items()
        ]
        reasons = "; ".join(dict.fromkeys(way.why for way in found if way.why))
        names = " and ".join(dict.fromkeys(ways))
        return f"by {names} at length {length}" + (f" ({reasons})" if reasons else "")

    def layer_scope(self, layer: int) -> contextlib.AbstractContextManager[Any]:
        """The scope by which the compile report tells the kinds of layers apart."""
        layer_type = self.layer_type(layer)
        return jax.named_scope(f"{layer_type}_layer") if layer_type else contextlib.nullcontext()

    def flops_per_token(self, length: int, predicted: int, context: float | None = None) -> float:
        """See `bertjax.models.encoders.contract.EncoderSpec`; of a window, the keys seen."""
        layers, width, embedding = self.num_hidden_layers, self.hidden_size, self.embedding_width
        inner = (3 if self.feed_forward == "gated" else 2) * width * self.intermediate_size
        attention = 2 * width * (width + self.key_value_heads * self.head_width)
        context = length if context is None else context
        window = min(context, 2 * (self.local_attention // 2) + 1)
        seen = sum(context if self.is_global(layer) else window for layer in range(layers))
        projection = embedding * width if embedding != width else 0
        projection += self.conv_kernel_size * width**2
        head = embedding * self.vocab_size + embedding * width * (self.lm_head == "transform")
        scores = 3 if self.positions == "disentangled" else 1
        products = layers * (attention + inner) + (scores + 1) * width * seen + projection
        return 6.0 * (products + predicted / length * head)


COMPUTED = tuple(field.name for field in dataclasses.fields(AttentionComputation))
