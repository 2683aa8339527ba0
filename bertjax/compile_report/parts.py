"""Assigns an instruction to a part of the model, by the path of JAX scopes that it comes from."""

import re
from collections.abc import Sequence

from bertjax.training.model import PART_SCOPE

OPTIMIZER, HEADS, COPIES, OTHER = "optimizer", "heads and losses", "layout copies", "other"
# The first pattern that matches decides.
_ENCODER = (
    *("attention projections", "attention", "local attention", "dropout", "layer norm"),
    *("feed-forward", "convolution", "embeddings"),
)
PARTS = (OPTIMIZER, *_ENCODER, HEADS, COPIES, OTHER)

Scopes = Sequence[tuple[str, str]]  # a pattern, and one of `PARTS`; the first that is found decides

_BEFORE: Scopes = ((r"optimizer/", OPTIMIZER), (r"/replaced_tokens/", HEADS))
_AFTER: Scopes = (
    (r"/masked_lm/|/pooler/|/next_sentence_head/|bps,bsd->bpd|losses|samples", HEADS),
)
_MOVES = ("copy", "transpose", "reshape", "pad", "slice", "concatenate", "convert")

FORWARD, BACKWARD = "forward", "backward"


def part_of(opcode: str, source: str, scopes: Scopes) -> str:
    """The part of the model, one of `PARTS`; `scopes` are those of the encoder's family."""
    for pattern, part in (*_BEFORE, *scopes, *_AFTER):
        if re.search(pattern, source):
            return part
    return COPIES if opcode in _MOVES else OTHER


def direction_of(source: str) -> str:
    """Returns "backward" for gradients and all that is computed from them, else "forward"."""
    return BACKWARD if "transpose(" in source or "optimizer/" in source else FORWARD


def layer_of(source: str) -> tuple[str, int] | None:
    """The layer's type and number i, of scopes KIND_layer and layer_i; None without these."""
    match = re.search(r"/(\w+)_layer/(?:.*/)?layer_(\d+)/", source)
    return (match[1], int(match[2])) if match else None


def model_of(source: str) -> str | None:
    """The part of a model of several, such as "generator" and "discriminator"."""
    match = re.search(rf"(\w+){PART_SCOPE}\b", source)
    return match[1] if match else None


def moved(opcode: str, source: str) -> str:
    """The kind of data that a collective moves: "gradients", "weights", ..."""
    if "optimizer/" in source:
        return (
            "updated weights" if opcode == "all-gather" else "norms and gradients of the optimizer"
        )
    if "transpose(" in source:
        return "weights, for gradients" if opcode == "all-gather" else "gradients"
    # An all-reduce without a source adds shares and zeros, which is XLA's other way to gather.
    if opcode == "all-gather" or not source:
        return "weights"
    return "sums of losses and activations"
