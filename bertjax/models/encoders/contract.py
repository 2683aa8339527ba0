"""The contract of an encoder family: everything that other files ask of one.

The transformers are rows of `bertjax.models.encoders.presets`; another family has a folder of its
own. `bertjax.models.encoders.registry.ENCODERS` has all.
"""

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from flax import linen as nn

from bertjax.base.fields import CHARACTERS, OPTIONAL
from bertjax.models.layers.dense import Precision


class EncoderSpec(Protocol):
    """The sizes and switches of one encoder: a frozen dataclass.

    Its fields are those of the family's architecture (which function it is), and at least those of
    `bertjax.models.encoders.computation.Computation` (how it is computed).

    Attributes:
      encoder: the name of its family.
      phase_fields: names of the fields that a phase of pre-training may change together with its
        length, such as the base of rotary frequencies. They change no shape.
    """

    encoder: ClassVar[str]
    phase_fields: ClassVar[tuple[str, ...]]
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field]]

    def __hash__(self) -> int: ...

    @property
    def vocab_size(self) -> int:
        """V, the pieces of the vocabulary."""

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding table: V rounded up to `vocab_multiple`."""

    @property
    def hidden_size(self) -> int:
        """D, the width of the model."""

    @property
    def embedding_width(self) -> int:
        """E, the width of the embeddings."""

    @property
    def num_hidden_layers(self) -> int:
        """L, the number of layers."""

    def layer_type(self, layer: int) -> str:
        """The kind of a layer, counted from 0; "" if all are alike."""

    @property
    def max_position_embeddings(self) -> int:
        """The longest sequence."""

    @property
    def type_vocab_size(self) -> int:
        """The number of token types; 0: the encoder reads no token types."""

    @property
    def causal(self) -> bool:
        """Whether a token sees only those before it."""

    @property
    def hidden_act(self) -> str:
        """The name of the activation."""

    @property
    def hidden_dropout_prob(self) -> float:
        """The rate of dropout of activations."""

    @property
    def initializer_range(self) -> float:
        """The standard deviation of random weights."""

    @property
    def precision(self) -> Precision:
        """See `Computation`."""

    @property
    def compute_dtype(self) -> str:
        """See `Computation`."""

    @property
    def scan_layers(self) -> bool:
        """See `Computation`."""

    @classmethod
    def named(cls, size: str, **fields: Any) -> Self:
        """A spec by the name of its size; raises ValueError for an unknown size or bad value."""

    def flops_per_token(self, length: int, predicted: int, context: float | None = None) -> float:
        """Useful floating-point operations of one training step, for each token.

        Only matrix products count, forward and backward (6 per weight and token), once each.

        Args:
          length: S.
          predicted: positions of a sequence that go through the masked-LM head.
          context: the mean number of tokens that a token sees where no window limits it, if a row
            has several documents; None: S.
        """


class PoolerSpec(NamedTuple):
    """How the states of a text's tokens become the one vector that a head reads."""

    part: str  # of the parameters; it has none without an activation
    act: str = ""  # after a dense layer; "hidden_act": that of the spec; "": neither
    dropout: bool = False  # before the layer
    use_bias: bool = True
    norm: bool = False  # after the activation
    last: bool = False  # it is always the last token that is read


class EncoderFamily(NamedTuple):
    """Encoders of one architecture, in all sizes.

    The parameters of a model have a part for the encoder, which has the family's name, and one for
    each head. In the encoder's, the layers are encoder/layer_0, encoder/layer_1, ..., or
    encoder/layers where they are scanned (`bertjax.models.encoders.storage`).

    Attributes:
      module: (spec, name=...) -> the encoder. Called with a dict of arrays and the keyword
        `deterministic`, it returns [B, S, D] in the compute dtype. Its method `hidden_states` takes
        the same arguments and returns a list of such arrays: the embeddings, then the output of
        each layer. Its property `token_embedding` is the table [V (padded), D] that a decoder may
        be tied to.
      inputs: the names of the arrays that it reads, of `bertjax.base.fields.INPUTS`; a batch may
        have more. With `segment_ids`, a token sees only its own document, and learned positions
        start anew in each; with `position_ids`, they are these. With `language_ids`, the token
        types of the spec are languages.
      heads: each kind of `bertjax.models.encoders.head_types` that it has -> the parts of such a
        model besides the encoder.
      scopes: patterns of the scopes in a compiled program, each with the part of the model it is
        reported as; the first that is found decides (`bertjax.compile_report.parts`).
      pooler: kind -> how its models make one vector of a text.
      token_head: whether a dense layer, an activation and a norm stand before the output layers of
        tokens.
      unbiased: the kinds whose output layer has no bias.
      context_norm: whether the head for replaced tokens reads the norm of a token's state plus that
        of the first token of its text.
      empty_cache: (spec, B, T) -> the cache with which it reads token by token, at the beginning
        (`bertjax.models.encoders.cache`); None: it cannot.
      reads_memory: whether its module also reads "memory" [B, L, M, D], what layer l read of M
        tokens before the row (Transformer-XL, arXiv 1901.02860), and "memory_mask" int [B, M], 0
        where there is none; without it, all M count. Its method `one_stream` returns [B, S, D],
        what a call returns, and the result of `hidden_states`. That of a family with a permutation
        LM predicts tokens in any order (XLNet, arXiv 1906.08237): its method `two_streams` takes
        "order" int [B, S] and "masked_lm_positions" int [B, P], too: a token sees those with the
        same number in the order, or a lower one; a predicted token, only those with a lower one. It
        returns the vectors of the latter, [B, P, D], and the result of `hidden_states`.
      states: spec -> the shape of the states with which it goes on from one text to the next; None:
        it has none. Then "states" [B, *shape] may be among the arrays, zeros at a beginning, and
        its method `read` returns what `hidden_states` does, and the states after the texts.
    """

    spec: type[EncoderSpec]
    module: Callable[..., nn.Module]
    inputs: tuple[str, ...]
    heads: Mapping[str, tuple[str, ...]]
    scopes: tuple[tuple[str, str], ...]
    poolers: Mapping[str, PoolerSpec] = MappingProxyType({})
    token_head: bool = False
    unbiased: tuple[str, ...] = ()
    context_norm: bool = False
    empty_cache: Callable[[Any, int, int], dict[str, Any]] | None = None
    reads_memory: bool = False
    states: Callable[[Any], tuple[int, ...]] | None = None

    @property
    def name(self) -> str:
        """The family's name: `config.model.encoder`, and transformers' model_type."""
        return self.spec.encoder

    def tells_texts_apart(self, spec: EncoderSpec) -> bool:
        """Whether an encoder of this family reads token types, and has more than one."""
        return "token_type_ids" in self.inputs and spec.type_vocab_size > 1

    @property
    def reads_characters(self) -> bool:
        """Whether it reads words by their characters, and no ids of a vocabulary."""
        return not CHARACTERS.keys().isdisjoint(self.inputs)

    @property
    def text_inputs(self) -> tuple[str, ...]:
        """The inputs that every batch must have."""
        return tuple(name for name in self.inputs if name not in OPTIONAL)
