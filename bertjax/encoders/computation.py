"""How a model is computed; the function that it computes stays the same."""

import dataclasses
from typing import ClassVar

from bertjax.attention.implementations import IMPLEMENTATIONS
from bertjax.base.json_kinds import is_of

_CHOICES = {
    "compute_dtype": ("float32", "bfloat16"),
    "gradient_dtype": ("float32", "bfloat16"),
    "remat": ("none", "attention", "layer"),
}


@dataclasses.dataclass(frozen=True)
class Computation:
    """The switches of `config.model` that every encoder has.

    Attributes:
      compute_dtype: the dtype of activations and products. Parameters are always float32.
      gradient_dtype: the dtype in which the gradients of kernels are summed over devices.
      vocab_multiple: the rows of the vocabulary are padded to a multiple of this. Rows of padding
        are never predicted.
      scan_layers: one layer is compiled and looped over: faster to compile, slower to run.
      remat: what the backward pass computes again: nothing, the attention, or whole layers.
      attention: a key of `bertjax.attention.implementations.IMPLEMENTATIONS`: "einsum", "fused"
        (cuDNN's kernel on GPUs, without dropout), or "kernel" (this project's kernels on TPUs).
      of_phase: names of fields that a phase of another length may change; no field itself.

    Raises:
      ValueError: a value that does not fit, naming the field.
    """

    of_phase: ClassVar[tuple[str, ...]] = ("remat",)

    compute_dtype: str = "float32"
    gradient_dtype: str = "float32"
    vocab_multiple: int = 1
    scan_layers: bool = False
    remat: str = "none"
    attention: str = "einsum"

    def __post_init__(self):
        for name, choices in (*_CHOICES.items(), ("attention", tuple(IMPLEMENTATIONS))):
            check_choice(self, name, choices)
        _check_counts(self)
        if self.attention_probs_dropout_prob and not IMPLEMENTATIONS[self.attention].dropout:
            raise ValueError(
                f'attention="{self.attention}" cannot drop attention probabilities: '
                "set attention_probs_dropout_prob=0.0"
            )

    @property
    def padded_vocab_size(self) -> int:
        """Rows of the embedding table: `vocab_size` rounded up to `vocab_multiple`."""
        return -(-self.vocab_size // self.vocab_multiple) * self.vocab_multiple


def check_choice(spec, name: str, choices: tuple[str, ...]) -> None:
    """Raises ValueError if a field of a dataclass is none of the choices."""
    if getattr(spec, name) not in choices:
        raise ValueError(f"{name}={getattr(spec, name)!r}: must be one of {choices}")


def _check_counts(spec) -> None:
    """Raises ValueError if a field of the type int is not a whole number of at least 1."""
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if field.type is int and not is_of(value, int):
            raise ValueError(f"{field.name}={value!r}: must be a whole number")
        if field.type is int and value < 1:
            raise ValueError(f"{field.name}={value}: must be at least 1")


def check_shares(spec, *names: str) -> None:
    """Raises ValueError if a field is not in [0, 1)."""
    for name in names:
        if not 0 <= getattr(spec, name) < 1:
            raise ValueError(f"{name}={getattr(spec, name)}: must be in [0, 1)")


def check_heads(spec) -> None:
    """Raises ValueError if the width of a model does not divide over its attention heads."""
    if spec.hidden_size % spec.num_attention_heads:
        raise ValueError(
            f"hidden_size={spec.hidden_size} does not divide over "
            f"num_attention_heads={spec.num_attention_heads}"
        )


def plain(spec):
    """The same model in plain storage: see `bertjax.encoders.storage`."""
    return dataclasses.replace(spec, scan_layers=False, vocab_multiple=1, remat="none")
