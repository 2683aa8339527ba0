"""The contract of an encoder family: everything that other files ask of one.

A family lies in a folder of its own beside this file, and is named in
`bertjax.encoders.registry.ENCODERS`. Nothing else knows which families there are.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from flax import linen as nn

from bertjax.encoders.names import Entry


class EncoderSpec(Protocol):
    """The sizes and switches of one encoder: a frozen dataclass, a line for each in its config.

    Its fields are those of the family's architecture (which function it is), and those of
    `bertjax.encoders.computation.Computation` (how it is computed). Of the first, every family has
    these:

    Attributes:
      encoder: the name of its family; a class variable, no field.
      vocab_size: V, the pieces of the vocabulary.
      padded_vocab_size: rows of the embedding table: V rounded up to `vocab_multiple`.
      hidden_size: D.
      num_hidden_layers: L.
      num_attention_heads: N.
      max_position_embeddings: the longest sequence.
      type_vocab_size: how many token types its table has; 0: it has none, and reads none.
      causal: whether a token sees only those before it.
      of_phase: names of the fields that a phase of pre-training may change together with its
        length, such as the base of rotary frequencies; a class variable. They decide no shape.
      hidden_dropout_prob, attention_probs_dropout_prob, initializer_range, layer_norm_eps,
        hidden_act: see BERT's.
    """

    @classmethod
    def named(cls, size: str, **fields) -> "EncoderSpec":
        """A spec by the name of its size, with other fields as given.

        Raises:
          ValueError: there is no such size, or a value does not fit.
        """

    def flops_per_token(self, length: int, predicted: int) -> float:
        """Useful floating-point operations of one training step, for each token.

        Matrix products only, forward and backward (6 per weight and token), without credit for
        recomputation. A row counts as one document, also where several are packed into it.

        Args:
          length: S.
          predicted: positions of a sequence that go through the masked-LM head.
        """


class HuggingFace(NamedTuple):
    """The names that the library transformers has for a family, its settings and its arrays.

    Attributes:
      classes: kind of `bertjax.encoders.kinds` -> name of the class.
      fields: the fields of config.json that are read: name -> type (`bertjax.interop.json_files`).
      read_config: a checked config.json -> the fields of the spec that it decides. Raises
        ValueError for a model that the family does not compute.
      write_config: spec -> the fields of config.json. Raises ValueError for a model that
        transformers does not compute.
      entries: (spec, number of classes) -> part of the parameters -> its arrays.
      prefixes: part -> how the names of its arrays may begin. The longest that fits a name decides
        its part; if two parts share it, the one that a model of the kind has.
      one_spelling: a name in any of its spellings -> the one that `entries` has.
      bare: what the names begin with where the encoder is saved alone without it.
      buffers: arrays that are constants and no weights.
      embeddings: the name of the table of tokens.
      decoder: what the names of the masked-LM decoder begin with, whose weight is `embeddings`
        here; and the name of its bias.
    """

    classes: Mapping[str, str]
    fields: Mapping[str, Any]
    read_config: Callable[[Mapping[str, Any]], dict[str, Any]]
    write_config: Callable[[Any], dict[str, Any]]
    entries: Callable[[Any, int], Mapping[str, list[Entry]]]
    prefixes: Mapping[str, tuple[str, ...]]
    one_spelling: Callable[[str], str]
    bare: str
    buffers: tuple[str, ...]
    embeddings: str
    decoder: tuple[str, str]


class EncoderFamily(NamedTuple):
    """Encoders of one architecture, in all sizes.

    The parameters of a model have a part for the encoder, which has the family's name, and one for
    each head. In the encoder's, the rows of the vocabulary are at embeddings/token, and the layers
    are encoder/layer_0, encoder/layer_1, ..., or encoder/layers where they are scanned
    (`bertjax.encoders.storage`).

    Attributes:
      spec: the class of its specs.
      module: (spec, name=...) -> the encoder. Called with int [B, S] input_ids, input_mask and
        token_type_ids, and by name `documents` and `deterministic`, it returns [B, S, D] in the
        compute dtype. `documents`, None or int [B, S], numbers the documents that are packed into
        a row (`bertjax.base.fields.DOCUMENTS`): a token sees only its own document, and learned
        positions start anew in each (`bertjax.layers.positions`). Its method `hidden_states`
        returns a list of such, the embeddings' and each layer's; its property `token_embedding` is
        the table [V (padded), D] that the decoder is tied to.
      heads: kind of `bertjax.encoders.kinds` -> the parts of such a model besides the encoder. The
        family has no models of the kinds that are absent.
      pooler: spec -> the module ([B, S, D], input_mask [B, S]) -> [B, D], what heads of whole
        sequences read.
      masked_lm: spec -> the module ([B, P, D], token_embedding) -> logits [B, P, V], float32.
      token_head: spec -> the module [B, S, D] -> [B, S, D], what heads of tokens read; None: they
        read the encoder's output.
      hugging_face: see there.
      scopes: patterns of the scopes in a compiled program, each with the part of the model it is
        reported as; the first that is found decides (`bertjax.compile_report.parts`).
    """

    spec: type
    module: Callable[..., nn.Module]
    heads: Mapping[str, tuple[str, ...]]
    pooler: Callable[[Any], nn.Module]
    masked_lm: Callable[[Any], nn.Module]
    hugging_face: HuggingFace
    scopes: tuple[tuple[str, str], ...]
    token_head: Callable[[Any], nn.Module] | None = None

    @property
    def name(self) -> str:
        """The family's name: `config.model.encoder`, and transformers' model_type."""
        return self.spec.encoder
