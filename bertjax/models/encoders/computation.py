"""How a model is computed; the function that it computes stays the same."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from bertjax.base.limits import Free, Width, check_limits
from bertjax.models.attention.choice import AUTO, FUSED, NAMES
from bertjax.models.encoders.contract import EncoderSpec
from bertjax.models.layers.dense import Precision


class _Architecture:
    """The fields of an encoder's architecture that its computation reads."""

    vocab_size: int
    hidden_size: int


class _AttentionArchitecture:
    """Those that also the computation of attention reads."""

    num_attention_heads: int
    attention_probs_dropout_prob: float


@dataclasses.dataclass(frozen=True)
class Computation(_Architecture):
    """The switches of `config.model` that every encoder has.

    Attributes:
      compute_dtype: the dtype of activations and products. Parameters are always float32.
      gradient_dtype: the dtype in which the gradients of kernels are summed over devices.
      vocab_multiple: the rows of the vocabulary are padded to a multiple of this. Rows of padding
        are never predicted.
      scan_layers: one layer is compiled and looped over: faster to compile, slower to run.
      remat: what the backward pass computes again: nothing, the slopes of activations, also the
        attention, or whole layers. "none" takes more memory, and is faster on TPU v6e.
      choices: the name of a field -> the values that it may have.
      phase_fields: the names of the fields that a phase of another length may change.
      sizes: the name of a size -> the values of `size_fields`.

    Raises:
      ValueError: a value does not fit; the message names the field.
    """

    choices: ClassVar[Mapping[str, tuple[Any, ...]]] = {
        "compute_dtype": ("float32", "bfloat16"),
        "gradient_dtype": ("float32", "bfloat16"),
        "remat": ("none", "activation", "attention", "layer"),
    }
    phase_fields: ClassVar[tuple[str, ...]] = ("remat",)
    sizes: ClassVar[Mapping[str, tuple[int, ...]]]
    size_fields: ClassVar[tuple[str, ...]] = (
        "num_hidden_layers",
        "hidden_size",
        "num_attention_heads",
        "intermediate_size",
    )

    compute_dtype: str = "float32"
    gradient_dtype: str = "float32"
    vocab_multiple: Width = 1
    scan_layers: bool = False
    remat: str = "activation"

    def __post_init__(self):
        check_limits(self, **self.choices)

    @classmethod
    def named(cls, size: str, **fields: Any) -> Self:
        """A spec by its size's name (a key of `sizes`), with other fields as given."""
        if size not in cls.sizes:
            raise ValueError(f"size={size!r}: must be one of {', '.join(cls.sizes)}")
        return cls(**dict(zip(cls.size_fields, cls.sizes[size], strict=True)) | fields)

    def layer_type(self, layer: int) -> str:
        """The kind of a layer, counted from 0; "" if all are alike."""
        del layer
        return ""

    @property
    def precision(self) -> Precision:
        """The dtypes of the products."""
        return Precision(self.compute_dtype, self.gradient_dtype)

    @property
    def keeps_slopes(self) -> bool:
        return self.remat == "none"

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding table: `vocab_size` rounded up to `vocab_multiple`."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple


@dataclasses.dataclass(frozen=True)
class AttentionComputation(Computation, _AttentionArchitecture):
    """The switches of every encoder with attention.

    Attributes:
      attention: what computes self-attention. "auto": what is fastest on the device for the length,
        window, dropout and dtype (`bertjax.models.attention.choice`). "einsum"; "fused": cuDNN's
        kernel with a mask of all pairs, on a GPU and without dropout; "kernel": this project's
        kernels, on a TPU, or on a GPU, where they have not run. What a name cannot compute, einsum
        does.
      dropout_bits: the random bits that decide whether an attention probability is dropped, 32 or
        16. With 16, two heads share a number, which is faster where kernels compute. The two drop
        other probabilities, so a run keeps its choice.
    """

    choices = {**Computation.choices, "attention": NAMES, "dropout_bits": (16, 32)}

    attention: Free[str] = AUTO
    dropout_bits: int = 32

    def __post_init__(self):
        super().__post_init__()
        check_heads(self)
        if self.attention_probs_dropout_prob and self.attention == FUSED:
            raise ValueError(
                f'attention="{self.attention}" cannot drop attention probabilities: '
                "set attention_probs_dropout_prob=0.0"
            )

    @property
    def head_width(self) -> int:
        """H, the width of one attention head."""
        return self.hidden_size // self.num_attention_heads


def check_heads(spec: "AttentionComputation") -> None:
    """Raises ValueError if the width of a model does not divide over its attention heads."""
    if spec.hidden_size % spec.num_attention_heads:
        raise ValueError(
            f"hidden_size={spec.hidden_size} does not divide over "
            f"num_attention_heads={spec.num_attention_heads}"
        )


# Fields of a spec that say how a model is trained; weights do not determine them.
_OF_TRAINING = ("hidden_dropout_prob", "attention_probs_dropout_prob", "causal")


def how_computed(spec: EncoderSpec) -> dict[str, Any]:
    """The fields of a spec that say how its model is computed."""
    names = (field.name for field in dataclasses.fields(AttentionComputation))
    return {name: getattr(spec, name) for name in names if hasattr(spec, name)}


def determined(spec: EncoderSpec) -> dict[str, Any]:
    """The family and the sizes of a model, which its weights determine, as in `config.model`."""
    left = (*how_computed(spec), *_OF_TRAINING)
    sizes = {name: value for name, value in vars(spec).items() if name not in left}
    return sizes | {"encoder": spec.encoder}


def canonical(spec: EncoderSpec) -> EncoderSpec:
    """The same model in canonical storage: see `bertjax.models.encoders.storage`."""
    remat = spec.__dataclass_fields__["remat"].default
    return dataclasses.replace(spec, scan_layers=False, vocab_multiple=1, remat=remat)
